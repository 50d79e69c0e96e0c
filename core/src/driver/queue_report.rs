//! What an operator asks of a queue, and what a driver may answer.

use std::time::Duration;

use crate::value::limits::{Attempts, Payload, QueueLimits};
use crate::value::name::LockName;
use crate::value::queue_name::{ConcurrencyKey, MessageId, QueueName, Reason, Recurrence};

use super::MessageState;

/// The answer to a cancellation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cancelled {
    /// It was waiting, and is removed: it will not be delivered.
    Removed,
    /// It is being worked on. Nothing was changed.
    InFlight,
    /// It is among the dead letters. Nothing was changed.
    Dead,
    /// No such message is stored.
    NotFound,
}

/// The answer to a change of the due time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rescheduled {
    /// It was waiting, and is due at the new time.
    Moved,
    /// It is being worked on. Nothing was changed.
    InFlight,
    /// It is among the dead letters. Nothing was changed.
    Dead,
    /// No such message is stored.
    NotFound,
}

/// What can be seen of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MessageInfo {
    /// By what it is known.
    pub id: MessageId,
    /// Where it stands; never [`MessageState::Settled`].
    pub state: MessageState,
    /// How many deliveries were counted.
    pub attempt: u32,
    /// How many there may be.
    pub attempts: Attempts,
    /// How long until it is due, or until its lease ends; zero when that is past, and for a dead letter.
    pub due_in: Duration,
    /// How long ago it was pushed.
    pub age: Duration,
    /// What it carries.
    pub payload: Payload,
    /// Its concurrency key.
    pub key: Option<ConcurrencyKey>,
    /// The lock that a worker should hold while it handles the message.
    pub lock: Option<LockName>,
    /// Why its last delivery failed.
    pub reason: Option<Reason>,
    /// How long it may still be delivered, if it has an end ([`NewMessage::ttl`](super::NewMessage::ttl)); zero when that
    /// is past.
    pub expires_in: Option<Duration>,
    /// On which schedule it comes again.
    pub recurrence: Option<Recurrence>,
}

impl MessageInfo {
    /// A message that was pushed now, was never delivered, and has all that is optional left out.
    #[must_use]
    pub const fn new(id: MessageId, state: MessageState, payload: Payload) -> Self {
        Self {
            id,
            state,
            payload,
            attempt: 0,
            attempts: Attempts::DEFAULT,
            due_in: Duration::ZERO,
            age: Duration::ZERO,
            key: None,
            lock: None,
            reason: None,
            expires_in: None,
            recurrence: None,
        }
    }
}

setters!(MessageInfo {
    with_id => id: MessageId,
    with_state => state: MessageState,
    with_attempt => attempt: u32,
    with_attempts => attempts: Attempts,
    with_due_in => due_in: Duration,
    with_age => age: Duration,
    with_payload => payload: Payload,
    with_key => key: Option<ConcurrencyKey>,
    with_lock => lock: Option<LockName>,
    with_reason => reason: Option<Reason>,
    with_expires_in => expires_in: Option<Duration>,
    with_recurrence => recurrence: Option<Recurrence>,
});

/// Which messages are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Listed {
    /// Those that are [`Scheduled`](MessageState::Scheduled) or [`Ready`](MessageState::Ready).
    Waiting,
    /// Those that are [`InFlight`](MessageState::InFlight).
    InFlight,
}

/// Where a listing goes on. Opaque: of the driver that gave it, of the queue and the kind of messages that were asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListPlace([u64; 3]);

impl ListPlace {
    /// A place of these parts; what they mean is the driver's business.
    #[must_use]
    pub const fn new(parts: [u64; 3]) -> Self {
        Self(parts)
    }

    /// The parts, as the driver gave them.
    #[must_use]
    pub const fn parts(&self) -> [u64; 3] {
        self.0
    }
}

/// A page of messages.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MessagePage {
    /// The messages.
    pub messages: Vec<MessageInfo>,
    /// Where the next page begins; `None` when this is the last.
    pub next: Option<ListPlace>,
}

impl MessagePage {
    /// A page, and where the next one begins.
    #[must_use]
    pub const fn new(messages: Vec<MessageInfo>, next: Option<ListPlace>) -> Self {
        Self { messages, next }
    }
}

setters!(MessagePage {
    with_messages => messages: Vec<MessageInfo>,
    with_next => next: Option<ListPlace>,
});

/// What can be seen of a queue. Every message counts in one of the first four numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueStats {
    /// Messages that are not yet due.
    pub scheduled: u64,
    /// Messages that are due, those whose lease has ended and those whose key is busy included.
    pub ready: u64,
    /// Messages that are being worked on.
    pub in_flight: u64,
    /// Dead letters.
    pub dead: u64,
    /// How long ago the oldest ready message became due; zero when there is none.
    pub lag: Duration,
    /// How long until the soonest scheduled message is due; `None` when there is none.
    pub next_due: Option<Duration>,
    /// Whether messages are handed out.
    pub flow: Flow,
    /// The limits that were set; none if there are none.
    pub limits: QueueLimits,
}

impl Default for QueueStats {
    /// Those of a queue that nobody has used.
    fn default() -> Self {
        Self {
            scheduled: 0,
            ready: 0,
            in_flight: 0,
            dead: 0,
            lag: Duration::ZERO,
            next_due: None,
            flow: Flow::Running,
            limits: QueueLimits::default(),
        }
    }
}

setters!(const QueueStats {
    with_scheduled => scheduled: u64,
    with_ready => ready: u64,
    with_in_flight => in_flight: u64,
    with_dead => dead: u64,
    with_lag => lag: Duration,
    with_next_due => next_due: Option<Duration>,
    with_flow => flow: Flow,
    with_limits => limits: QueueLimits,
});

/// Whether a queue hands out messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flow {
    /// It does.
    Running,
    /// Not until it is resumed.
    Paused,
}

/// Where a purge goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PurgePlace {
    /// No message with a greater number was there when the purge began.
    pub newest: u64,
    /// Up to which time, as the backend counts, all messages were looked at.
    pub at: u64,
}

/// The answer to one step of a purge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PurgeStep {
    /// How many were removed.
    pub removed: u64,
    /// Where the next step goes on; `None` when nothing is left that waited when the purge began.
    pub next: Option<PurgePlace>,
}

impl PurgeStep {
    /// So many were removed; the next step goes on there.
    #[must_use]
    pub const fn new(removed: u64, next: Option<PurgePlace>) -> Self {
        Self { removed, next }
    }
}

setters!(const PurgeStep {
    with_removed => removed: u64,
    with_next => next: Option<PurgePlace>,
});

/// The answer to a removal of dead letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Purged {
    /// How many were removed.
    pub removed: u64,
    /// Whether calling again would remove more.
    pub rest: Rest,
}

impl Purged {
    /// So many were removed.
    #[must_use]
    pub const fn new(removed: u64, rest: Rest) -> Self {
        Self { removed, rest }
    }
}

setters!(const Purged {
    with_removed => removed: u64,
    with_rest => rest: Rest,
});

/// The answer to a redrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Redriven {
    /// How many are waiting again.
    pub moved: u64,
    /// Whether calling again would move more.
    pub rest: Rest,
}

impl Redriven {
    /// So many were moved.
    #[must_use]
    pub const fn new(moved: u64, rest: Rest) -> Self {
        Self { moved, rest }
    }
}

setters!(const Redriven {
    with_moved => moved: u64,
    with_rest => rest: Rest,
});

/// Whether a bounded step left something to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rest {
    /// Nothing is left.
    None,
    /// There is more.
    More,
}

/// A page of queue names.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueuePage {
    /// The names, in the order of their bytes.
    pub queues: Vec<QueueName>,
    /// Whether there are more after them.
    pub rest: Rest,
}

impl QueuePage {
    /// A page of queues.
    #[must_use]
    pub const fn new(queues: Vec<QueueName>, rest: Rest) -> Self {
        Self { queues, rest }
    }
}

setters!(QueuePage {
    with_queues => queues: Vec<QueueName>,
    with_rest => rest: Rest,
});

/// A message that is delivered no more.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadLetter {
    /// By what it is known.
    pub id: MessageId,
    /// Its place in the order of deaths.
    pub place: DeadPlace,
    /// What it carries.
    pub payload: Payload,
    /// How many deliveries were counted.
    pub attempt: u32,
    /// Why it is here.
    pub cause: DeadCause,
    /// What its last settlement said.
    pub reason: Option<Reason>,
    /// How long ago it died.
    pub died: Duration,
}

impl DeadLetter {
    /// A message that died now, was never delivered, and of whose failure nothing is known.
    #[must_use]
    pub const fn new(id: MessageId, place: DeadPlace, payload: Payload, cause: DeadCause) -> Self {
        Self { id, place, payload, cause, attempt: 0, reason: None, died: Duration::ZERO }
    }
}

setters!(DeadLetter {
    with_id => id: MessageId,
    with_place => place: DeadPlace,
    with_payload => payload: Payload,
    with_attempt => attempt: u32,
    with_cause => cause: DeadCause,
    with_reason => reason: Option<Reason>,
    with_died => died: Duration,
});

/// The place of a dead letter in the order of deaths, for a listing that goes on behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeadPlace {
    /// When it died, as the backend counts.
    pub stamp: u64,
    /// The message's number: orders those that died at the same time.
    pub number: u64,
}

/// Why a message is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeadCause {
    /// All attempts were used.
    Exhausted,
    /// A worker said that it will never succeed.
    Rejected,
    /// It was not delivered within its [`ttl`](super::NewMessage::ttl).
    Expired,
    /// What is stored of it cannot be read: a foreign hand changed it, or the backend lost a part. The reason begins with
    /// `damaged: `; what can be read is kept, the payload up to [`Payload::MAX_LEN`].
    Damaged,
}

/// A page of dead letters.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadPage {
    /// The letters, those that died first in front.
    pub letters: Vec<DeadLetter>,
    /// Whether there are more after them.
    pub rest: Rest,
}

impl DeadPage {
    /// A page of dead letters.
    #[must_use]
    pub const fn new(letters: Vec<DeadLetter>, rest: Rest) -> Self {
        Self { letters, rest }
    }
}

setters!(DeadPage {
    with_letters => letters: Vec<DeadLetter>,
    with_rest => rest: Rest,
});

/// Which dead letters are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeadSelection {
    /// These, up to the driver's batch.
    Ids(Vec<MessageId>),
    /// Those that died first, up to this many.
    Oldest(usize),
}
