//! The trait of operations on stored messages and whole queues, and their answers.

use std::time::Duration;

use async_trait::async_trait;

use crate::driver::{DelayQueue, MessageState};
use crate::value::error::{LockName, Result};
use crate::value::queue::{
    Attempts, ConcurrencyKey, Delay, MessageId, Payload, QueueLimits, QueueName, Reason, Recurrence,
};

/// Operations on the stored messages of a [`DelayQueue`]: to look at them, change them and remove them, and to pause
/// and limit whole queues.
///
/// Pushes and deliveries need none of these methods. A driver without this trait has working queues; its users get
/// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) from the operations.
#[async_trait]
pub trait QueueAdmin: DelayQueue {
    /// Removes a message that waits, or whose lease has ended. Its id is free again at once. Otherwise it returns the
    /// state of the message, and changes nothing.
    async fn cancel(&self, queue: &QueueName, id: &MessageId) -> Result<Cancelled>;

    /// Changes the due time of a message that waits, or whose lease has ended, to `delay` from now, sooner or later
    /// than before. Wakes watchers if it became the soonest. Otherwise it returns the state of the message, and changes
    /// nothing.
    async fn reschedule(&self, queue: &QueueName, id: &MessageId, delay: Delay) -> Result<Rescheduled>;

    /// Returns a message without changing it; `None` when it is not stored (any more).
    async fn get(&self, queue: &QueueName, id: &MessageId) -> Result<Option<MessageInfo>>;

    /// Lists messages without changing them: up to `max` of those requested, after the given place.
    ///
    /// * In the order of their due times, or of the ends of their leases; but messages whose key is in flight may come
    ///   after all others.
    /// * A message that is in the list from the first page to the last is on exactly one of them. Messages that are
    ///   added or removed meanwhile may be missing, or be listed twice.
    /// * Damaged messages are left out; a page may have fewer than `max` messages, or none, and still not be the last.
    async fn list(&self, queue: &QueueName, which: Listed, from: Option<ListPlace>, max: usize) -> Result<MessagePage>;

    /// Limits the queue's deliveries to all clients together, and replaces earlier limits; kept until it is set again,
    /// independently of clients. Wakes watchers if a message may be delivered sooner than before. May be called again.
    ///
    /// * [`in_flight`](QueueLimits::in_flight): a receive hands out as many as are missing to the limit, leases that
    ///   have ended not counted. A settlement that makes room wakes watchers if a message is due. A message that
    ///   becomes due later is not missed: [`next`](super::Received::next) names its due time even while there is no room, or
    ///   the driver wakes then.
    /// * [`rate`](QueueLimits::rate): a bucket of as many tokens as the rate has deliveries, full at first, refilled
    ///   evenly; each delivery takes one, independently of its settlement. A newly set rate begins with a full bucket.
    async fn limit(&self, queue: &QueueName, limits: &QueueLimits) -> Result<()>;

    /// Returns counts, lag and the next due time. An unused queue is empty, not an error.
    async fn stats(&self, queue: &QueueName) -> Result<QueueStats>;

    /// Stops deliveries until [`resume`](Self::resume). Settlements, extensions and pushes continue. May be called
    /// again.
    async fn pause(&self, queue: &QueueName) -> Result<()>;

    /// Ends a pause and wakes the queue's watchers. May be called again.
    async fn resume(&self, queue: &QueueName) -> Result<()>;

    /// Runs one step of a purge: removes up to `max` waiting messages, the soonest first; their ids are free again.
    /// Those in flight and the dead letters stay.
    ///
    /// * The first step has no place to continue from; each further one gets the place that the last one returned.
    /// * All messages that waited when the purge began are removed when no place is returned, whatever was settled
    ///   between two steps. A message that was in flight then, or was pushed or rescheduled since, may or may not be
    ///   removed.
    /// * A purge ends, however fast messages are pushed: a step removes messages, or continues after those that it
    ///   checked.
    async fn purge(&self, queue: &QueueName, max: usize, from: Option<PurgePlace>) -> Result<PurgeStep>;

    /// Lists the queues that hold a message, dead ones included, or are paused or limited: up to `max`, in the order of
    /// their bytes, after the given one.
    async fn list_queues(&self, after: Option<QueueName>, max: usize) -> Result<QueuePage>;

    /// Lists dead letters, those that died first in front: up to `max`, after the given place.
    async fn dead_list(&self, queue: &QueueName, after: Option<DeadPlace>, max: usize) -> Result<DeadPage>;

    /// Makes dead letters due `delay` from now, with all attempts again. Missing ones are not counted.
    async fn dead_redrive(&self, queue: &QueueName, which: &DeadSelection, delay: Delay) -> Result<Redriven>;

    /// Removes dead letters; their ids are free again. Missing ones are not counted.
    async fn dead_purge(&self, queue: &QueueName, which: &DeadSelection) -> Result<Purged>;
}

/// The answer to a cancellation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cancelled {
    /// It was waiting, and is removed: it will not be delivered.
    Removed,
    /// It is in flight. Nothing was changed.
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
    /// It is in flight. Nothing was changed.
    InFlight,
    /// It is among the dead letters. Nothing was changed.
    Dead,
    /// No such message is stored.
    NotFound,
}

/// An operator's view of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MessageInfo {
    /// The message's id.
    pub id: MessageId,
    /// Its state; never [`MessageState::Settled`].
    pub state: MessageState,
    /// The number of counted deliveries.
    pub attempt: u32,
    /// The most deliveries.
    pub attempts: Attempts,
    /// The time until it is due, or until its lease ends; zero when that is past, and for a dead letter.
    pub due_in: Duration,
    /// The time since it was pushed.
    pub age: Duration,
    /// Its content.
    pub payload: Payload,
    /// Its concurrency key.
    pub key: Option<ConcurrencyKey>,
    /// The lock that a worker should hold while it handles the message.
    pub lock: Option<LockName>,
    /// The reason why its last delivery failed.
    pub reason: Option<Reason>,
    /// The time that it may still be delivered, if it has a limit ([`NewMessage::ttl`](super::NewMessage::ttl)); zero
    /// when that is past.
    pub expires_in: Option<Duration>,
    /// The schedule of a recurring message.
    pub recurrence: Option<Recurrence>,
}

impl MessageInfo {
    /// Makes a message that was pushed now, was never delivered, and has no optional parts.
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

/// The messages to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Listed {
    /// Those that are [`Scheduled`](MessageState::Scheduled) or [`Ready`](MessageState::Ready).
    Waiting,
    /// Those that are [`InFlight`](MessageState::InFlight).
    InFlight,
}

/// A position in a listing. Opaque: valid for the driver that gave it, for the queue and the kind of messages
/// requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListPlace([u64; 3]);

impl ListPlace {
    /// Makes a place of these parts; their meaning is up to the driver.
    #[must_use]
    pub const fn new(parts: [u64; 3]) -> Self {
        Self(parts)
    }

    /// Returns the parts, as the driver gave them.
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
    /// The position of the next page; `None` when this is the last.
    pub next: Option<ListPlace>,
}

impl MessagePage {
    /// Makes a page with the position of the next one.
    #[must_use]
    pub const fn new(messages: Vec<MessageInfo>, next: Option<ListPlace>) -> Self {
        Self { messages, next }
    }
}

setters!(MessagePage {
    with_messages => messages: Vec<MessageInfo>,
    with_next => next: Option<ListPlace>,
});

/// An operator's view of a queue. Every message counts in one of the first four numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueStats {
    /// Messages that are not yet due.
    pub scheduled: u64,
    /// Messages that are due, those whose lease has ended and those whose key is busy included.
    pub ready: u64,
    /// Messages in flight.
    pub in_flight: u64,
    /// Dead letters.
    pub dead: u64,
    /// The time since the oldest ready message became due; zero when there is none.
    pub lag: Duration,
    /// The time until the soonest scheduled message is due; `None` when there is none.
    pub next_due: Option<Duration>,
    /// The state of deliveries: running or paused.
    pub flow: Flow,
    /// The limits that were set; none if there are none.
    pub limits: QueueLimits,
}

impl Default for QueueStats {
    /// Returns the stats of an unused queue.
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

/// The state of a queue's deliveries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flow {
    /// The queue hands out messages.
    Running,
    /// It hands out none until it is resumed.
    Paused,
}

/// A position in a purge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PurgePlace {
    /// The greatest number of a message present when the purge began.
    pub newest: u64,
    /// The time, as the backend counts, up to which all messages were checked.
    pub at: u64,
}

/// The answer to one step of a purge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PurgeStep {
    /// The number of removed messages.
    pub removed: u64,
    /// The position of the next step; `None` when no message is left that waited when the purge began.
    pub next: Option<PurgePlace>,
}

impl PurgeStep {
    /// Makes the answer of a step: so many were removed, and the next step continues at `next`.
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
    /// The number of removed letters.
    pub removed: u64,
    /// The rest that another call would remove.
    pub rest: Rest,
}

impl Purged {
    /// Makes the answer of a purge that removed so many.
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
    /// The number of letters that wait again.
    pub moved: u64,
    /// The rest that another call would move.
    pub rest: Rest,
}

impl Redriven {
    /// Makes the answer of a redrive that moved so many.
    #[must_use]
    pub const fn new(moved: u64, rest: Rest) -> Self {
        Self { moved, rest }
    }
}

setters!(const Redriven {
    with_moved => moved: u64,
    with_rest => rest: Rest,
});

/// The rest that a bounded step left.
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
    /// The names after them.
    pub rest: Rest,
}

impl QueuePage {
    /// Makes a page of queues.
    #[must_use]
    pub const fn new(queues: Vec<QueueName>, rest: Rest) -> Self {
        Self { queues, rest }
    }
}

setters!(QueuePage {
    with_queues => queues: Vec<QueueName>,
    with_rest => rest: Rest,
});

/// A message that is not delivered any more.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadLetter {
    /// The message's id.
    pub id: MessageId,
    /// Its place in the order of deaths.
    pub place: DeadPlace,
    /// Its content.
    pub payload: Payload,
    /// The number of counted deliveries.
    pub attempt: u32,
    /// The cause of its death.
    pub cause: DeadCause,
    /// The reason of its last settlement.
    pub reason: Option<Reason>,
    /// The time since it died.
    pub died: Duration,
}

impl DeadLetter {
    /// Makes a message that died now, was never delivered, and has no reason.
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

/// The place of a dead letter in the order of deaths, for a listing that continues after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeadPlace {
    /// The time of its death, as the backend counts.
    pub stamp: u64,
    /// The message's number: orders those that died at the same time.
    pub number: u64,
}

/// The cause of a message's death.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeadCause {
    /// All attempts were used.
    Exhausted,
    /// A worker rejected it for good.
    Rejected,
    /// It was not delivered within its [`ttl`](super::NewMessage::ttl).
    Expired,
    /// Its stored data cannot be read: a foreign client changed it, or the backend lost a part. The reason begins with
    /// `damaged: `; the readable parts are kept, the payload up to [`Payload::MAX_LEN`].
    Damaged,
}

/// A page of dead letters.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadPage {
    /// The letters, those that died first in front.
    pub letters: Vec<DeadLetter>,
    /// The letters after them.
    pub rest: Rest,
}

impl DeadPage {
    /// Makes a page of dead letters.
    #[must_use]
    pub const fn new(letters: Vec<DeadLetter>, rest: Rest) -> Self {
        Self { letters, rest }
    }
}

setters!(DeadPage {
    with_letters => letters: Vec<DeadLetter>,
    with_rest => rest: Rest,
});

/// The choice of dead letters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeadSelection {
    /// These, up to the driver's batch.
    Ids(Vec<MessageId>),
    /// Those that died first, up to this many.
    Oldest(usize),
}

#[cfg(feature = "mock")]
pub(crate) mod mock {
    use super::{
        Cancelled, DeadPage, DeadPlace, DeadSelection, Delay, DelayQueue, ListPlace, Listed, MessageId, MessageInfo,
        MessagePage, PurgePlace, PurgeStep, Purged, QueueAdmin, QueueLimits, QueueName, QueuePage, QueueStats,
        Redriven, Rescheduled, Result, async_trait,
    };
    use crate::driver::{
        Exchanged, Extended, Extension, LockTurn, NewMessage, Pushed, QueueCapabilities, ReceiveRequest, Settle,
        TurnGiven, Watch,
    };

    mockall::mock! {
        /// A mock of [`QueueAdmin`].
        #[derive(Debug)]
        pub QueueAdmin {}

        #[async_trait]
        impl DelayQueue for QueueAdmin {
            fn capabilities(&self) -> QueueCapabilities;
            async fn push(&self, queue: &QueueName, messages: &[NewMessage]) -> Result<Vec<Pushed>>;
            async fn exchange(&self, settles: &[Settle], request: &ReceiveRequest) -> Result<Exchanged>;
            async fn extend(&self, queue: &QueueName, extensions: &[Extension]) -> Result<Vec<Extended>>;
            async fn give_turn(&self, queue: &QueueName, id: &MessageId, turn: &LockTurn) -> Result<TurnGiven>;
            async fn watch(&self, queue: &QueueName) -> Result<Watch>;
        }

        #[async_trait]
        impl QueueAdmin for QueueAdmin {
            async fn cancel(&self, queue: &QueueName, id: &MessageId) -> Result<Cancelled>;
            async fn reschedule(&self, queue: &QueueName, id: &MessageId, delay: Delay) -> Result<Rescheduled>;
            async fn get(&self, queue: &QueueName, id: &MessageId) -> Result<Option<MessageInfo>>;
            async fn list(&self, queue: &QueueName, which: Listed, from: Option<ListPlace>, max: usize) -> Result<MessagePage>;
            async fn limit(&self, queue: &QueueName, limits: &QueueLimits) -> Result<()>;
            async fn stats(&self, queue: &QueueName) -> Result<QueueStats>;
            async fn pause(&self, queue: &QueueName) -> Result<()>;
            async fn resume(&self, queue: &QueueName) -> Result<()>;
            async fn purge(&self, queue: &QueueName, max: usize, from: Option<PurgePlace>) -> Result<PurgeStep>;
            async fn list_queues(&self, after: Option<QueueName>, max: usize) -> Result<QueuePage>;
            async fn dead_list(&self, queue: &QueueName, after: Option<DeadPlace>, max: usize) -> Result<DeadPage>;
            async fn dead_redrive(&self, queue: &QueueName, which: &DeadSelection, delay: Delay) -> Result<Redriven>;
            async fn dead_purge(&self, queue: &QueueName, which: &DeadSelection) -> Result<Purged>;
        }
    }
}
