//! Requests for a share.

use std::sync::Mutex;
use std::time::Duration;

use tenure_core::driver::{
    Acquisition, Begun, Busy, ErrorExt as _, Grant, LeaseInstant, PermitRequest, Queueing, Share,
};
use tenure_core::rules::permits::Refusal;
use tenure_core::{Error, ErrorKind, OwnerToken, Result};

use super::seen::{Held, Own, Seen, seen};
use super::txn::Of;
use crate::ask::Ask;
use crate::error::says_lease_gone;
use crate::fences;
use crate::grants::{Lease, seconds};
use crate::idle::most_passed;
use crate::inner::Inner;
use crate::keys::Spot;
use crate::link::{reads, revision};
use crate::record::{Part, Record};
use crate::tickets::{LeftBehind, Waiting};

/// How often one request starts over when things change under it.
pub(super) const MOST_STARTS: usize = 16;
/// When a waiter asks again for which things changed that often.
const CROWDED: Duration = Duration::from_millis(20);

/// The error of a request for which things changed too often.
pub(super) fn crowded() -> Error {
    Error::new(ErrorKind::Unavailable, "other clients kept changing the name under this request; nothing was granted")
}

struct PermitAsk<'a> {
    ask: Ask<'a>,
    of: Of<'a>,
    share: Share,
    queue: Queueing,
    /// A lease without a key, for the hold.
    lease: Mutex<Option<Lease>>,
    epoch: Mutex<Option<u64>>,
}

/// An attempt that was made.
enum Tried {
    Granted(Acquisition),
    Not(Seen),
    /// The lease served before and has ended meanwhile, or the base of the fences was written.
    Again(Option<Seen>),
}

impl Inner {
    pub(super) async fn ask_for(&self, request: &PermitRequest) -> Result<Acquisition> {
        self.link.ensure_open()?;
        if !request.share.is_possible() {
            return Err(Refusal::Impossible(request.share).into());
        }
        let (lock, token) = (&request.lock, &request.lock.token);
        let keys = self.permits.of(request.family, &lock.name);
        let own = keys.of(token);
        let ask = PermitAsk {
            ask: Ask::new(self, &own, None, lock)?,
            of: Of { keys: &keys, own: &own },
            share: request.share,
            queue: lock.queue,
            lease: Mutex::default(),
            epoch: Mutex::default(),
        };
        self.tickets.ensure_alive(token)?;
        let answer = ask.answer().await.map_err(|error| {
            // Whatever it says of the last step, an earlier one may have left something.
            if self.tickets.know(token) { error.half_way() } else { error }
        });
        if let Err(abandoned) = self.tickets.ensure_alive(token) {
            // Abandoned meanwhile; the undoing may have come too early for leases made since.
            let leases = std::mem::take(&mut *ask.ask.made());
            self.session.gone(token);
            self.undo_plain(&own, token, Some(LeftBehind { leases, waiting: None })).await?;
            return Err(abandoned);
        }
        answer
    }

    pub(super) async fn look(&self, of: Of<'_>, token: &OwnerToken, spot: Option<&Spot>) -> Result<Seen> {
        let answer = self.txn(of.look(spot)).await.map_err(crate::error::of_a_read)?;
        seen(&answer, of.own, token, 0)
    }
}

impl PermitAsk<'_> {
    const fn inner(&self) -> &Inner {
        self.ask.inner
    }

    fn token(&self) -> &OwnerToken {
        self.ask.token()
    }

    async fn answer(&self) -> Result<Acquisition> {
        let mut seen = match self.inner().tickets.place(self.token()) {
            Some(_) => None,
            None => match self.take(None).await? {
                Tried::Granted(answer) => return Ok(answer),
                Tried::Not(seen) => Some(seen),
                Tried::Again(seen) => seen,
            },
        };
        for _ in 0..MOST_STARTS {
            let now = match seen.take() {
                Some(seen) => seen,
                None => self.look_again().await?,
            };
            if let Some(held) = now.hold_of(self.token()) {
                return self.earlier(held).await;
            }
            self.correct(&now).await?;
            let (before, share) = now.own.map_or((now.waiters, self.share), |own| (own.ahead, own.share));
            if now.fits(before, share) {
                match self.take(Some(now)).await? {
                    Tried::Granted(answer) => return Ok(answer),
                    Tried::Not(now) => seen = Some(now),
                    Tried::Again(now) => seen = now,
                }
                continue;
            }
            match (self.queue, now.own) {
                (Queueing::None, _) => return self.busy(Busy::default()).await,
                (Queueing::Join { presence, .. }, Some(own)) => {
                    self.inner().session.present(self.of.own, &own.place, presence);
                    if let Some(answer) = self.wait(&now, own).await? {
                        return Ok(answer);
                    }
                }
                (Queueing::Join { .. }, None) => seen = self.join(now.revision).await?,
            }
        }
        match self.queue {
            Queueing::None => self.give_back().await.and_then(|()| Err(crowded())),
            Queueing::Join { .. } => self.busy(Busy::default().with_recheck_after(Some(CROWDED))).await,
        }
    }

    /// Reads the name for a token that waits.
    async fn look_again(&self) -> Result<Seen> {
        let place = self.inner().tickets.place(self.token());
        if let (Queueing::Join { presence, .. }, Some(place)) = (self.queue, place) {
            // First: it is a sign of life also if the rest fails.
            self.inner().session.present(self.of.own, &place, presence);
            self.live().await?;
        }
        let now = self.inner().look(self.of, self.token(), place.map(|place| place.spot).as_ref()).await?;
        self.take_in(&now);
        Ok(now)
    }

    async fn live(&self) -> Result<()> {
        let epoch = self.inner().crowds.ensure_live().await?;
        *lock(&self.epoch) = Some(epoch);
        Ok(())
    }

    fn take_in(&self, seen: &Seen) {
        if let Some(epoch) = *lock(&self.epoch) {
            self.inner().crowds.take_in(self.of.keys.base(), epoch, self.token(), seen);
        }
    }

    /// Takes note of the place that the token has, and refuses one that may still arrive.
    async fn correct(&self, seen: &Seen) -> Result<()> {
        let tickets = &self.inner().tickets;
        match (seen.own, tickets.waiting(self.token())) {
            (Some(own), known) if known != Some(own.place.into()) => tickets.set_waiting(own.place.into()),
            (Some(_), _) | (None, None) => Ok(()),
            (None, Some(Waiting { revision: Some(_), .. })) => self.ask.lapsed(None),
            (None, Some(_)) => self.ask.leave().await,
        }
    }

    /// A lease for the hold: one that was made for an attempt before, or another one.
    async fn lease(&self) -> Result<Lease> {
        let made = lock(&self.lease).take();
        match made {
            Some(lease) => Ok(lease),
            None => self.ask.lease(self.ask.secs).await,
        }
    }

    async fn give_back(&self) -> Result<()> {
        let made = lock(&self.lease).take();
        match made {
            Some(lease) => self.ask.give_back(lease).await,
            None => Ok(()),
        }
    }

    async fn busy(&self, busy: Busy) -> Result<Acquisition> {
        self.give_back().await?;
        Ok(Acquisition::Busy(busy))
    }

    /// Takes a share that fits by what was read; without that, if the name has no keys.
    async fn take(&self, seen: Option<Seen>) -> Result<Tried> {
        let base = self.inner().fences.base().await?;
        let lease = self.lease().await?;
        let own = seen.as_ref().and_then(|seen| seen.own);
        let share = own.map_or(self.share, |own| own.share);
        let part = Some(Part { share, step: 0, grown: None });
        let record = Record { permit: part, ..self.ask.record(lease, &base) };
        let spot = own.map(|own| own.place.spot).or_else(|| self.waiting());
        let txn = self.of.take(&record, lease.id, seen.as_ref(), spot.as_ref(), &self.inner().fences, &base);
        let Some(answer) = self.ask.on(lease, self.inner().txn(txn)).await? else { return Ok(Tried::Again(None)) };
        if answer.succeeded() {
            return self.won(&record, revision(&answer)?, lease).await.map(Tried::Granted);
        }
        *lock(&self.lease) = Some(lease);
        let now = self::seen(&answer, self.of.own, self.token(), 1)?;
        self.take_in(&now);
        let moved = reads(&answer).first().is_some_and(|look| self.inner().fences.has_moved(&base, look));
        Ok(if moved { Tried::Again(Some(now)) } else { Tried::Not(now) })
    }

    fn waiting(&self) -> Option<Spot> {
        self.inner().tickets.waiting(self.token()).map(|waiting| waiting.spot)
    }

    async fn won(&self, record: &Record, revision: i64, lease: Lease) -> Result<Acquisition> {
        self.inner().tickets.set_hold(self.token(), lease.id, Some(revision));
        let fence = fences::of_lock(record.base, revision)?;
        self.ask.is_in().await?;
        // Of a lease that served before, some has passed.
        Ok(Acquisition::Granted(Grant::new(fence, lease.left_at(self.ask.began))))
    }

    /// The token holds already: an answer was lost.
    async fn earlier(&self, held: &Held) -> Result<Acquisition> {
        self.inner().tickets.set_hold(self.token(), held.seen.lease, None);
        self.ask.is_in().await?;
        let made = lock(&self.lease).take();
        if let Some(lease) = made.filter(|lease| lease.id != held.seen.lease) {
            self.inner().give_up(self.token(), lease.id).await?;
        }
        granted_before(held)
    }

    /// The answer to a waiter that does not fit. `None` if it is to be asked again, since others before it left.
    async fn wait(&self, seen: &Seen, own: Own) -> Result<Option<Acquisition>> {
        let (silent, left) = self.inner().crowds.silent(self.of.keys.base(), &own.place.spot, seen);
        if !silent.is_empty() && self.inner().txn(self.of.pass_over(seen, &silent)).await?.succeeded() {
            return Ok(None);
        }
        let busy = Busy::default().with_position(Some(own.ahead)).with_recheck_after(left);
        self.busy(busy).await.map(Some)
    }

    /// Joins the line, behind all clients that found the name busy before this revision.
    async fn join(&self, arrival: i64) -> Result<Option<Seen>> {
        let (inner, session) = (self.inner(), &self.inner().session);
        // At once, to spare round trips; judged when all have ended, so that none is dropped half-way.
        let prepared = tokio::join!(self.live(), self.give_back(), session.ensure());
        prepared.0?;
        prepared.1?;
        let live = prepared.2?;
        let spot = Spot { arrival, token: *self.token() };
        // Noted before it is asked for: an abandonment from here on refuses the place that is on its way.
        inner.tickets.set_waiting(Waiting { spot, lease: live.lease, revision: None })?;
        let answer = match inner.txn(self.of.join(&spot, self.share, &session.key(&live))).await {
            Ok(answer) => answer,
            Err(error) if says_lease_gone(&error) => {
                // The session has ended, so nothing was put; the next start makes another one.
                session.corrected(live.lease, None);
                inner.tickets.waits_no_more(self.token());
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let now = seen(&answer, self.of.own, self.token(), 1)?;
        self.take_in(&now);
        let first = reads(&answer).into_iter().next();
        let Some(own) = now.own else {
            // The undoing of another place has written the session's key, or it is gone: the next start knows.
            let written = first.and_then(|key| Some(key.kvs().first()?.mod_revision()));
            session.corrected(live.lease, written);
            inner.tickets.waits_no_more(self.token());
            return Ok(Some(now));
        };
        inner.tickets.set_waiting(own.place.into())?;
        // No transaction can compare a count, so the place is taken first and given up if there are too many.
        let most = inner.config.max_waiters;
        if answer.succeeded() && first.is_some_and(|others| others.count() >= i64::from(most)) {
            self.ask.leave().await?;
            return Err(Refusal::QueueFull(most).into());
        }
        Ok(Some(now))
    }
}

/// The answer to a token that holds already.
fn granted_before(held: &Held) -> Result<Acquisition> {
    let (Some(fence), Some(record)) = (held.seen.fence(), &held.seen.record) else {
        return Err(Error::new(ErrorKind::Damaged, "the hold has no fence"));
    };
    let whole = seconds(record.lease_secs);
    // It may have served before.
    let ttl = whole.saturating_sub(most_passed(whole));
    Ok(Acquisition::Granted(Grant::new(fence, ttl).with_begun(Begun::Earlier)))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The time that the lease of a hold lasts at least.
pub(super) async fn remaining(inner: &Inner, token: &OwnerToken, held: &Held) -> Result<Option<Duration>> {
    let lease = held.seen.lease;
    if let Some(lease) = inner.tickets.lease(token, lease) {
        let left = lease.left_at(LeaseInstant::now());
        if !left.is_zero() {
            return Ok(Some(left));
        }
    }
    Ok(inner.leases.remaining(lease).await?.map(Duration::from_secs))
}
