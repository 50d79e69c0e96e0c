//! One message, and where it stands.

use std::time::Duration;

use tenure_core::LockName;
use tenure_core::driver::{
    Attempts, Cause, DeadCause, LockTurn, MessageInfo, MessageState, NamedId, NewMessage, Payload, Receipt,
};
use tenure_core::queue::{ConcurrencyKey, MessageId, Reason, Recurrence};

/// An instant of the queue's clock: nanoseconds since the store was first used.
pub(crate) type Nanos = u64;

/// A place in an ordered set: when, then in which order of arrival.
pub(crate) type At = (Nanos, u64);

/// Which set a message is in, and under which time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Until it is due.
    Waiting(Nanos),
    /// Due, but found with its key in flight.
    Held(Nanos),
    /// Until its lease ends.
    Leased(Nanos),
    /// Since it died.
    Dead(Nanos),
}

impl Place {
    pub(crate) fn is_dead(self) -> bool {
        matches!(self, Self::Dead(_))
    }
}

#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) named: Option<NamedId>,
    pub(crate) payload: Payload,
    pub(crate) pushed: Nanos,
    pub(crate) place: Place,
    /// Deliveries counted.
    pub(crate) attempt: u32,
    pub(crate) attempts: Attempts,
    /// Why the next delivery will happen.
    pub(crate) cause: Cause,
    /// Of the last delivery; zero before the first.
    pub(crate) fence: u64,
    pub(crate) key: Option<ConcurrencyKey>,
    pub(crate) lock: Option<LockName>,
    /// The hold that it was given since it was parked.
    pub(crate) turn: Option<LockTurn>,
    pub(crate) reason: Option<Reason>,
    /// Until when it may be delivered.
    pub(crate) expires: Option<Nanos>,
    pub(crate) recurrence: Option<Recurrence>,
    /// Set when it is, or should be, among the dead letters.
    pub(crate) doomed: Option<DeadCause>,
}

impl Slot {
    pub(crate) fn new(now: Nanos, message: &NewMessage) -> Self {
        Self {
            named: message.id.clone(),
            payload: message.payload.clone(),
            pushed: now,
            place: Place::Waiting(now),
            attempt: 0,
            attempts: message.attempts,
            cause: Cause::First,
            fence: 0,
            key: message.key.clone(),
            lock: message.lock.clone(),
            turn: None,
            reason: None,
            expires: None,
            recurrence: message.recurrence.clone(),
            doomed: None,
        }
    }

    pub(crate) fn id(&self, number: u64) -> MessageId {
        self.named.as_ref().map_or_else(|| MessageId::assigned(number), |named| named.id.clone())
    }

    pub(crate) fn state(&self, now: Nanos) -> MessageState {
        match self.place {
            Place::Waiting(due) if due > now => MessageState::Scheduled,
            Place::Leased(until) if until > now => MessageState::InFlight,
            Place::Waiting(_) | Place::Held(_) | Place::Leased(_) => MessageState::Ready,
            Place::Dead(_) => MessageState::Dead,
        }
    }

    /// Why it must not be delivered again, if so.
    pub(crate) fn doom(&self) -> Option<DeadCause> {
        self.doomed.or((self.attempt >= self.attempts.get()).then_some(DeadCause::Exhausted))
    }

    /// Whether its time to be delivered is over.
    pub(crate) fn is_expired(&self, now: Nanos) -> bool {
        self.expires.is_some_and(|until| until < now)
    }

    /// Whether the receipt is of the last delivery, and that is not settled.
    pub(crate) fn is_delivered_as(&self, receipt: Receipt) -> bool {
        matches!(self.place, Place::Leased(_)) && self.fence == receipt.parts()[1]
    }

    pub(crate) fn info(&self, number: u64, now: Nanos) -> MessageInfo {
        let (Place::Waiting(at) | Place::Held(at) | Place::Leased(at) | Place::Dead(at)) = self.place;
        MessageInfo {
            id: self.id(number),
            state: self.state(now),
            attempt: self.attempt,
            attempts: self.attempts,
            due_in: span(now, at),
            age: span(self.pushed, now),
            payload: self.payload.clone(),
            key: self.key.clone(),
            lock: self.lock.clone(),
            reason: self.reason.clone(),
            expires_in: self.expires.map(|until| span(now, until)),
            recurrence: self.recurrence.clone(),
        }
    }
}

/// From `earlier` to `later`; zero if it is not later.
pub(crate) fn span(earlier: Nanos, later: Nanos) -> Duration {
    Duration::from_nanos(later.saturating_sub(earlier))
}

/// `span` after `now`.
pub(crate) fn after(now: Nanos, span: Duration) -> Nanos {
    now.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
}
