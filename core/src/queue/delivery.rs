//! One delivery of a message, in the hands of whoever handles it.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::driver::{Cause, Extended, Extension, RawDelivery, Settle, Settled, Settlement};
use crate::engine::hold::LooseHold;
use crate::engine::reaper::{Cleanup, Undo};
use crate::engine::shared::Shared;
use crate::queue::extending::Confirmed;
use crate::queue::fetcher::Fetcher;
use crate::queue::message::{Codec, decode};
use crate::queue::recurring::{Occurrence, OccurrenceEnd, left_to_others};
use crate::queue::{ConcurrencyKey, MessageId, Reason};
use crate::telemetry;
use crate::value::clock::LeaseInstant;
use crate::value::error::{Error, ErrorKind, LockName, Result};
use crate::value::limits::{Delay, Lease, Payload};
use crate::value::token::{FencingToken, OwnerToken};

/// After how long a message is due again whose delivery was dropped: doubled with each attempt, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// A delivered message. It is a *lease*: while it lasts nobody else gets the message; then it is delivered again. A
/// [`Worker`](crate::queue::Worker) extends it; a delivery received by hand is extended with [`extend`](Delivery::extend).
///
/// **Dropping a delivery** gives the message back, as a failed attempt: whoever drops it may have begun to work. It is due
/// again after 100 ms, doubled with each attempt, 10 s at most, so that a consumer that panics over it does not use up all
/// attempts in a moment. The settlement runs in the background, never blocks, and works outside a runtime. To give a message
/// back without counting the attempt, [`give_back`](Delivery::give_back).
#[must_use = "dropping the delivery gives the message back as a failed attempt"]
pub struct Delivery<T> {
    claim: InFlight,
    value: Result<T>,
}

impl<T: 'static> Delivery<T> {
    pub(super) fn new(mut claim: InFlight, codec: &dyn Codec<T>) -> Self {
        let after = after_drop(claim.raw.attempt).min(claim.fetcher.caps.delay);
        let after = Delay::new(after).unwrap_or_default();
        claim.if_dropped(Settlement::Retry { after, reason: Some(Reason::beginning_of("dropped")) });
        let value = decode(codec, claim.raw.payload.as_bytes());
        Self { claim, value }
    }

    /// What the message says.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`] when the payload cannot be decoded, or the codec panicked over it. The delivery can still
    /// be settled.
    pub fn value(&self) -> Result<&T, &Error> {
        self.value.as_ref()
    }

    /// The bytes of the message, decodable or not.
    #[must_use]
    pub fn payload(&self) -> &Payload {
        &self.claim.raw.payload
    }

    /// By what the message is known.
    #[must_use]
    pub fn id(&self) -> &MessageId {
        &self.claim.raw.id
    }

    /// Which delivery this is: 1 for the first.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.claim.raw.attempt
    }

    /// How many deliveries there may be; of a [recurring](crate::queue::Recurring) message, of this occurrence.
    #[must_use]
    pub fn max_attempts(&self) -> u32 {
        self.claim.occurrence().map_or(self.claim.raw.attempts, Occurrence::attempts).get()
    }

    /// The time of this occurrence of a [recurring](crate::queue::Recurring) message, by its schedule; `None` for others.
    #[must_use]
    pub fn occurrence(&self) -> Option<SystemTime> {
        self.claim.occurrence().map(Occurrence::time)
    }

    /// Why it was delivered.
    #[must_use]
    pub fn cause(&self) -> Cause {
        self.claim.raw.cause
    }

    /// The order of this delivery among all deliveries of the queue: greater than that of every earlier one. Give it
    /// to the resource that the work changes, and a delivery that was paused past its lease does no harm.
    #[must_use]
    pub fn fence(&self) -> FencingToken {
        self.claim.raw.fence
    }

    /// How long after its due time the message was handed out, by the backend's clock.
    #[must_use]
    pub fn late(&self) -> Duration {
        self.claim.raw.late
    }

    /// How old the message was when it was handed out, by the backend's clock.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.claim.raw.age
    }

    /// Its concurrency key.
    #[must_use]
    pub fn concurrency_key(&self) -> Option<&ConcurrencyKey> {
        self.claim.raw.key.as_ref()
    }

    /// The lock that should be held while the message is handled: take it with
    /// [`Lock::try_acquire_for`](crate::Lock::try_acquire_for).
    #[must_use]
    pub fn lock(&self) -> Option<&LockName> {
        self.claim.raw.lock.as_ref()
    }

    /// What the last failure of the message said about why, if one did. A crash says nothing; the
    /// [`cause`](Self::cause) tells of it.
    #[must_use]
    pub fn last_failure(&self) -> Option<&Reason> {
        self.claim.raw.reason.as_ref()
    }

    /// How long the lease surely lasts from now; zero once it is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.claim.remaining()
    }

    /// Whether the lease has ended. Reads the clock; no I/O.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.claim.is_lost()
    }

    /// Resolves when the lease has ended, no later than its deadline, and without an answer from anywhere.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn lost(&self) {
        self.claim.lost().await;
    }

    /// Makes the lease last this long from now; a longer rest is kept. Whole milliseconds, [`Lease::MIN`] to
    /// [`Lease::MAX`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`] when the lease has ended; [`ErrorKind::InvalidArgument`]; whatever the driver reports.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave the lease extended at the backend; this delivery then believes in the old one.
    pub async fn extend(&self, lease: Duration) -> Result<()> {
        let lease = Lease::new(lease).map_err(|error| self.claim.fetcher.told(error, "extend"))?;
        self.claim.extend(lease, Instant::now()).await
    }

    /// The work is done: removes the message. The end of an occurrence of a [recurring](crate::queue::Recurring) message, by whatever
    /// settlement, schedules the next one instead.
    ///
    /// [`Settled::Stale`] means that the message was delivered again meanwhile, and that this delivery changes nothing
    /// any more. An acknowledgement after the end of the lease counts if nobody else got the message yet.
    ///
    /// # Errors
    ///
    /// Whatever the driver reports. If it may still succeed, it goes on in the background until the lease ends.
    ///
    /// # Cancel safety
    ///
    /// Once polled, the settlement is carried out; dropping the future only ends the waiting. Dropped before, it is
    /// like dropping the delivery. This holds for all settlements.
    pub async fn ack(self) -> Result<Settled> {
        self.claim.settle(Settlement::Ack).await
    }

    /// The work is done, and the message recurs no more: removes it. For one that does not recur, as [`ack`](Delivery::ack).
    ///
    /// # Errors
    ///
    /// As [`Delivery::ack`].
    pub async fn end_recurrence(mut self) -> Result<Settled> {
        self.claim.end_recurrence();
        self.ack().await
    }

    /// The work failed: the message is due again after `delay`. The last attempt moves it to the dead letters:
    /// [`Settled::Dead`].
    ///
    /// # Errors
    ///
    /// As [`Delivery::ack`]; [`ErrorKind::InvalidArgument`] when the delay is too long. The message is then given back
    /// as if the delivery had been dropped.
    pub async fn nack(self, delay: Duration) -> Result<Settled> {
        self.nack_because(delay, None).await
    }

    /// As [`nack`](Delivery::nack), with a reason that is kept with the message.
    ///
    /// # Errors
    ///
    /// As [`Delivery::nack`].
    pub async fn nack_because(self, delay: Duration, reason: Option<Reason>) -> Result<Settled> {
        let after = self.delay(delay)?;
        self.claim.settle(Settlement::Retry { after, reason }).await
    }

    /// The work will never succeed: moves the message to the dead letters. Of a [recurring](crate::queue::Recurring) message this
    /// occurrence has failed, and the next one comes.
    ///
    /// # Errors
    ///
    /// As [`Delivery::ack`].
    pub async fn bury(self, reason: Option<Reason>) -> Result<Settled> {
        self.claim.settle(Settlement::Dead { reason }).await
    }

    /// The work was not begun: the message is due at once, and the attempt is not counted.
    ///
    /// # Errors
    ///
    /// As [`Delivery::ack`].
    pub async fn give_back(self) -> Result<Settled> {
        self.claim.settle(Settlement::Return { after: Delay::ZERO }).await
    }

    /// The work is not to be done now: the message is due after `delay`, and the attempt is not counted.
    ///
    /// # Errors
    ///
    /// As [`Delivery::nack`].
    pub async fn put_off(self, delay: Duration) -> Result<Settled> {
        let after = self.delay(delay)?;
        self.claim.settle(Settlement::Return { after }).await
    }

    /// The work cannot begin while the lock is taken: the message is due when its turn at the lock comes, as the driver
    /// declares by its [`Parking`](crate::driver::Parking), but no later than `at_most` from now. The attempt is not
    /// counted. The lock is kept for the message then: [`Lock::try_acquire_for`](crate::Lock::try_acquire_for) takes it.
    ///
    /// # Errors
    ///
    /// As [`Delivery::nack`].
    pub async fn park(self, lock: &LockName, at_most: Duration) -> Result<Settled> {
        let at_most = self.delay(at_most)?;
        self.claim.settle(Settlement::Park { lock: lock.clone(), at_most }).await
    }

    /// Ends the delivery in a way that is decided at run time.
    ///
    /// # Errors
    ///
    /// As [`Delivery::ack`].
    pub async fn settle(self, how: Settlement) -> Result<Settled> {
        self.claim.settle(how).await
    }

    pub(super) fn claim(&self) -> &InFlight {
        &self.claim
    }

    pub(super) fn claim_mut(&mut self) -> &mut InFlight {
        &mut self.claim
    }

    pub(super) fn into_claim(self) -> InFlight {
        self.claim
    }

    /// Takes the value out, for a handler; leaves an error in its place.
    pub(super) fn take_value(&mut self) -> Result<T> {
        let taken = Error::new(ErrorKind::Protocol, "the value was taken");
        std::mem::replace(&mut self.value, Err(taken))
    }

    fn delay(&self, delay: Duration) -> Result<Delay> {
        let checked = Delay::new(delay).and_then(|delay| self.claim.fetcher.caps.check_delay(delay).map(|()| delay));
        checked.map_err(|error| self.claim.fetcher.told(error, "settle"))
    }
}

/// For how long a message waits after this delivery of it was dropped, 1 for the first.
fn after_drop(attempt: u32) -> Duration {
    let doubled = 2_u32.saturating_pow(attempt.saturating_sub(1));
    FIRST_PAUSE.saturating_mul(doubled).min(LONGEST_PAUSE)
}

impl<T> fmt::Debug for Delivery<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let raw = &self.claim.raw;
        f.debug_struct("Delivery")
            .field("queue", &self.claim.fetcher.name)
            .field("id", &raw.id)
            .field("attempt", &raw.attempt)
            .field("fence", &raw.fence)
            .field("payload", &raw.payload)
            .finish_non_exhaustive()
    }
}

// One delivery, as the client owns it before and while somebody handles it.

/// A delivery that is not settled. Dropped, it is settled in the background, as [`InFlight::if_dropped`] says.
#[derive(Debug)]
pub(crate) struct InFlight {
    pub(super) fetcher: Arc<Fetcher>,
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

impl InFlight {
    /// A delivery that nobody has seen: dropped, it is returned.
    pub(super) fn new(fetcher: &Arc<Fetcher>, mut raw: RawDelivery, sent_at: LeaseInstant, lease: Lease) -> Self {
        let until = believable(fetcher, sent_at, lease);
        let standing = Mutex::new(Standing::Until(until));
        let (fetcher, if_dropped) = (Arc::clone(fetcher), Some(Settlement::Return { after: Delay::ZERO }));
        let turn = Mutex::new(raw.turn.take().map(|turn| LooseHold::new(&fetcher.shared, turn)));
        let occurrence = raw.recurrence.as_ref().map(|recurrence| Occurrence::read(recurrence, fetcher.caps.delay));
        fetcher.comes_in_hand();
        Self { fetcher, raw, standing, occurrence, changed: Notify::new(), turn, if_dropped }
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
            Some(Err(_)) => Some(left_to_others(self.fetcher.caps.delay)),
        };
        if let Some(settlement) = &otherwise {
            telemetry::passed_over(&self.fetcher.name, &self.raw.id, self.raw.attempt, settlement);
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

    pub(super) fn remaining(&self) -> Duration {
        match *self.standing() {
            Standing::Until(until) => until.remaining(),
            Standing::Stale => Duration::ZERO,
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
        let settled = self.fetcher.settle(settle, self.until()).await;
        let settled = self.settled(&how, settled)?;
        if let Some((lock, at_most, since)) = parked.filter(|_| settled == Settled::Done) {
            self.fetcher.attend(&lock, self.raw.id.clone(), since, at_most);
        }
        Ok(settled)
    }

    /// Acknowledges deliveries of one queue.
    pub(super) async fn ack_all(fetcher: &Arc<Fetcher>, mut claims: Vec<Self>) -> Result<Vec<Settled>> {
        let ack = |claim: &mut Self| {
            claim.if_dropped = None;
            (Settle { receipt: claim.raw.receipt, how: claim.translated(Settlement::Ack) }, claim.until())
        };
        let settles: Vec<_> = claims.iter_mut().map(ack).collect();
        let answers = fetcher.settle_all(settles.clone());
        let answers = answers.map_err(|error| fetcher.told(error, "settle"))?.await;
        let told = answers.into_iter().zip(claims.iter().zip(&settles));
        told.map(|(settled, (claim, (settle, _)))| claim.settled(&settle.how, settled)).collect()
    }

    /// What was answered to a settlement.
    fn settled(&self, how: &Settlement, answer: Result<Settled>) -> Result<Settled> {
        let settled = answer.map_err(|error| self.fetcher.told(error, "settle"))?;
        telemetry::settled(&self.fetcher.name, &self.raw.id, self.raw.attempt, how, settled);
        if settled == Settled::Stale {
            self.set_stale();
        }
        Ok(settled)
    }

    /// Extends the lease, in a request that leaves at any time from now on and at `latest`.
    pub(super) async fn extend(&self, lease: Lease, latest: Instant) -> Result<()> {
        let asked = async {
            self.fetcher.caps.check_lease(lease)?;
            self.fetcher.extend(Extension { receipt: self.raw.receipt, lease }, latest).await
        };
        let Confirmed { sent_at, answer } = asked.await.map_err(|error| self.fetcher.told(error, "extend"))?;
        match answer {
            Extended::Extended => {
                let until = believable(&self.fetcher, sent_at, lease);
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
                telemetry::delivery_lost(&self.fetcher.name, &self.raw.id, self.raw.attempt);
                Err(self.lost_error())
            }
        }
    }

    pub(super) fn lost_error(&self) -> Error {
        let text = format!("the lease of message {} has ended", self.raw.id);
        self.fetcher.told(Error::new(ErrorKind::Lost, text), "delivery")
    }
}

fn believable(fetcher: &Fetcher, sent_at: LeaseInstant, lease: Lease) -> LeaseInstant {
    sent_at.after(fetcher.shared.config.drift.believable(lease.get()).unwrap_or_default())
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.fetcher.leaves_hand();
        if let Some(how) = self.if_dropped.take() {
            let settle = Settle { receipt: self.raw.receipt, how: self.translated(how) };
            carry_on(&self.fetcher, settle, self.until());
        }
    }
}

/// Hands a settlement to the reaper, which repeats it until it is acknowledged or the lease has ended.
pub(super) fn carry_on(fetcher: &Fetcher, settle: Settle, until: LeaseInstant) {
    fetcher.shared.reaper.push(Cleanup {
        name: fetcher.name.for_errors().clone(),
        owner: None,
        token: OwnerToken::random(),
        undo: Undo::Delivery(Arc::clone(&fetcher.driver), fetcher.name.clone(), settle),
        until,
        done: None,
    });
}
