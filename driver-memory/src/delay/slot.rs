//! One message, and where it stands.

use std::time::Duration;

use tenure_core::LockName;
use tenure_core::driver::{Due, Lifecycle, LockTurn, MessageInfo, MessageState, NamedId, NewMessage, Payload, Receipt};
use tenure_core::queue::{ConcurrencyKey, MessageId};

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
    pub(crate) fn at(self) -> Nanos {
        let (Self::Waiting(at) | Self::Held(at) | Self::Leased(at) | Self::Dead(at)) = self;
        at
    }

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
    pub(crate) life: Lifecycle<Nanos>,
    /// Of the last delivery; zero before the first.
    pub(crate) fence: u64,
    pub(crate) key: Option<ConcurrencyKey>,
    pub(crate) lock: Option<LockName>,
    /// The hold that it was given since it was parked.
    pub(crate) turn: Option<LockTurn>,
}

impl Slot {
    /// Of a message that is pushed now.
    pub(crate) fn new(now: Nanos, message: &NewMessage) -> Self {
        let (Due::After(delay) | Due::Parked { at_most: delay }) = message.due;
        let due = after(now, delay.get());
        let expires = message.ttl.map(|ttl| after(due, ttl.get()));
        Self {
            named: message.id.clone(),
            payload: message.payload.clone(),
            pushed: now,
            place: Place::Waiting(due),
            life: Lifecycle::new(message, expires),
            fence: 0,
            key: message.key.clone(),
            lock: message.lock.clone(),
            turn: None,
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

    /// Whether the receipt is of the last delivery, and that is not settled.
    pub(crate) fn is_delivered_as(&self, receipt: Receipt) -> bool {
        matches!(self.place, Place::Leased(_)) && self.fence == receipt.parts()[1]
    }

    pub(crate) fn info(&self, number: u64, now: Nanos) -> MessageInfo {
        MessageInfo::new(self.id(number), self.state(now), self.payload.clone())
            .with_attempt(self.life.attempt)
            .with_attempts(self.life.attempts)
            .with_due_in(span(now, self.place.at()))
            .with_age(span(self.pushed, now))
            .with_key(self.key.clone())
            .with_lock(self.lock.clone())
            .with_reason(self.life.reason.clone())
            .with_expires_in(self.life.expires.map(|until| span(now, until)))
            .with_recurrence(self.life.recurrence.clone())
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
