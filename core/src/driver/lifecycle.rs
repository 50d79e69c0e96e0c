//! The rule of a message's life, for drivers that decide in Rust.

use std::time::Duration;

use super::{Cause, DeadCause, Due, NamedId, NewMessage, Settlement};
use crate::value::limits::{Attempts, Delay};
use crate::value::queue_name::{Reason, Recurrence};

/// What deliveries and settlements change of a message: how often it was delivered, why it is delivered next, and why it
/// must not be delivered any more.
///
/// The rule of settlements stands here once, as a function without a clock and without a store. Where a message is kept, by
/// which clock it is due, and how much room the dead letters have is the driver's business. `T` is an instant of that clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lifecycle<T> {
    /// How many deliveries were counted.
    pub attempt: u32,
    /// How many there may be.
    pub attempts: Attempts,
    /// Why the next delivery will happen, unless the lease of the last one ends.
    pub cause: Cause,
    /// What the last failure said about why.
    pub reason: Option<Reason>,
    /// On which schedule it comes again.
    pub recurrence: Option<Recurrence>,
    /// The last instant at which it may be delivered.
    pub expires: Option<T>,
    /// Set when it is, or should be, among the dead letters.
    pub doomed: Option<DeadCause>,
}

/// What becomes of a message that was settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is removed; its id stays known for [`NamedId::known_for`].
    Removed,
    /// It waits, and is due after the delay.
    Waits(Delay),
    /// It moves to the dead letters; if they are full, it waits for [`POSTPONED`].
    Dies(DeadCause),
}

/// How long a message waits that should be dead and finds the dead letters full.
pub const POSTPONED: Duration = Duration::from_secs(60);

impl<T: Copy + Ord> Lifecycle<T> {
    /// Of a message that is pushed, and may be delivered until `expires`.
    #[must_use]
    pub fn new(message: &NewMessage, expires: Option<T>) -> Self {
        let cause = match message.due {
            Due::After(_) => Cause::First,
            Due::Parked { .. } => Cause::Parked,
        };
        let recurrence = message.recurrence.clone();
        Self { attempt: 0, attempts: message.attempts, cause, reason: None, recurrence, expires, doomed: None }
    }

    /// Why it must not be delivered again, if so, whatever the time.
    #[must_use]
    pub fn doom(&self) -> Option<DeadCause> {
        self.doomed.or((self.attempt >= self.attempts.get()).then_some(DeadCause::Exhausted))
    }

    /// Why it must not be delivered now, if so.
    #[must_use]
    pub fn doom_at(&self, now: T) -> Option<DeadCause> {
        self.doom().or(self.expires.is_some_and(|until| until < now).then_some(DeadCause::Expired))
    }

    /// Settles a delivery; the caller has seen that the receipt is valid.
    pub fn settle(&mut self, how: &Settlement) -> Fate {
        match how {
            Settlement::Ack => Fate::Removed,
            Settlement::Dead { reason } => {
                self.reason.clone_from(reason);
                Fate::Dies(DeadCause::Rejected)
            }
            Settlement::Retry { after, reason } => {
                self.reason.clone_from(reason);
                self.cause = Cause::Retried;
                self.doom().map_or(Fate::Waits(*after), Fate::Dies)
            }
            Settlement::Return { after } => {
                self.uncount(Cause::Returned);
                Fate::Waits(*after)
            }
            Settlement::Park { at_most, .. } => {
                self.uncount(Cause::Parked);
                Fate::Waits(*at_most)
            }
            Settlement::Recur { after, recurrence, reason } => {
                self.begin_anew(Cause::First);
                self.recurrence = Some(recurrence.clone());
                self.reason.clone_from(reason);
                Fate::Waits(*after)
            }
        }
    }

    /// An operator brings it back from the dead letters.
    pub fn redrive(&mut self) {
        self.begin_anew(Cause::Redriven);
        self.doomed = None;
    }

    fn uncount(&mut self, cause: Cause) {
        self.attempt = self.attempt.saturating_sub(1);
        self.cause = cause;
    }

    fn begin_anew(&mut self, cause: Cause) {
        self.attempt = 0;
        self.expires = None;
        self.cause = cause;
    }
}

impl NamedId {
    /// For how long the name of a message stays known that was acknowledged; `None` if it is free at once.
    #[must_use]
    pub fn known_for(&self) -> Option<Duration> {
        Some(self.window.get()).filter(|window| !window.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::limits::Payload;

    fn delivered(attempt: u32, attempts: u32) -> Lifecycle<u64> {
        let mut message = NewMessage::new(Payload::new(*b"").unwrap());
        message.attempts = Attempts::new(attempts).unwrap();
        let mut life = Lifecycle::new(&message, Some(100));
        life.attempt = attempt;
        life
    }

    fn after(millis: u64) -> Delay {
        Delay::new(Duration::from_millis(millis)).unwrap()
    }

    fn why() -> Option<Reason> {
        Some(Reason::new("why").unwrap())
    }

    #[test]
    fn each_settlement_has_its_fate_and_changes_what_it_says() {
        let kept = delivered(2, 3);
        let recurrence = Recurrence::new("every day").unwrap();
        let lock = crate::LockName::new("lock").unwrap();
        let table = [
            (Settlement::Ack, Fate::Removed, kept.clone()),
            (
                Settlement::Dead { reason: why() },
                Fate::Dies(DeadCause::Rejected),
                Lifecycle { reason: why(), ..kept.clone() },
            ),
            (
                Settlement::Retry { after: after(7), reason: why() },
                Fate::Waits(after(7)),
                Lifecycle { reason: why(), cause: Cause::Retried, ..kept.clone() },
            ),
            (
                Settlement::Return { after: after(8) },
                Fate::Waits(after(8)),
                Lifecycle { attempt: 1, cause: Cause::Returned, ..kept.clone() },
            ),
            (
                Settlement::Park { lock, at_most: after(9) },
                Fate::Waits(after(9)),
                Lifecycle { attempt: 1, cause: Cause::Parked, ..kept.clone() },
            ),
            (
                Settlement::Recur { after: after(10), recurrence: recurrence.clone(), reason: why() },
                Fate::Waits(after(10)),
                Lifecycle { attempt: 0, expires: None, reason: why(), recurrence: Some(recurrence), ..kept.clone() },
            ),
        ];
        for (how, fate, then) in table {
            let mut life = kept.clone();
            assert_eq!(life.settle(&how), fate, "{how:?}");
            assert_eq!(life, then, "{how:?}");
        }
    }

    #[test]
    fn the_last_attempt_dies_of_a_retry_and_of_nothing_else_that_waits() {
        let mut last = delivered(3, 3);
        let retry = Settlement::Retry { after: after(7), reason: why() };
        assert_eq!(last.settle(&retry), Fate::Dies(DeadCause::Exhausted));
        assert_eq!((last.reason.clone(), last.cause), (why(), Cause::Retried));
        let mut returned = delivered(3, 3);
        assert_eq!(returned.settle(&Settlement::Return { after: Delay::ZERO }), Fate::Waits(Delay::ZERO));
        assert_eq!((returned.attempt, returned.doom()), (2, None));
    }

    #[test]
    fn what_must_not_be_delivered_and_why() {
        let (fresh, exhausted) = (delivered(0, 1), delivered(1, 1));
        assert_eq!((fresh.doom(), fresh.doom_at(100), fresh.doom_at(101)), (None, None, Some(DeadCause::Expired)));
        assert_eq!(exhausted.doom_at(101), Some(DeadCause::Exhausted), "that came first");
        let mut rejected = Lifecycle { doomed: Some(DeadCause::Rejected), ..exhausted };
        assert_eq!(rejected.doom_at(101), Some(DeadCause::Rejected));
        rejected.reason = why();
        rejected.redrive();
        let redriven = Lifecycle { cause: Cause::Redriven, reason: why(), expires: None, ..fresh };
        assert_eq!(rejected, redriven);
    }

    #[test]
    fn a_parked_push_says_so_and_a_name_without_a_window_is_free_at_once() {
        let mut message = NewMessage::new(Payload::new(*b"").unwrap());
        message.due = Due::Parked { at_most: after(1) };
        assert_eq!(Lifecycle::<u64>::new(&message, None).cause, Cause::Parked);
        let id = crate::queue::MessageId::named("a").unwrap();
        let named = |window| NamedId { id: id.clone(), window };
        assert_eq!(named(Delay::ZERO).known_for(), None);
        assert_eq!(named(after(5)).known_for(), Some(Duration::from_millis(5)));
    }
}
