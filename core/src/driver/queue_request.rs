//! Requests of consumers and producers to a queue, and the driver's answers.

use std::time::Duration;

use crate::value::error::LockName;
use crate::value::queue::{Attempts, ConcurrencyKey, Delay, Lease, MessageId, Payload, QueueName, Reason, Recurrence};
use crate::value::token::{FencingToken, OwnerToken};

/// A message to be stored.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NewMessage {
    /// The message's content.
    pub payload: Payload,
    /// The time at which it becomes due.
    pub due: Due,
    /// The caller's name for it, always one for which [`MessageId::as_name`] returns a name. `None`: the backend
    /// numbers it.
    pub id: Option<NamedId>,
    /// A concurrency key: at most one message of a key is in flight.
    pub key: Option<ConcurrencyKey>,
    /// The lock that a worker should hold while it handles the message.
    pub lock: Option<LockName>,
    /// The most deliveries.
    pub attempts: Attempts,
    /// The time after it became due by its push in which it may be delivered; then it is dead
    /// ([`DeadCause::Expired`](super::DeadCause::Expired)). That instant is fixed by the push: neither a retry nor a
    /// reschedule moves it. A redrive and a [`Settlement::Recur`] remove it.
    pub ttl: Option<Delay>,
    /// The effect on a message with the same id.
    pub if_known: IfKnown,
    /// The schedule of a recurring message; the driver keeps it, and hands it out.
    pub recurrence: Option<Recurrence>,
}

setters!(NewMessage {
    with_payload => payload: Payload,
    with_due => due: Due,
    with_id => id: Option<NamedId>,
    with_key => key: Option<ConcurrencyKey>,
    with_lock => lock: Option<LockName>,
    with_attempts => attempts: Attempts,
    with_ttl => ttl: Option<Delay>,
    with_if_known => if_known: IfKnown,
    with_recurrence => recurrence: Option<Recurrence>,
});

impl NewMessage {
    /// Makes a message that is due at once, has no optional parts, and keeps a known message.
    #[must_use]
    pub fn new(payload: Payload) -> Self {
        Self {
            payload,
            due: Due::After(Delay::ZERO),
            id: None,
            key: None,
            lock: None,
            attempts: Attempts::DEFAULT,
            ttl: None,
            if_known: IfKnown::Keep,
            recurrence: None,
        }
    }

    /// Returns the number of bytes of its payload, names and texts, which is counted against a request's bound.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let id = self.id.as_ref().and_then(|named| named.id.as_name()).map_or(0, <[u8]>::len);
        let key = self.key.as_ref().map_or(0, |key| key.as_bytes().len());
        let lock = self.lock.as_ref().map_or(0, |lock| lock.as_bytes().len());
        let recurrence = self.recurrence.as_ref().map_or(0, |recurrence| recurrence.as_str().len());
        self.payload.len() + id + key + lock + recurrence
    }
}

/// The effect of a push on a message with the same id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum IfKnown {
    /// None: the new one is not stored ([`Pushed::Duplicate`]).
    #[default]
    Keep,
    /// If it waits, or its lease has ended, it is cancelled and the new one is stored, in one step
    /// ([`Pushed::Replaced`]). Otherwise none, as for [`IfKnown::Keep`].
    Replace,
}

/// A caller's name for a message.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NamedId {
    /// The name.
    pub id: MessageId,
    /// The time after the message was acknowledged in which the name still counts as known; a cancelled or purged one
    /// is free at once.
    pub window: Delay,
}

impl NamedId {
    /// Makes a named id that stays known for this time.
    #[must_use]
    pub const fn new(id: MessageId, window: Delay) -> Self {
        Self { id, window }
    }
}

setters!(NamedId {
    with_id => id: MessageId,
    with_window => window: Delay,
});

/// The time at which a message becomes due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// This long after the backend accepted it.
    After(Delay),
    /// Parked behind its [`lock`](NewMessage::lock), as by a [`Settlement::Park`]: due after this, or when it is given
    /// its turn.
    Parked {
        /// The longest time.
        at_most: Delay,
    },
}

/// The answer to one pushed message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// It is stored, and known by this id.
    Stored(MessageId),
    /// A message of its id is known already; this one was not stored.
    Duplicate(MessageState),
    /// It is stored under its id, and the message that waited under this id is removed: it will not be delivered.
    Replaced(MessageId),
}

/// The state of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MessageState {
    /// Waiting until it is due.
    Scheduled,
    /// Due; or its lease has ended and it was not received since.
    Ready,
    /// Delivered, and its lease lasts.
    InFlight,
    /// Among the dead letters.
    Dead,
    /// Acknowledged; only its id is still known. Reported by a push alone.
    Settled,
}

/// A request for messages.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReceiveRequest {
    /// The name of the queue.
    pub queue: QueueName,
    /// The most messages, up to [`batch`](super::QueueCapabilities::batch). With 0 no message is handed out or looked
    /// for: an exchange then only settles.
    pub max: usize,
    /// The time that they are hidden from others, from now on the queue's clock.
    pub lease: Lease,
}

impl ReceiveRequest {
    /// Makes a request for up to `max` messages, each for the length of this lease.
    #[must_use]
    pub const fn new(queue: QueueName, max: usize, lease: Lease) -> Self {
        Self { queue, max, lease }
    }
}

setters!(ReceiveRequest {
    with_queue => queue: QueueName,
    with_max => max: usize,
    with_lease => lease: Lease,
});

/// The answer to a [`ReceiveRequest`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Received {
    /// The messages, in order.
    pub deliveries: Vec<RawDelivery>,
    /// The time for the next request without a wake-up.
    pub next: Next,
    /// The repairs of the call.
    pub healed: Healed,
}

impl Received {
    /// Makes an answer of these messages, with nothing repaired.
    #[must_use]
    pub const fn new(deliveries: Vec<RawDelivery>, next: Next) -> Self {
        Self { deliveries, next, healed: Healed { expired: 0, dead: 0, postponed: 0, orphans: 0 } }
    }
}

setters!(Received {
    with_deliveries => deliveries: Vec<RawDelivery>,
    with_next => next: Next,
    with_healed => healed: Healed,
});

impl Received {
    /// Makes an answer without messages and repairs.
    #[must_use]
    pub fn nothing(next: Next) -> Self {
        Self::new(Vec::new(), next)
    }
}

/// The answer to an [`exchange`](super::DelayQueue::exchange).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Exchanged {
    /// One answer for each settlement, in order.
    pub settled: Vec<Settled>,
    /// The messages that were handed out.
    pub received: Received,
}

impl Exchanged {
    /// Makes the answers to both halves.
    #[must_use]
    pub const fn new(settled: Vec<Settled>, received: Received) -> Self {
        Self { settled, received }
    }
}

setters!(Exchanged {
    with_settled => settled: Vec<Settled>,
    with_received => received: Received,
});

/// The time for the next request, as the backend computed it after the deliveries of the same answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// At once: more may be due than was checked or requested.
    Now,
    /// After this span, when the next message becomes due, the next lease ends, or a limit allows the next delivery.
    /// Rounded up, never down.
    In(Duration),
    /// Only when woken: the queue has nothing waiting and nothing in flight.
    Never,
    /// Only when woken: the queue is paused.
    Paused,
}

/// The repairs of a receive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Healed {
    /// Leases found ended, whose messages were delivered again or died.
    pub expired: u32,
    /// Messages moved to the dead letters because they had no attempts left, were too late, or are damaged.
    pub dead: u32,
    /// Messages that should have died but found the dead letters full; they wait another minute.
    pub postponed: u32,
    /// Entries without a message, left behind by a crash or by a foreign client, and removed.
    pub orphans: u32,
}

setters!(const Healed {
    with_expired => expired: u32,
    with_dead => dead: u32,
    with_postponed => postponed: u32,
    with_orphans => orphans: u32,
});

/// One delivery of a message.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RawDelivery {
    /// The message's id: the caller's name if it has one, else the backend's number.
    pub id: MessageId,
    /// Its content.
    pub payload: Payload,
    /// The number of this delivery: 1 for the first. Returned and parked deliveries are not counted.
    pub attempt: u32,
    /// The most deliveries.
    pub attempts: Attempts,
    /// The cause of the delivery.
    pub cause: Cause,
    /// The order of this delivery among all deliveries of the queue.
    pub fence: FencingToken,
    /// The receipt that settles this delivery and no other.
    pub receipt: Receipt,
    /// The time since it became due, on the queue's clock.
    pub late: Duration,
    /// The time since it was pushed, on the queue's clock.
    pub age: Duration,
    /// Its concurrency key.
    pub key: Option<ConcurrencyKey>,
    /// The lock that a worker should hold while it handles the message.
    pub lock: Option<LockName>,
    /// The turn that the message was given since it was parked. It belongs to this delivery: no later one has it.
    pub turn: Option<LockTurn>,
    /// The reason of the last failure, if it gave one: kept until the next settlement that gives one.
    pub reason: Option<Reason>,
    /// The schedule of a recurring message.
    pub recurrence: Option<Recurrence>,
}

impl RawDelivery {
    /// Makes the first delivery of a message that was pushed now and has no optional parts.
    #[must_use]
    pub const fn new(id: MessageId, payload: Payload, fence: FencingToken, receipt: Receipt) -> Self {
        Self {
            id,
            payload,
            fence,
            receipt,
            attempt: 1,
            attempts: Attempts::DEFAULT,
            cause: Cause::First,
            late: Duration::ZERO,
            age: Duration::ZERO,
            key: None,
            lock: None,
            turn: None,
            reason: None,
            recurrence: None,
        }
    }
}

setters!(RawDelivery {
    with_id => id: MessageId,
    with_payload => payload: Payload,
    with_attempt => attempt: u32,
    with_attempts => attempts: Attempts,
    with_cause => cause: Cause,
    with_fence => fence: FencingToken,
    with_receipt => receipt: Receipt,
    with_late => late: Duration,
    with_age => age: Duration,
    with_key => key: Option<ConcurrencyKey>,
    with_lock => lock: Option<LockName>,
    with_turn => turn: Option<LockTurn>,
    with_reason => reason: Option<Reason>,
    with_recurrence => recurrence: Option<Recurrence>,
});

/// A hold on a lock that is stored with a parked message: a client that has the token can renew and release it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockTurn {
    /// The name of the lock.
    pub lock: LockName,
    /// The secret of the hold.
    pub token: OwnerToken,
    /// The fence of the hold.
    pub fence: FencingToken,
}

impl LockTurn {
    /// Makes the hold of this token on the lock.
    #[must_use]
    pub const fn new(lock: LockName, token: OwnerToken, fence: FencingToken) -> Self {
        Self { lock, token, fence }
    }
}

setters!(LockTurn {
    with_lock => lock: LockName,
    with_token => token: OwnerToken,
    with_fence => fence: FencingToken,
});

/// The answer to a turn for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TurnGiven {
    /// The message is due, and has the turn.
    Due,
    /// The queue is paused: no receiver would take it up. Nothing was changed.
    Paused,
    /// The message is not parked (any more). Nothing was changed.
    NotParked,
}

/// The cause of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// For the first time, or for the first time since [`Settlement::Recur`].
    First,
    /// Its last delivery failed and requested another one: [`Settlement::Retry`].
    Retried,
    /// Its last delivery was returned without work: [`Settlement::Return`].
    Returned,
    /// It was parked behind a lock: [`Settlement::Park`].
    Parked,
    /// The lease of its last delivery ended: the consumer crashed, hung, or lost the answer.
    LeaseExpired,
    /// It was dead and an operator redrove it.
    Redriven,
}

/// The identity of one delivery of one message, for the driver that made it. Opaque to all others; constant while the
/// delivery lasts, extensions included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Receipt([u64; 3]);

impl Receipt {
    /// Makes a receipt of these parts; their meaning is up to the driver. Together they are never used twice.
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

/// A request to end one delivery.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settle {
    /// The receipt of the delivery.
    pub receipt: Receipt,
    /// The settlement.
    pub how: Settlement,
}

impl Settle {
    /// Makes a request that ends this delivery with this settlement.
    #[must_use]
    pub const fn new(receipt: Receipt, how: Settlement) -> Self {
        Self { receipt, how }
    }
}

setters!(Settle {
    with_receipt => receipt: Receipt,
    with_how => how: Settlement,
});

/// The end of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settlement {
    /// The work is done: the message is removed. Its caller's id stays known for its window.
    Ack,
    /// The work failed: the message is due again after the delay. The last attempt makes it dead at once
    /// ([`DeadCause::Exhausted`](super::DeadCause::Exhausted)).
    Retry {
        /// The delay from now, on the queue's clock.
        after: Delay,
        /// The reason, kept with the message until the next settlement.
        reason: Option<Reason>,
    },
    /// The work was not begun, or is postponed: the message is due again after the delay, and the attempt is not
    /// counted.
    Return {
        /// The delay from now, on the queue's clock.
        after: Delay,
    },
    /// The work cannot begin while the lock is taken: the message is parked. It is due after `at_most`, or when it is given
    /// its turn ([`give_turn`](super::DelayQueue::give_turn)). The attempt is not counted.
    Park {
        /// The name of the lock.
        lock: LockName,
        /// The longest time.
        at_most: Delay,
    },
    /// The work will never succeed: the message moves to the dead letters
    /// ([`DeadCause::Rejected`](super::DeadCause::Rejected)).
    Dead {
        /// The reason, kept with the message.
        reason: Option<Reason>,
    },
    /// This occurrence of a recurring message has ended: the same message is due again after the delay, with all its
    /// attempts again, without a turn and without the limit of its [`ttl`](NewMessage::ttl), and with the cause
    /// [`Cause::First`].
    Recur {
        /// The delay from now, on the queue's clock.
        after: Delay,
        /// The recurrence that replaces the one it was delivered with.
        recurrence: Recurrence,
        /// The reason why this occurrence failed, if it did: kept with the message.
        reason: Option<Reason>,
    },
}

/// The answer to a [`Settle`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Settled {
    /// Done as requested.
    Done,
    /// Done, and the message is among the dead letters now: by request, or because this was the last attempt.
    Dead,
    /// The message should be dead, but the dead letters are full: it waits another minute, and is not delivered.
    Postponed,
    /// The receipt is not valid (any more). Nothing was changed.
    Stale,
}

/// A lease to be extended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Extension {
    /// The receipt of the delivery.
    pub receipt: Receipt,
    /// The length that it should have from now; a longer remaining time is kept.
    pub lease: Lease,
}

impl Extension {
    /// Makes a request that extends this delivery.
    #[must_use]
    pub const fn new(receipt: Receipt, lease: Lease) -> Self {
        Self { receipt, lease }
    }
}

setters!(const Extension {
    with_receipt => receipt: Receipt,
    with_lease => lease: Lease,
});

/// The answer to an [`Extension`]. A failure of the request is an error, never [`Extended::Stale`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Extended {
    /// The lease lasts at least as long as requested, from now.
    Extended,
    /// The receipt is not valid any more, or its lease has ended. Nothing was changed.
    Stale,
}
