//! One delivery, as the client owns it before and while somebody handles it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;

use super::extending::Confirmed;
use super::pump::Pump;
use super::recurring::{Occurrence, OccurrenceEnd, left_to_others};
use super::{Delay, Lease};
use crate::driver::{Extended, Extension, RawDelivery, Settle, Settled, Settlement};
use crate::engine::loose::LooseHold;
use crate::engine::reaper::{Cleanup, Undo};
use crate::engine::shared::Shared;
use crate::telemetry;
use crate::value::clock::LeaseInstant;
use crate::value::error::{Error, ErrorKind, Result};
use crate::value::name::LockName;
use crate::value::token::OwnerToken;

/// A delivery that is not settled. Dropped, it is settled in the background, as [`Claim::if_dropped`] says.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(super) pump: Arc<Pump>,
    pub(super) raw: RawDelivery,
    standing: Mutex<Standing>,
    /// What it is an occurrence of, if the message recurs.
    occurrence: Option<Result<Occurrence>>,
    /// Told when the standing changes.
    changed: Notify,
    /// The hold on a lock that came along, if nobody has taken it up yet. Given back when the claim ends.
    turn: Mutex<Option<LooseHold>>,
    /// `None` once it is settled, or once its settlement is on its way.
    if_dropped: Option<Settlement>,
}

/// Whether the lease lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Until(LeaseInstant),
    /// The backend says that the receipt is not valid any more.
    Stale,
}

impl Claim {
    /// A delivery that nobody has seen: dropped, it is returned.
    pub(super) fn new(pump: &Arc<Pump>, mut raw: RawDelivery, sent_at: LeaseInstant, lease: Lease) -> Self {
        let until = believable(pump, sent_at, lease);
        let standing = Mutex::new(Standing::Until(until));
        let (pump, if_dropped) = (Arc::clone(pump), Some(Settlement::Return { after: Delay::ZERO }));
        let turn = Mutex::new(raw.turn.take().map(|turn| LooseHold::new(&pump.shared, turn)));
        let occurrence = raw.recurrence.as_ref().map(|recurrence| Occurrence::read(recurrence, pump.caps.delay));
        pump.comes_in_hand();
        Self { pump, raw, standing, occurrence, changed: Notify::new(), turn, if_dropped }
    }

    /// The hold on this lock that came along. One on another lock is given back: it is not what is needed.
    pub(super) fn take_turn(&self, shared: &Arc<Shared>, lock: &LockName) -> Option<LooseHold> {
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner).take();
        turn.filter(|turn| turn.is_on(shared, lock))
    }

    /// Changes what is done if it is dropped.
    pub(super) fn if_dropped(&mut self, settlement: Settlement) {
        if self.if_dropped.is_some() {
            self.if_dropped = Some(settlement);
        }
    }

    /// The occurrence of a message that recurs.
    pub(super) fn occurrence(&self) -> Option<&Occurrence> {
        self.occurrence.as_ref().and_then(|occurrence| occurrence.as_ref().ok())
    }

    /// From now on the message recurs no more.
    pub(super) fn end_recurrence(&mut self) {
        self.occurrence = None;
    }

    /// Whether somebody may handle it: not if it is an occurrence that was missed or that has no attempts left. Dropped,
    /// the message goes on as such.
    pub(super) fn is_to_be_handled(&mut self) -> bool {
        let otherwise = match &self.occurrence {
            None => None,
            Some(Ok(occurrence)) => occurrence.passed_over(&self.raw),
            Some(Err(_)) => Some(left_to_others(self.pump.caps.delay)),
        };
        if let Some(settlement) = &otherwise {
            telemetry::passed_over(&self.pump.name, &self.raw.id, self.raw.attempt, settlement);
        }
        let handled = otherwise.is_none();
        self.if_dropped = otherwise.or(self.if_dropped.take());
        handled
    }

    /// How this settlement ends the occurrence of a message that recurs, if it does.
    pub(super) fn occurrence_end(&self, how: &Settlement) -> Option<OccurrenceEnd> {
        self.occurrence().and_then(|occurrence| occurrence.end(self.raw.attempt, how))
    }

    /// What the settlement is for a message that recurs; the same for all others.
    fn translated(&self, how: Settlement) -> Settlement {
        match self.occurrence() {
            Some(occurrence) => occurrence.translated(self.raw.attempt, how),
            None => how,
        }
    }

    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The backend says that the receipt is not valid any more.
    fn set_stale(&self) {
        *self.standing() = Standing::Stale;
        self.changed.notify_waiters();
    }

    /// When the lease ends, as far as is known.
    fn until(&self) -> LeaseInstant {
        match *self.standing() {
            Standing::Until(until) => until,
            Standing::Stale => LeaseInstant::now(),
        }
    }

    pub(super) fn is_lost(&self) -> bool {
        !self.lasts(LeaseInstant::now())
    }

    /// Whether the lease lasts at this instant, as far as is known.
    pub(super) fn lasts(&self, at: LeaseInstant) -> bool {
        match *self.standing() {
            Standing::Until(until) => until > at,
            Standing::Stale => false,
        }
    }

    pub(super) fn remaining(&self) -> std::time::Duration {
        match *self.standing() {
            Standing::Until(until) => until.remaining(),
            Standing::Stale => std::time::Duration::ZERO,
        }
    }

    /// Resolves when the lease has ended, no later than its deadline.
    pub(super) async fn lost(&self) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable(); // before looking
            let until = match *self.standing() {
                Standing::Until(until) => until,
                Standing::Stale => return,
            };
            tokio::select! {
                () = until.reached() => if self.is_lost() { return },
                () = changed => {}
            }
        }
    }

    pub(super) async fn settle(mut self, how: Settlement) -> Result<Settled> {
        self.if_dropped = None;
        let how = self.translated(how);
        let parked = match &how {
            Settlement::Park { lock, at_most } => Some((lock.clone(), *at_most, LeaseInstant::now())),
            _ => None,
        };
        let settle = Settle { receipt: self.raw.receipt, how: how.clone() };
        let settled = self.pump.settle(settle, self.until()).await;
        let settled = self.settled(&how, settled)?;
        if let Some((lock, at_most, since)) = parked.filter(|_| settled == Settled::Done) {
            self.pump.attend(&lock, self.raw.id.clone(), since, at_most);
        }
        Ok(settled)
    }

    /// Acknowledges deliveries of one queue.
    pub(super) async fn ack_all(pump: &Arc<Pump>, mut claims: Vec<Self>) -> Result<Vec<Settled>> {
        let ack = |claim: &mut Self| {
            claim.if_dropped = None;
            (Settle { receipt: claim.raw.receipt, how: claim.translated(Settlement::Ack) }, claim.until())
        };
        let settles: Vec<_> = claims.iter_mut().map(ack).collect();
        let answers = pump.settle_all(settles.clone());
        let answers = answers.map_err(|error| pump.told(error, "settle"))?.await;
        let told = answers.into_iter().zip(claims.iter().zip(&settles));
        told.map(|(settled, (claim, (settle, _)))| claim.settled(&settle.how, settled)).collect()
    }

    /// What was answered to a settlement.
    fn settled(&self, how: &Settlement, answer: Result<Settled>) -> Result<Settled> {
        let settled = answer.map_err(|error| self.pump.told(error, "settle"))?;
        telemetry::settled(&self.pump.name, &self.raw.id, self.raw.attempt, how, settled);
        if settled == Settled::Stale {
            self.set_stale();
        }
        Ok(settled)
    }

    /// Extends the lease, in a request that leaves at any time from now on and at `latest`.
    pub(super) async fn extend(&self, lease: Lease, latest: Instant) -> Result<()> {
        let asked = async {
            self.pump.caps.check_lease(lease)?;
            self.pump.extend(Extension { receipt: self.raw.receipt, lease }, latest).await
        };
        let Confirmed { sent_at, answer } = asked.await.map_err(|error| self.pump.told(error, "extend"))?;
        match answer {
            Extended::Extended => {
                let until = believable(&self.pump, sent_at, lease);
                match &mut *self.standing() {
                    Standing::Until(old) if *old < until && *old > LeaseInstant::now() => {
                        *old = until;
                        self.changed.notify_waiters();
                    }
                    _ => {}
                }
                if self.is_lost() { Err(self.lost_error()) } else { Ok(()) }
            }
            Extended::Stale => {
                self.set_stale();
                telemetry::delivery_lost(&self.pump.name, &self.raw.id, self.raw.attempt);
                Err(self.lost_error())
            }
        }
    }

    pub(super) fn lost_error(&self) -> Error {
        let text = format!("the lease of message {} has ended", self.raw.id);
        self.pump.told(Error::new(ErrorKind::Lost, text), "delivery")
    }
}

fn believable(pump: &Pump, sent_at: LeaseInstant, lease: Lease) -> LeaseInstant {
    sent_at.after(pump.shared.config.drift.believable(lease.get()).unwrap_or_default())
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.pump.leaves_hand();
        if let Some(how) = self.if_dropped.take() {
            let settle = Settle { receipt: self.raw.receipt, how: self.translated(how) };
            carry_on(&self.pump, settle, self.until());
        }
    }
}

/// Hands a settlement to the reaper, which repeats it until it is acknowledged or the lease has ended.
pub(super) fn carry_on(pump: &Pump, settle: Settle, until: LeaseInstant) {
    pump.shared.reaper.push(Cleanup {
        name: pump.name.for_errors().clone(),
        owner: None,
        token: OwnerToken::random(),
        undo: Undo::Delivery(Arc::clone(&pump.driver), pump.name.clone(), settle),
        until,
        done: None,
    });
}
