//! The trait behind delay queues, and what operators are told of them.

use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;

use crate::driver::{
    Exchanged, Extended, Extension, LockTurn, MessageState, NewMessage, Pushed, QueueCapabilities, ReceiveRequest,
    Received, Settle, Settled, TurnGiven, Watch,
};
use crate::value::error::{LockName, Result};
use crate::value::queue::{
    Attempts, ConcurrencyKey, Delay, Lease, MessageId, Payload, QueueLimits, QueueName, Reason, Recurrence,
};

/// Delay queues of one backend. The rules that all methods share are in the [module's documentation](super).
///
/// **A message** is `Scheduled` until it is due, then `Ready` (which is not stored: it is "due ≤ the queue's clock"),
/// then `InFlight` for the length of a lease. A settlement removes it, schedules it again, or moves it to the dead
/// letters. A lease that ends makes the message due again: its place is the lease's end.
///
/// **No background role.** Whatever must be repaired (leases that ended, messages without attempts left, orphans of a
/// crash) is repaired by [`exchange`](Self::exchange), a bounded number in each call.
///
/// **Time** is the backend's alone; requests and answers carry spans, never instants. A backend that has no clock of
/// its own declares the error of the one it uses ([`clock_error`](QueueCapabilities::clock_error)). The queue's clock
/// never steps back.
#[cfg_attr(feature = "mock", mockall::automock)]
#[async_trait]
pub trait DelayQueue: Debug + Send + Sync + 'static {
    /// What the queues promise. Constant; does no I/O.
    fn capabilities(&self) -> QueueCapabilities;

    /// Stores messages, all or none, up to [`batch`](QueueCapabilities::batch): one answer for each, in order.
    ///
    /// * Each gets a number greater than all before it; equal due times are delivered in this order.
    /// * A message whose [`id`](NewMessage::id) is known (waiting, in flight, dead, or settled within its window, also
    ///   from earlier in the same batch) is not stored: [`Pushed::Duplicate`], and nothing of the known one changes. With
    ///   [`IfKnown::Replace`](super::IfKnown::Replace) it takes the place of one that waits, as if that had been cancelled
    ///   and this one pushed, in one step.
    /// * For each message, one of those who [watch](Self::watch) receives when it is due: it knew of the time already, or this
    ///   push wakes it. A driver may wake all of them, or as many as there are messages.
    /// * A batch of more bytes than [`request_bytes`](QueueCapabilities::request_bytes) is refused before it is sent, with
    ///   [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument).
    /// * A full queue refuses the whole batch with [`ErrorKind::LimitReached`](crate::ErrorKind::LimitReached).
    async fn push(&self, queue: &QueueName, messages: &[NewMessage]) -> Result<Vec<Pushed>>;

    /// Ends deliveries, up to [`batch`](QueueCapabilities::batch), and hands out what is due, in one round trip. Never waits.
    ///
    /// Not atomic as a pair, but the settlements come first, and a failure promises the same as it does for a settlement: if
    /// only the messages failed to come, it is [`ErrorKind::Indeterminate`](crate::ErrorKind::Indeterminate) or the
    /// settlements are answered with [`Received::nothing`]. With nothing to settle and a [`max`](ReceiveRequest::max) of 0
    /// nothing need be sent.
    ///
    /// **Settlements.** One answer for each, in order. A receipt is valid from its delivery until it is settled, or until the
    /// message is delivered again, moved to the dead letters, cancelled or rescheduled. The end of the lease alone does not
    /// make it invalid. Any other receipt answers [`Settled::Stale`](super::Settled::Stale) and changes nothing. Works while the
    /// queue is paused. What becomes of the message is told by [`Lifecycle::settle`](super::Lifecycle::settle).
    ///
    /// **Messages.** Up to [`max`](ReceiveRequest::max) that are due, the soonest first, each with a lease, an attempt counted,
    /// and a fence greater than that of every earlier delivery of the queue.
    ///
    /// * A message whose lease has ended is due at that instant: it is delivered again, and the older receipt dies.
    /// * A message without attempts left moves to the dead letters instead ([`DeadCause::Exhausted`](super::DeadCause)); if it
    ///   is there because a lease has ended, with the reason [`Reason::lease_ended`](crate::queue::Reason::lease_ended).
    /// * A damaged message moves to the dead letters ([`DeadCause::Damaged`](super::DeadCause)), with the reason; it harms
    ///   no other. Purges, cancellations and lists work on it.
    /// * A message that is due later than its [`ttl`](NewMessage::ttl) allows moves to the dead letters
    ///   ([`DeadCause::Expired`](super::DeadCause::Expired)).
    /// * A message whose key is in flight is passed over, and not looked at again until the key is free.
    /// * Hands out no more than the queue's [limits](Self::limit) allow, and then says when it is worth asking again.
    /// * A paused queue hands out nothing and repairs nothing.
    /// * Looks at a bounded number of messages; [`Next::Now`](super::Next::Now) when that bound cut it short.
    async fn exchange(&self, settles: &[Settle], request: &ReceiveRequest) -> Result<Exchanged>;

    /// Sets what is left of leases, up to [`batch`](QueueCapabilities::batch): one answer for each, in order.
    ///
    /// A valid receipt whose lease has not ended stays the valid receipt, and its lease lasts the given span from now;
    /// a longer rest is kept. A lease that has ended is [`Extended::Stale`] even if nobody else got the message yet:
    /// an extension never revives. May be called again.
    async fn extend(&self, queue: &QueueName, extensions: &[Extension]) -> Result<Vec<Extended>>;

    /// Removes a message that waits, or whose lease has ended. Its id is free again at once. Otherwise it tells where the message
    /// is, and changes nothing.
    async fn cancel(&self, queue: &QueueName, id: &MessageId) -> Result<Cancelled>;

    /// Makes a message that waits, or whose lease has ended, due `delay` from now, sooner or later than before. Wakes
    /// watchers if it became the soonest. Otherwise it tells where the message is, and changes nothing.
    async fn reschedule(&self, queue: &QueueName, id: &MessageId, delay: Delay) -> Result<Rescheduled>;

    /// Makes a parked message due, and keeps the turn with it until it is delivered; wakes watchers if it became the soonest.
    ///
    /// * Parked is a message that waits because of [`Settlement::Park`](super::Settlement::Park) or
    ///   [`Due::Parked`](super::Due::Parked). One that is due already is given the turn all the same, in place of an
    ///   earlier one.
    /// * Its due time is then that of its push: it goes before all that was pushed later, since a lock is kept for it.
    /// * The next delivery carries the turn, whoever gets it, and no other delivery does. What else happens to the message
    ///   may keep the turn or drop it.
    /// * The answer is that of the one request that was sent. A request that is repeated after it was carried out finds the message
    ///   parked no more, and the caller would take the hold back from whoever handles the message under it.
    ///
    /// A driver that declares [`Parking::BackOff`](super::Parking::BackOff) is not asked; it refuses with
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported).
    async fn give_turn(&self, queue: &QueueName, id: &MessageId, turn: &LockTurn) -> Result<TurnGiven>;

    /// Looks at a message without changing it; `None` when it is not stored (any more).
    async fn get(&self, queue: &QueueName, id: &MessageId) -> Result<Option<MessageInfo>>;

    /// Looks at messages without changing them: up to `max` of those asked for, after the given place.
    ///
    /// * In the order of their due times, or of the ends of their leases; but messages whose key is in flight may come
    ///   after all others.
    /// * What is in the list from the first page to the last is on exactly one of them. What comes or goes meanwhile may be
    ///   missing, or be listed twice.
    /// * Damaged messages are left out; a page may have fewer than `max` messages, or none, and still not be the last.
    async fn list(&self, queue: &QueueName, which: Listed, from: Option<ListPlace>, max: usize) -> Result<MessagePage>;

    /// Sets how much the queue hands out to all clients together, in place of what was set before; kept until it is set
    /// again, whoever comes or goes. Wakes watchers if a message may be delivered sooner than before. May be called again.
    ///
    /// * [`in_flight`](QueueLimits::in_flight): a receive hands out as many as are missing to the limit, leases that have
    ///   ended not counted. A settlement that makes room wakes watchers if a message is due. A message that becomes due later is
    ///   not missed: [`next`](Received::next) names its due time even while there is no room, or the driver wakes then.
    /// * [`rate`](QueueLimits::rate): a bucket of as many tokens as the rate says, full at first, refilled evenly; each
    ///   delivery takes one, whatever becomes of it. What is set anew begins with a full bucket.
    async fn limit(&self, queue: &QueueName, limits: &QueueLimits) -> Result<()>;

    /// Counts, lag and the next due time. A queue that nobody has used is empty, not an error.
    async fn stats(&self, queue: &QueueName) -> Result<QueueStats>;

    /// Stops deliveries until [`resume`](Self::resume). Settlements, extensions and pushes go on. May be called again.
    async fn pause(&self, queue: &QueueName) -> Result<()>;

    /// Ends a pause and wakes the queue's watchers. May be called again.
    async fn resume(&self, queue: &QueueName) -> Result<()>;

    /// One step of a purge: removes up to `max` messages that wait, the soonest first; their ids are free again. Those
    /// in flight and the dead letters stay.
    ///
    /// * The first step has no place to go on from; each further one is given the place that the last one returned.
    /// * All that waited when the purge began is gone when no place is returned, whatever was settled between two steps. A
    ///   message that was in flight then, or was pushed or rescheduled since, may stay or go.
    /// * A purge ends, however fast messages are pushed: a step removes something, or goes on behind what it looked at.
    async fn purge(&self, queue: &QueueName, max: usize, from: Option<PurgePlace>) -> Result<PurgeStep>;

    /// The queues that hold a message, dead ones included, or are paused or limited: up to `max`, in the order of their bytes,
    /// after the given one.
    async fn list_queues(&self, after: Option<QueueName>, max: usize) -> Result<QueuePage>;

    /// Dead letters, those that died first in front: up to `max`, after the given place.
    async fn dead_list(&self, queue: &QueueName, after: Option<DeadPlace>, max: usize) -> Result<DeadPage>;

    /// Makes dead letters due `delay` from now, with all attempts before them again. What is not there is not counted.
    async fn dead_redrive(&self, queue: &QueueName, which: &DeadSelection, delay: Delay) -> Result<Redriven>;

    /// Removes dead letters; their ids are free again. What is not there is not counted.
    async fn dead_purge(&self, queue: &QueueName, which: &DeadSelection) -> Result<Purged>;

    /// Listens for changes that make a message of the queue due sooner than before: a push, a settlement, a reschedule,
    /// a redrive, a key or lock that became free, room under a limit, the end of a pause.
    ///
    /// Whoever watches receives when [`next`](Received::next) says, and every 20 s at the latest: a driver that wakes one of
    /// many counts on the others. It need not wake a watcher whose
    /// last receive was answered with as many messages as it asked for, until that one asks again.
    ///
    /// Returns once a wake-up cannot be missed any more. After every gap in the link the driver wakes all watchers. Dropping the [`Watch`] ends the listening. Usually no round trip: one subscription serves the whole client. A
    /// driver that declares [`QueueWake::Poll`](super::QueueWake::Poll) is not asked; it refuses with
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported).
    async fn watch(&self, queue: &QueueName) -> Result<Watch>;
}

/// Either half of an [`exchange`](DelayQueue::exchange) by itself.
#[async_trait]
pub trait DelayQueueExt: DelayQueue {
    /// Hands out messages, and settles none.
    async fn receive(&self, request: &ReceiveRequest) -> Result<Received> {
        Ok(self.exchange(&[], request).await?.received)
    }

    /// Ends deliveries, and asks for no messages.
    async fn settle(&self, queue: &QueueName, settles: &[Settle]) -> Result<Vec<Settled>> {
        let request = ReceiveRequest { queue: queue.clone(), max: 0, lease: Lease::DEFAULT };
        Ok(self.exchange(settles, &request).await?.settled)
    }
}

impl<Q: DelayQueue + ?Sized> DelayQueueExt for Q {}

// What operators are told of a queue.

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
