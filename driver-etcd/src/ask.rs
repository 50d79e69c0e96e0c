//! Requests for a lock: first or repeated, plain or for an owner.

#[cfg(test)]
mod tests;

use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::driver::{AcquireRequest, Acquisition, Begun, Busy, ErrorExt as _, Grant, LeaseInstant, Queueing};
use tenure_core::{Error, ErrorKind, OwnerId, OwnerToken, Result};
use tokio::time::Instant;

use crate::answer::{self, HoldSeen, Seen, Tried};
use crate::error::says_lease_gone;
use crate::fences::{self, Base};
use crate::grants::{Lease, new_id, seconds};
use crate::idle::most_passed;
use crate::inner::Inner;
use crate::keys::{NameKeys, Spot};
use crate::record::Record;
use crate::session::CLAIM;
use crate::tickets::{LeftBehind, Place, Waiting};
use crate::txn::{self, Take};
use crate::watcher::Asking;

/// The length of a turn in round trips: the answers that the first in line waits for, and the notification.
const ROUNDS_OF_A_TURN: u32 = 3;
/// How often one request starts over when things change under it.
const MOST_STARTS: usize = 4;

/// One request, on its way.
pub(crate) struct Ask<'a> {
    pub(crate) inner: &'a Inner,
    pub(crate) keys: &'a NameKeys,
    pub(crate) owner: Option<OwnerId>,
    pub(crate) request: &'a AcquireRequest,
    pub(crate) secs: i64,
    asking: Asking<'a>,
    /// Not earlier than the true time: the elapsed part of a lease is counted up to here.
    pub(crate) began: LeaseInstant,
    /// The leases that were asked for on the way.
    made: Mutex<Vec<i64>>,
}

impl Inner {
    pub(crate) async fn ask(&self, owner: Option<OwnerId>, request: &AcquireRequest) -> Result<Acquisition> {
        self.link.ensure_open()?;
        let keys = self.keys(&request.name);
        let ask = Ask::new(self, &keys, owner, request)?;
        self.tickets.ensure_alive(&request.token)?;
        let answer = ask.answer().await.map_err(|error| {
            // Whatever it says of the last step, an earlier one may have left something.
            if self.tickets.know(&request.token) { error.half_way() } else { error }
        });
        if let Err(abandoned) = self.tickets.ensure_alive(&request.token) {
            // Abandoned meanwhile; the undoing may have come too early for leases made since.
            let leases = std::mem::take(&mut *ask.made());
            self.session.gone(&request.token);
            self.undo(owner, &request.name, &request.token, Some(LeftBehind { leases, waiting: None })).await?;
            return Err(abandoned);
        }
        answer
    }

    /// A new lease for the token, which has been noted.
    pub(crate) async fn grant(&self, token: &OwnerToken, id: i64, secs: i64) -> Result<Lease> {
        let answer = self.leases.grant(id, secs).await;
        if answer.as_ref().is_err_and(Error::was_not_applied) {
            self.tickets.end(token, id);
        }
        answer
    }
}

impl<'a> Ask<'a> {
    pub(crate) fn new(
        inner: &'a Inner,
        keys: &'a NameKeys,
        owner: Option<OwnerId>,
        request: &'a AcquireRequest,
    ) -> Result<Self> {
        let (secs, began) = (Inner::ttl_secs(request)?, LeaseInstant::now());
        let asking = inner.watcher.asking(inner.keyspace.encoded(keys));
        Ok(Self { inner, keys, owner, request, secs, asking, began, made: Mutex::default() })
    }
}

impl Ask<'_> {
    async fn answer(&self) -> Result<Acquisition> {
        for _ in 0..MOST_STARTS {
            let answer = match self.inner.tickets.place(self.token()) {
                Some(place) => self.again(place).await?,
                None => self.afresh().await?,
            };
            if let Some(answer) = answer {
                return Ok(answer);
            }
        }
        Ok(Acquisition::Busy(Busy::default().with_recheck_after(Some(Duration::ZERO))))
    }

    pub(crate) fn token(&self) -> &OwnerToken {
        &self.request.token
    }

    /// Asks for a token that has no place in the queue, as far as is known. `None` if it is to be asked again: things
    /// have changed on the way.
    async fn afresh(&self) -> Result<Option<Acquisition>> {
        let base = self.inner.fences.base().await?;
        let lease = self.lease(self.secs).await?;
        // A place that was asked for without an answer.
        let unanswered = self.inner.tickets.waiting(self.token());
        let (spot, record) = (unanswered.map(|waiting| waiting.spot), self.record(lease, &base));
        let take = self.taking(&record, lease, &base);
        let free = |foreign| take.free(spot.as_ref(), foreign);
        let seen = match self.try_past_others_keys(&take, self.keys.queue_end(), free).await? {
            Some(Tried::Done(revision)) => {
                let answer = self.won(&record, revision, lease)?;
                self.is_in().await?;
                return Ok(Some(answer));
            }
            Some(Tried::Not(seen)) => seen,
            None => return Ok(None),
        };
        if let Some(answer) = self.resolve(&seen, Some(lease)).await? {
            return Ok(answer.known());
        }
        if seen.place.is_none() {
            // A place that was asked for earlier may still arrive: it is refused before another one is asked for.
            self.leave().await?;
        }
        match (self.request.queue, seen.place) {
            (_, Some(place)) if seen.is_next(self.token()) => self.take_place(place, lease).await,
            (Queueing::None, _) => {
                self.give_back(lease).await?;
                Ok(Some(Acquisition::Busy(Busy::default())))
            }
            (Queueing::Join { .. }, Some(place)) => {
                self.give_back(lease).await?;
                // It arrived after all: the token keeps it, in the order of its first request.
                self.inner.tickets.set_waiting(place.into())?;
                Ok(None)
            }
            (Queueing::Join { presence, .. }, None) => self.enqueue(presence, seen.revision, lease).await,
        }
    }

    /// Joins the queue, behind all clients that found the lock busy before this revision.
    async fn enqueue(&self, presence: Duration, arrival: i64, unneeded: Lease) -> Result<Option<Acquisition>> {
        let (tickets, session) = (&self.inner.tickets, &self.inner.session);
        // At once, to spare round trips; judged when all have ended, so that none is dropped half-way.
        let prepared = tokio::join!(self.asking.is_to_wait(), self.give_back(unneeded), session.ensure());
        prepared.0?;
        prepared.1?;
        let live = prepared.2?;
        let spot = Spot { arrival, token: *self.token() };
        // Noted before it is asked for: an abandonment from here on refuses the place that is on its way.
        tickets.set_waiting(Waiting { spot, lease: live.lease, revision: None })?;
        let asked = Instant::now();
        let answer = match self.inner.txn(txn::enqueue(self.keys, &spot, &session.key(&live))).await {
            Ok(answer) => answer::enqueued(&answer, self.keys)?,
            Err(error) if says_lease_gone(&error) => {
                // The session has ended, so nothing was put; the next start makes another one.
                session.corrected(live.lease, None);
                tickets.waits_no_more(self.token());
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let took = asked.elapsed();
        let seen = self.take_in(answer.seen);
        let Some(place) = seen.place else {
            // The undoing of another place has written the session's key, or it is gone: the next start knows.
            session.corrected(live.lease, answer.session);
            tickets.waits_no_more(self.token());
            return Ok(None);
        };
        tickets.set_waiting(place.into())?;
        let most = self.inner.config.max_waiters;
        // No transaction can compare a count, so the place is taken first and given up if there are too many.
        if answer.others.is_some_and(|others| others >= i64::from(most)) {
            self.leave().await?;
            let text = format!("the queue of this lock is full: it has {most} waiters");
            return Err(Error::new(ErrorKind::LimitReached, text));
        }
        session.present(self.keys, &place, presence);
        if let Some(answer) = self.resolve(&seen, None).await? {
            return Ok(answer.known());
        }
        self.take_or_wait(place, &seen, took).await
    }

    /// Asks for a token that has a place. `None` if it has lapsed.
    async fn again(&self, place: Place) -> Result<Option<Acquisition>> {
        // First: it is a sign of life also if the rest fails.
        if let Queueing::Join { presence, .. } = self.request.queue {
            self.inner.session.present(self.keys, &place, presence);
        }
        if self.inner.watcher.view().seems_free_for(self.name(), self.token()) {
            // The watch has shown a free lock. The transaction checks that again, so the look is spared.
            let lease = self.lease(self.secs).await?;
            return self.take_place(place, lease).await;
        }
        // The watch may have ended with the runtime of another waiter.
        self.asking.is_to_wait().await?;
        let asked = Instant::now();
        let answer = self.inner.txn(txn::just_look(self.keys, Some(&place.spot))).await?;
        let seen = self.take_in(answer::seen(&answer, self.keys)?);
        let took = asked.elapsed();
        if let Some(answer) = self.resolve(&seen, None).await? {
            return Ok(answer.known());
        }
        if seen.place != Some(place) {
            self.lapsed(seen.place)?;
            return Ok(None);
        }
        self.take_or_wait(place, &seen, took).await
    }

    /// Takes a lock that is the token's to take, or says that it is not. `None` if it is to be asked again. Where an answer
    /// takes long, the first in line needs long as well: to hear of the free lock, to get a lease, and to take it.
    async fn take_or_wait(&self, place: Place, seen: &Seen, took: Duration) -> Result<Option<Acquisition>> {
        if seen.is_next(self.token()) || seen.is_obstructed() {
            let lease = self.lease(self.secs).await?;
            return self.take_place(place, lease).await;
        }
        let patience = CLAIM + took * ROUNDS_OF_A_TURN;
        if self.inner.watcher.view().quiet_for(self.name()) >= patience && self.pass_over(place, seen).await? {
            return Ok(None);
        }
        Ok(Some(self.busy(seen)))
    }

    /// Takes the lock for the first in line. `None` if its place has lapsed.
    async fn take_place(&self, place: Place, lease: Lease) -> Result<Option<Acquisition>> {
        let base = self.inner.fences.base().await?;
        let record = self.record(lease, &base);
        let take = self.taking(&record, lease, &base);
        let first = |foreign| take.place(&place, foreign);
        let seen = match self.try_past_others_keys(&take, self.keys.place(&place.spot), first).await? {
            Some(Tried::Done(revision)) => {
                let answer = self.won(&record, revision, lease)?;
                self.is_in().await?; // the place went with the same transaction
                return Ok(Some(answer));
            }
            Some(Tried::Not(seen)) => seen,
            None => return Ok(None),
        };
        if let Some(answer) = self.resolve(&seen, Some(lease)).await? {
            return Ok(answer.known());
        }
        self.give_back(lease).await?;
        if seen.place != Some(place) {
            self.lapsed(seen.place)?;
            return Ok(None);
        }
        Ok(Some(self.busy(&seen)))
    }

    /// The token has another place than was thought, or none.
    pub(crate) fn lapsed(&self, now: Option<Place>) -> Result<()> {
        match now {
            Some(place) => self.inner.tickets.set_waiting(place.into()),
            None => {
                self.inner.tickets.waits_no_more(self.token());
                self.inner.session.gone(self.token());
                Ok(())
            }
        }
    }

    /// Gives up the place that the token has or may get.
    pub(crate) async fn leave(&self) -> Result<()> {
        if let Some(waiting) = self.inner.tickets.waiting(self.token()) {
            self.inner.session.leave(self.keys, &waiting).await?;
            self.inner.tickets.waits_no_more(self.token());
        }
        Ok(())
    }

    /// The token holds the lock, and so has no place; one that was asked for without an answer must not come either.
    pub(crate) async fn is_in(&self) -> Result<()> {
        match self.inner.tickets.place(self.token()) {
            Some(_) => self.lapsed(None),
            None => self.leave().await,
        }
    }

    /// What follows if the token, or its owner, is in already. `lease` is one that was made for a hold.
    async fn resolve(&self, seen: &Seen, lease: Option<Lease>) -> Result<Option<Resolved>> {
        let Some(hold) = &seen.hold else { return Ok(None) };
        let Some(record) = &hold.record else { return Ok(None) };
        if record.has(self.owner, self.token()) {
            return self.earlier(hold, record, lease).await.map(Resolved::Answer).map(Some);
        }
        if self.owner.is_some() && record.owner == self.owner {
            return self.enter_again(hold.clone(), lease).await.map(Some);
        }
        Ok(None)
    }

    /// The token holds it already: an answer was lost.
    pub(crate) async fn earlier(&self, hold: &HoldSeen, record: &Record, lease: Option<Lease>) -> Result<Acquisition> {
        self.inner.tickets.set_hold(self.token(), hold.lease, None);
        self.is_in().await?;
        if let Some(lease) = lease.filter(|lease| lease.id != hold.lease) {
            self.inner.give_up(self.token(), lease.id).await?;
        }
        let whole = seconds(record.lease_secs);
        // It may have served before.
        self.grant(record, hold.granted, whole.saturating_sub(most_passed(whole)), Begun::Earlier)
    }

    fn won(&self, record: &Record, revision: i64, lease: Lease) -> Result<Acquisition> {
        self.inner.tickets.set_hold(self.token(), lease.id, Some(revision));
        // Of a lease that served before, some has passed.
        self.grant(record, revision, lease.left_at(self.began), Begun::Now)
    }

    /// The answer that the lock is the token's, since a grant in this revision. A new grant of a plain lock carries the fences
    /// that were asked for, which are its revision's; what may have been given out of them is not given again.
    pub(crate) fn grant(&self, record: &Record, granted: i64, ttl: Duration, begun: Begun) -> Result<Acquisition> {
        let fence = fences::of_lock(record.base, granted)?;
        let fences = match (begun, self.owner) {
            (Begun::Now, None) => self.request.fences.clamp(1, fences::OF_A_GRANT),
            _ => 1,
        };
        Ok(Acquisition::Granted(
            Grant::new(fence, ttl).with_begun(begun).with_depth(record.depth()).with_fences(fences),
        ))
    }

    /// Etcd reports an expiry as it reports a release, so there is no time at which asking would help.
    fn busy(&self, seen: &Seen) -> Acquisition {
        let joined = self.request.queue != Queueing::None;
        let position = seen.place.filter(|_| joined).map(|_| seen.ahead);
        Acquisition::Busy(Busy::default().with_position(position))
    }

    /// A lease for this token: a new one, or for a plain lock one that served before.
    pub(crate) async fn lease(&self, secs: i64) -> Result<Lease> {
        let used = if self.owner.is_none() { self.inner.idle.take(secs, self.began) } else { None };
        let id = used.map_or_else(new_id, |lease| lease.id);
        // Noted before it is asked for: an abandonment knows the id, and revokes a lease whose answer was lost.
        if let Err(abandoned) = self.inner.tickets.begin(self.token(), id, secs) {
            used.inspect(|lease| self.inner.idle.put(*lease, &self.inner.leases));
            return Err(abandoned);
        }
        self.made().push(id);
        let lease = match used {
            Some(lease) => lease,
            None => self.inner.grant(self.token(), id, secs).await?,
        };
        self.inner.tickets.made(self.token(), lease);
        Ok(lease)
    }

    /// Parts with a lease that nothing is on.
    pub(crate) async fn give_back(&self, lease: Lease) -> Result<()> {
        if !self.keep_for_later(lease.id) {
            self.inner.give_up(self.token(), lease.id).await?;
        }
        Ok(())
    }

    /// Whether a lease without keys is free for later use. Leases of re-entrant locks are not: a hold moves between the
    /// leases of its entries.
    fn keep_for_later(&self, lease: i64) -> bool {
        let kept = self.owner.is_none() && self.inner.keep_for_later(self.token(), lease);
        if kept {
            self.made().retain(|made| *made != lease);
        }
        kept
    }

    pub(crate) fn made(&self) -> MutexGuard<'_, Vec<i64>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request that puts something on the lease. `None` if the lease served before and has ended meanwhile.
    pub(crate) async fn on<T>(&self, lease: Lease, request: impl Future<Output = Result<T>>) -> Result<Option<T>> {
        match request.await {
            Ok(answer) => Ok(Some(answer)),
            Err(error) if says_lease_gone(&error) && lease.since < self.began => {
                self.inner.tickets.end(self.token(), lease.id);
                self.inner.idle.spoil(); // the others may be no better
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    pub(crate) fn taking<'a>(&'a self, record: &'a Record, lease: Lease, base: &'a Base) -> Take<'a> {
        Take { keys: self.keys, record, lease, fences: &self.inner.fences, base }
    }

    pub(crate) fn record(&self, lease: Lease, base: &Base) -> Record {
        Record {
            owner: self.owner,
            entries: vec![*self.token()],
            lease_secs: lease.secs,
            term: lease.term,
            base: base.locks,
            permit: None,
            label: self.request.label.clone(),
        }
    }

    pub(crate) fn take_in(&self, seen: Seen) -> Seen {
        self.inner.watcher.view().read(self.name(), self.asking.epoch(), self.token(), &seen);
        seen
    }

    fn name(&self) -> &[u8] {
        self.inner.keyspace.encoded(self.keys)
    }
}

/// The remaining work when the token, or its owner, was in already.
pub(crate) enum Resolved {
    Answer(Acquisition),
    /// The condition no longer holds.
    StartOver,
}

impl Resolved {
    fn known(self) -> Option<Acquisition> {
        match self {
            Self::Answer(answer) => Some(answer),
            Self::StartOver => None,
        }
    }
}
