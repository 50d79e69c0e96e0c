//! One message, its place in the queue, and the queue's clock.

use std::time::Duration;

use crate::driver::{
    Cause, DeadCause, DeadLetter, DeadPlace, Due, Lifecycle, LockTurn, MessageInfo, MessageState, NamedId, NewMessage,
    RawDelivery, Receipt,
};
use crate::value::error::LockName;
use crate::value::queue::{ConcurrencyKey, MessageId, Payload};
use crate::value::token::FencingToken;

/// An instant of a queue's clock, in ticks.
pub type Moment = u64;

/// The time of one request: an instant, and the length of a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    now: Moment,
    /// In nanoseconds.
    tick: u64,
}

impl Clock {
    /// Makes the clock of a request at this instant. A tick is a microsecond or less, and at least a nanosecond.
    #[must_use]
    pub fn new(now: Moment, tick: Duration) -> Self {
        Self { now, tick: u64::from(tick.subsec_nanos()).max(1) }
    }

    /// Returns the instant of the request.
    #[must_use]
    pub const fn now(&self) -> Moment {
        self.now
    }

    /// Returns the instant that is a span after now. A fraction of a tick is dropped.
    #[must_use]
    pub fn after(&self, span: Duration) -> Moment {
        later(self.now, self.ticks(span))
    }

    /// Returns the length of a tick.
    #[must_use]
    pub const fn tick(&self) -> Duration {
        Duration::from_nanos(self.tick)
    }

    /// Returns the time from now until an instant; zero if that has passed.
    #[must_use]
    pub const fn until(&self, at: Moment) -> Duration {
        self.span(at.saturating_sub(self.now))
    }

    /// Returns the time since an instant; zero if that is still to come.
    #[must_use]
    pub const fn since(&self, at: Moment) -> Duration {
        self.span(self.now.saturating_sub(at))
    }

    const fn span(&self, ticks: u64) -> Duration {
        Duration::from_nanos(ticks.saturating_mul(self.tick))
    }

    fn ticks(&self, span: Duration) -> u64 {
        u64::try_from(span.as_nanos()).unwrap_or(u64::MAX) / self.tick
    }
}

/// A sum that ends at the last instant.
const fn later(at: Moment, ticks: u64) -> Moment {
    at.saturating_add(ticks)
}

/// One of the lines that a message can be in. The numbers may be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Line {
    /// Until it is due.
    Waiting = 0,
    /// Due, but found with its key in flight.
    Held = 1,
    /// Until its lease ends.
    Leased = 2,
    /// Since it died.
    Dead = 3,
}

impl Line {
    /// All lines, by their numbers.
    pub const ALL: [Self; 4] = [Self::Waiting, Self::Held, Self::Leased, Self::Dead];
}

/// The place of a message: a line, and the time in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The line.
    pub line: Line,
    /// The time by which it is ordered there.
    pub at: Moment,
}

impl Place {
    /// Makes a place.
    #[must_use]
    pub const fn new(line: Line, at: Moment) -> Self {
        Self { line, at }
    }

    /// Returns the state of a message that is there.
    #[must_use]
    pub const fn state(&self, now: Moment) -> MessageState {
        match self.line {
            Line::Waiting if self.at > now => MessageState::Scheduled,
            Line::Leased if self.at > now => MessageState::InFlight,
            Line::Waiting | Line::Held | Line::Leased => MessageState::Ready,
            Line::Dead => MessageState::Dead,
        }
    }
}

/// A stored message.
#[derive(Clone, Debug)]
pub struct Message {
    /// Its number: messages that are due at the same time are delivered in this order. Zero before it is stored.
    pub number: u64,
    /// Its place.
    pub place: Place,
    /// The caller's name for it.
    pub named: Option<NamedId>,
    /// Its content.
    pub payload: Payload,
    /// The time of its push.
    pub pushed: Moment,
    /// Its attempts, and what decides its next delivery.
    pub life: Lifecycle<Moment>,
    /// The fence of the last delivery; zero before the first.
    pub fence: u64,
    /// Its concurrency key.
    pub key: Option<ConcurrencyKey>,
    /// The lock that a worker should hold while it handles the message.
    pub lock: Option<LockName>,
    /// The hold that it was given since it was parked.
    pub turn: Option<LockTurn>,
}

impl Message {
    /// Makes a message that is pushed now.
    #[must_use]
    pub fn new(clock: &Clock, message: &NewMessage) -> Self {
        let (Due::After(delay) | Due::Parked { at_most: delay }) = message.due;
        let due = clock.after(delay.get());
        let expires = message.ttl.map(|ttl| later(due, clock.ticks(ttl.get())));
        Self {
            number: 0,
            place: Place::new(Line::Waiting, due),
            named: message.id.clone(),
            payload: message.payload.clone(),
            pushed: clock.now,
            life: Lifecycle::new(message, expires),
            fence: 0,
            key: message.key.clone(),
            lock: message.lock.clone(),
            turn: None,
        }
    }

    /// Returns the id by which it is known.
    #[must_use]
    pub fn id(&self) -> MessageId {
        self.named.as_ref().map_or_else(|| MessageId::assigned(self.number), |named| named.id.clone())
    }

    /// Returns true if the receipt is that of the last delivery, and the delivery is not settled.
    pub(super) fn is_delivered_as(&self, receipt: Receipt) -> bool {
        self.place.line == Line::Leased && receipt == self.receipt()
    }

    fn receipt(&self) -> Receipt {
        Receipt::new([self.number, self.fence, 0])
    }

    /// Returns its delivery, which counts as late since the instant `due`.
    pub(super) fn delivery(
        &self,
        clock: &Clock,
        fence: FencingToken,
        due: Moment,
        cause: Cause,
        turn: Option<LockTurn>,
    ) -> RawDelivery {
        RawDelivery::new(self.id(), self.payload.clone(), fence, self.receipt())
            .with_attempt(self.life.attempt)
            .with_attempts(self.life.attempts)
            .with_cause(cause)
            .with_late(clock.since(due))
            .with_age(clock.since(self.pushed))
            .with_key(self.key.clone())
            .with_lock(self.lock.clone())
            .with_turn(turn)
            .with_reason(self.life.reason.clone())
            .with_recurrence(self.life.recurrence.clone())
    }

    /// Returns an operator's view of it.
    pub(super) fn info(&self, clock: &Clock) -> MessageInfo {
        MessageInfo::new(self.id(), self.place.state(clock.now), self.payload.clone())
            .with_attempt(self.life.attempt)
            .with_attempts(self.life.attempts)
            .with_due_in(clock.until(self.place.at))
            .with_age(clock.since(self.pushed))
            .with_key(self.key.clone())
            .with_lock(self.lock.clone())
            .with_reason(self.life.reason.clone())
            .with_expires_in(self.life.expires.map(|until| clock.until(until)))
            .with_recurrence(self.life.recurrence.clone())
    }

    /// Returns it as a dead letter that died now.
    #[must_use]
    pub fn letter(&self, place: DeadPlace) -> DeadLetter {
        let cause = self.life.doomed.unwrap_or(DeadCause::Exhausted);
        DeadLetter::new(self.id(), place, self.payload.clone(), cause)
            .with_attempt(self.life.attempt)
            .with_reason(self.life.reason.clone())
    }
}
