//! One delivery of a message, held by its receiver.

use std::fmt;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::driver::{Cause, Settled, Settlement};
use crate::queue::fetcher::InFlight;
use crate::queue::message::{Codec, decode};
use crate::queue::recurring::schedule::Occurrence;
use crate::queue::{ConcurrencyKey, MessageId, Reason};
use crate::value::error::{Error, ErrorKind, LockName, Result};
use crate::value::queue::{Delay, Lease, Payload};
use crate::value::token::FencingToken;

/// The delay before a message of a dropped delivery is due again: doubled with each attempt, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// A delivered message. It is a *lease*: while it lasts, no other receiver gets the message; then it is delivered
/// again. A [`Worker`](crate::queue::Worker) extends it; a delivery received by hand is extended with
/// [`extend`](Delivery::extend).
///
/// **Dropping a delivery** returns the message to the queue as a failed attempt, because the work may have begun. It is
/// due again after 100 ms, doubled with each attempt, 10 s at most, so that a consumer that panics on it does not use
/// up all attempts in a moment. The settlement runs in the background, never blocks, and works outside a runtime. To
/// return a message without counting the attempt, use [`give_back`](Delivery::give_back).
///
/// ```
/// # use tenure_core as tenure;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tenure::Result<()> {
/// # let client = tenure::Client::new(tenure_memory::MemoryDriver::new());
/// # let mails = client.queue_with("mails", tenure::queue::Text)?;
/// # mails.push(&"welcome".to_owned()).await?;
/// # async fn send(_: &str) -> Result<(), String> { Ok(()) }
/// use std::time::Duration;
/// use tenure::queue::Settled;
///
/// let delivery = mails.receive().await?;
/// let sent = match delivery.value() {
///     Ok(text) => send(text).await,
///     Err(undecodable) => Err(undecodable.to_string()),
/// };
/// let settled = match sent {
///     Ok(()) => delivery.ack().await?,
///     Err(_) => delivery.nack(Duration::from_secs(60)).await?,
/// };
/// assert_eq!(settled, Settled::Done);
/// # Ok(())
/// # }
/// ```
#[must_use = "dropping the delivery gives the message back as a failed attempt"]
pub struct Delivery<T> {
    claim: InFlight,
    value: Result<T>,
}

impl<T: 'static> Delivery<T> {
    pub(super) fn new(mut claim: InFlight, codec: &dyn Codec<T>) -> Self {
        let after = after_drop(claim.raw.attempt).min(claim.fetcher.remote.caps.delay);
        let after = Delay::new(after).unwrap_or_default();
        claim.if_dropped(Settlement::Retry { after, reason: Some(Reason::beginning_of("dropped")) });
        let value = decode(codec, claim.raw.payload.as_bytes());
        Self { claim, value }
    }

    /// Returns the decoded value of the message.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`] when the payload cannot be decoded, or the codec panicked. The delivery can still be
    /// settled.
    pub fn value(&self) -> Result<&T, &Error> {
        self.value.as_ref()
    }

    /// Returns the bytes of the message, decodable or not.
    #[must_use]
    pub fn payload(&self) -> &Payload {
        &self.claim.raw.payload
    }

    /// Returns the message's id.
    #[must_use]
    pub fn id(&self) -> &MessageId {
        &self.claim.raw.id
    }

    /// Returns the number of this delivery: 1 for the first.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.claim.raw.attempt
    }

    /// Returns the most deliveries of the message; of a [recurring](crate::queue::Recurring) message, of this
    /// occurrence.
    #[must_use]
    pub fn max_attempts(&self) -> u32 {
        self.claim.occurrence().map_or(self.claim.raw.attempts, Occurrence::attempts).get()
    }

    /// Returns the time of this occurrence of a [recurring](crate::queue::Recurring) message, by its schedule; `None`
    /// for others.
    #[must_use]
    pub fn occurrence(&self) -> Option<SystemTime> {
        self.claim.occurrence().map(Occurrence::time)
    }

    /// Returns the cause of the delivery.
    #[must_use]
    pub fn cause(&self) -> Cause {
        self.claim.raw.cause
    }

    /// Returns the order of this delivery among all deliveries of the queue: greater than that of every earlier one.
    /// Pass it to the resource that the work changes, so that a delivery that was paused past its lease does no harm.
    #[must_use]
    pub fn fence(&self) -> FencingToken {
        self.claim.raw.fence
    }

    /// Returns the time from the message's due time to its delivery, by the backend's clock.
    #[must_use]
    pub fn late(&self) -> Duration {
        self.claim.raw.late
    }

    /// Returns the age of the message at its delivery, by the backend's clock.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.claim.raw.age
    }

    /// Returns the message's concurrency key.
    #[must_use]
    pub fn concurrency_key(&self) -> Option<&ConcurrencyKey> {
        self.claim.raw.key.as_ref()
    }

    /// Returns the lock to hold while the message is handled: take it with
    /// [`Lock::try_acquire_for`](crate::Lock::try_acquire_for).
    #[must_use]
    pub fn lock(&self) -> Option<&LockName> {
        self.claim.raw.lock.as_ref()
    }

    /// Returns the reason of the last failed attempt, if it gave one. After a crash there is none; see
    /// [`cause`](Self::cause).
    #[must_use]
    pub fn last_failure(&self) -> Option<&Reason> {
        self.claim.raw.reason.as_ref()
    }

    /// Returns the time that the lease surely lasts from now; zero once it is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.claim.remaining()
    }

    /// Returns true if the lease has ended. Reads the clock; no I/O.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.claim.is_lost()
    }

    /// Resolves when the lease has ended: no later than its deadline, even if the backend does not answer.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn lost(&self) {
        self.claim.lost().await;
    }

    /// Extends the lease to this length from now; a longer remaining time is kept. Whole milliseconds, [`Lease::MIN`]
    /// to [`Lease::MAX`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`] when the lease has ended; [`ErrorKind::InvalidArgument`]; otherwise the driver's error.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the backend may have extended the lease; this delivery then keeps the old deadline.
    pub async fn extend(&self, lease: Duration) -> Result<()> {
        let lease = Lease::new(lease).map_err(|error| self.claim.fetcher.remote.during(error, "extend"))?;
        self.claim.extend(lease, Instant::now()).await
    }

    /// Acknowledges the message: the work is done, and the message is removed. If it is an occurrence of a
    /// [recurring](crate::queue::Recurring) message, the settlement that ends the occurrence schedules the next one
    /// instead.
    ///
    /// [`Settled::Stale`] means that the message was delivered again meanwhile, and that this delivery changes nothing
    /// any more. An acknowledgement after the end of the lease counts if the message was not delivered again yet.
    ///
    /// # Errors
    ///
    /// The driver's error. If the settlement may still succeed, it continues in the background until the lease ends.
    ///
    /// # Cancel safety
    ///
    /// Once polled, the settlement is carried out; dropping the future only ends the waiting. Dropped before, it is
    /// like dropping the delivery. This holds for all settlements.
    pub async fn ack(self) -> Result<Settled> {
        self.claim.settle(Settlement::Ack).await
    }

    /// Acknowledges the message and ends its recurrence: removes it. For a message that does not recur, as
    /// [`ack`](Delivery::ack).
    ///
    /// # Errors
    ///
    /// As [`Delivery::ack`].
    pub async fn end_recurrence(mut self) -> Result<Settled> {
        self.claim.end_recurrence();
        self.ack().await
    }

    /// Reports a failed attempt: the message is due again after a delay. The last attempt moves it to the dead letters:
    /// [`Settled::Dead`]. Takes a delay, or a [`Nack`] with a reason.
    ///
    /// # Errors
    ///
    /// As [`Delivery::ack`]; [`ErrorKind::InvalidArgument`] when the delay is too long. The message is then returned as
    /// if the delivery had been dropped.
    pub async fn nack(self, nack: impl Into<Nack>) -> Result<Settled> {
        let Nack { after, reason } = nack.into();
        let after = self.delay(after)?;
        self.claim.settle(Settlement::Retry { after, reason }).await
    }

    /// Rejects the message for good: moves it to the dead letters. For a [recurring](crate::queue::Recurring) message,
    /// this occurrence has failed, and the next one is scheduled.
    ///
    /// # Errors
    ///
    /// As [`Delivery::ack`].
    pub async fn bury(self, reason: Option<Reason>) -> Result<Settled> {
        self.claim.settle(Settlement::Dead { reason }).await
    }

    /// Returns the message without work: it is due again after `delay`, at once if that is zero, and the attempt is not
    /// counted.
    ///
    /// # Errors
    ///
    /// As [`Delivery::nack`].
    pub async fn give_back(self, delay: Duration) -> Result<Settled> {
        let after = self.delay(delay)?;
        self.claim.settle(Settlement::Return { after }).await
    }

    /// Parks the message while the lock is taken: it is due when its turn at the lock comes, as the driver declares by
    /// its [`Parking`](crate::driver::Parking), but no later than `at_most` from now. The attempt is not counted. The
    /// lock is then reserved for the message: [`Lock::try_acquire_for`](crate::Lock::try_acquire_for) takes it.
    ///
    /// # Errors
    ///
    /// As [`Delivery::nack`].
    pub async fn park(self, lock: &LockName, at_most: Duration) -> Result<Settled> {
        let at_most = self.delay(at_most)?;
        self.claim.settle(Settlement::Park { lock: lock.clone(), at_most }).await
    }

    /// Settles the delivery as `how` says: for a decision at run time.
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

    /// Takes the value out, for a handler; leaves an error instead.
    pub(super) fn take_value(&mut self) -> Result<T> {
        let taken = Error::new(ErrorKind::Protocol, "the value was taken");
        std::mem::replace(&mut self.value, Err(taken))
    }

    fn delay(&self, delay: Duration) -> Result<Delay> {
        let checked =
            Delay::new(delay).and_then(|delay| self.claim.fetcher.remote.caps.check_delay(delay).map(|()| delay));
        checked.map_err(|error| self.claim.fetcher.remote.during(error, "settle"))
    }
}

/// A failed attempt: the time until the message is due again, and a reason that is kept with it. The argument of
/// [`Delivery::nack`]; a [`Duration`] alone is one without a reason.
///
/// ```
/// # use std::time::Duration;
/// # use tenure_core::queue::{Delivery, Nack, Reason};
/// # async fn example(delivery: Delivery<String>) -> tenure_core::Result<()> {
/// let minute = Duration::from_secs(60);
/// delivery.nack(Nack::after(minute).because(Reason::new("the printer is out of paper")?)).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nack {
    after: Duration,
    reason: Option<Reason>,
}

impl Nack {
    /// Makes the message due again after this delay.
    #[must_use]
    pub const fn after(delay: Duration) -> Self {
        Self { after: delay, reason: None }
    }

    /// Adds a reason.
    #[must_use]
    pub fn because(self, reason: impl Into<Option<Reason>>) -> Self {
        Self { reason: reason.into(), ..self }
    }
}

impl From<Duration> for Nack {
    fn from(delay: Duration) -> Self {
        Self::after(delay)
    }
}

/// Returns the delay of a message after this delivery of it was dropped, 1 for the first.
fn after_drop(attempt: u32) -> Duration {
    let doubled = 2_u32.saturating_pow(attempt.saturating_sub(1));
    FIRST_PAUSE.saturating_mul(doubled).min(LONGEST_PAUSE)
}

impl<T> fmt::Debug for Delivery<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let raw = &self.claim.raw;
        f.debug_struct("Delivery")
            .field("queue", &self.claim.fetcher.remote.name)
            .field("id", &raw.id)
            .field("attempt", &raw.attempt)
            .field("fence", &raw.fence)
            .field("payload", &raw.payload)
            .finish_non_exhaustive()
    }
}
