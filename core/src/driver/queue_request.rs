//! What a consumer or producer asks of a queue, and what a driver may answer.

use std::time::Duration;

use crate::value::error::LockName;
use crate::value::queue::{Attempts, ConcurrencyKey, Delay, Lease, MessageId, Payload, QueueName, Reason, Recurrence};
use crate::value::token::{FencingToken, OwnerToken};

/// A message to be stored.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NewMessage {
    /// What it carries.
    pub payload: Payload,
    /// When it becomes due.
    pub due: Due,
    /// The caller's name for it, always one that [`MessageId::as_name`] yields. `None`: the backend numbers it.
    pub id: Option<NamedId>,
    /// At most one message of a key is in flight.
    pub key: Option<ConcurrencyKey>,
    /// The lock that a worker should hold while it handles the message.
    pub lock: Option<LockName>,
    /// How often it may be delivered.
    pub attempts: Attempts,
    /// For how long after it became due by its push it may be delivered; then it is dead
    /// ([`DeadCause::Expired`](super::DeadCause::Expired)). That instant is fixed by the push: neither a retry nor a
    /// reschedule moves it. A redrive and a [`Settlement::Recur`] take it away.
    pub ttl: Option<Delay>,
    /// What becomes of a message that is known by the same id.
    pub if_known: IfKnown,
    /// On which schedule it comes again; the driver keeps it, and hands it out.
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
    /// A message that is due at once, has all that is optional left out, and keeps what is known.
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

    /// How many bytes of payload, names and texts it has, which is what a request's bound counts.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let id = self.id.as_ref().and_then(|named| named.id.as_name()).map_or(0, <[u8]>::len);
        let key = self.key.as_ref().map_or(0, |key| key.as_bytes().len());
        let lock = self.lock.as_ref().map_or(0, |lock| lock.as_bytes().len());
        let recurrence = self.recurrence.as_ref().map_or(0, |recurrence| recurrence.as_str().len());
        self.payload.len() + id + key + lock + recurrence
    }
}

/// What a push does to a message that is known by the same id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum IfKnown {
    /// Nothing: the new one is not stored ([`Pushed::Duplicate`]).
    #[default]
    Keep,
    /// If it waits, or its lease has ended, it is cancelled and the new one is stored, in one step
    /// ([`Pushed::Replaced`]). Otherwise nothing, as for [`IfKnown::Keep`].
    Replace,
}

/// A caller's name for a message.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NamedId {
    /// The name.
    pub id: MessageId,
    /// For how long after the message was acknowledged the name still counts as known; a cancelled or purged one is free
    /// at once.
    pub window: Delay,
}

impl NamedId {
    /// A name, and for how long it stays known.
    #[must_use]
    pub const fn new(id: MessageId, window: Delay) -> Self {
        Self { id, window }
    }
}

setters!(NamedId {
    with_id => id: MessageId,
    with_window => window: Delay,
});

/// When a message becomes due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// This long after the backend accepted it.
    After(Delay),
    /// It is parked behind its [`lock`](NewMessage::lock), as by a [`Settlement::Park`]: due after this, or when it is
    /// given its turn.
    Parked {
        /// The latest.
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
    /// It is stored under its id, and the message that waited under this id is gone: it will not be delivered.
    Replaced(MessageId),
}

/// Where a message stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MessageState {
    /// Waiting until it is due.
    Scheduled,
    /// Due; or its lease has ended and nobody has received it since.
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
    /// Out of which queue.
    pub queue: QueueName,
    /// How many at most, up to [`batch`](super::QueueCapabilities::batch). With 0 nothing is handed out, and nothing looked
    /// for: an exchange then only settles.
    pub max: usize,
    /// For how long they are hidden from others, from now on the queue's clock.
    pub lease: Lease,
}

impl ReceiveRequest {
    /// For up to `max` messages, each for the length of this lease.
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
    /// When it is worth asking again without being woken.
    pub next: Next,
    /// What the call repaired on its way.
    pub healed: Healed,
}

impl Received {
    /// These messages, with nothing repaired.
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
    /// Nothing was handed out, and nothing repaired.
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
    /// What was handed out.
    pub received: Received,
}

impl Exchanged {
    /// The answers to both halves.
    #[must_use]
    pub const fn new(settled: Vec<Settled>, received: Received) -> Self {
        Self { settled, received }
    }
}

setters!(Exchanged {
    with_settled => settled: Vec<Settled>,
    with_received => received: Received,
});

/// When a queue is worth asking again, as the backend computed it after the deliveries of the same answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// At once: more may be due than was looked at or asked for.
    Now,
    /// After this span, when the next message becomes due, the next lease ends, or a limit allows the next delivery.
    /// Rounded up, never down.
    In(Duration),
    /// Only when woken: the queue has nothing waiting and nothing in flight.
    Never,
    /// Only when woken: the queue is paused.
    Paused,
}

/// What a receive repaired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Healed {
    /// Leases found ended, whose messages were delivered again or died.
    pub expired: u32,
    /// Messages moved to the dead letters because they had no attempts left, came too late, or are damaged.
    pub dead: u32,
    /// Messages that should have died but found the dead letters full; they wait another minute.
    pub postponed: u32,
    /// Entries without a message, left behind by a crash or by a foreign hand, and removed.
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
    /// By what the message is known: the caller's name if it has one, else the backend's number.
    pub id: MessageId,
    /// What it carries.
    pub payload: Payload,
    /// Which delivery this is: 1 for the first. Returned and parked deliveries are not counted.
    pub attempt: u32,
    /// How many there may be.
    pub attempts: Attempts,
    /// Why it was delivered.
    pub cause: Cause,
    /// The order of this delivery among all deliveries of the queue.
    pub fence: FencingToken,
    /// What settles this delivery and no other.
    pub receipt: Receipt,
    /// How long ago it became due, on the queue's clock.
    pub late: Duration,
    /// How long ago it was pushed, on the queue's clock.
    pub age: Duration,
    /// Its concurrency key.
    pub key: Option<ConcurrencyKey>,
    /// The lock that a worker should hold while it handles the message.
    pub lock: Option<LockName>,
    /// The turn that the message was given since it was parked. It belongs to this delivery: no later one has it.
    pub turn: Option<LockTurn>,
    /// What the last failure said about why, if one did: kept until the next settlement that says something about it.
    pub reason: Option<Reason>,
    /// On which schedule it comes again.
    pub recurrence: Option<Recurrence>,
}

impl RawDelivery {
    /// The first delivery of a message that was pushed now and has all that is optional left out.
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

/// A hold on a lock that goes along with a parked message: whoever knows the token can renew it and give it back.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockTurn {
    /// Which lock.
    pub lock: LockName,
    /// The secret of the hold.
    pub token: OwnerToken,
    /// The fence of the hold.
    pub fence: FencingToken,
}

impl LockTurn {
    /// The hold of this token on the lock.
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

/// The answer to a turn that is given to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TurnGiven {
    /// The message is due, and has it.
    Due,
    /// The queue is paused: nobody would take it up. Nothing was changed.
    Paused,
    /// The message is not parked (any more). Nothing was changed.
    NotParked,
}

/// Why a message was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// For the first time, or for the first time since [`Settlement::Recur`].
    First,
    /// Its last delivery asked for another one: [`Settlement::Retry`].
    Retried,
    /// Its last delivery was given back untouched: [`Settlement::Return`].
    Returned,
    /// It was parked behind a lock: [`Settlement::Park`].
    Parked,
    /// The lease of its last delivery ended: the consumer crashed, hung, or lost the answer.
    LeaseExpired,
    /// It was dead and an operator brought it back.
    Redriven,
}

/// What names one delivery of one message to the driver that made it. Opaque to everybody else; constant while the
/// delivery lasts, extensions included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Receipt([u64; 3]);

impl Receipt {
    /// A receipt of these parts; what they mean is the driver's business. Together they are never used twice.
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

/// How one delivery ends.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settle {
    /// Which delivery.
    pub receipt: Receipt,
    /// How.
    pub how: Settlement,
}

impl Settle {
    /// Ends this delivery so.
    #[must_use]
    pub const fn new(receipt: Receipt, how: Settlement) -> Self {
        Self { receipt, how }
    }
}

setters!(Settle {
    with_receipt => receipt: Receipt,
    with_how => how: Settlement,
});

/// How a delivery ends.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settlement {
    /// The work is done: the message is removed. Its caller's id stays known for its window.
    Ack,
    /// The work failed: the message is due again after the delay. The last attempt makes it dead at once
    /// ([`DeadCause::Exhausted`](super::DeadCause::Exhausted)).
    Retry {
        /// From now on the queue's clock.
        after: Delay,
        /// Kept with the message until the next settlement.
        reason: Option<Reason>,
    },
    /// The work was not begun, or is not to be done now: the message is due again after the delay, and the attempt is not
    /// counted.
    Return {
        /// From now on the queue's clock.
        after: Delay,
    },
    /// The work cannot begin while the lock is taken: the message is parked. It is due after `at_most`, or when it is given
    /// its turn ([`give_turn`](super::DelayQueue::give_turn)). The attempt is not counted.
    Park {
        /// Which lock.
        lock: LockName,
        /// The latest.
        at_most: Delay,
    },
    /// The work will never succeed: the message moves to the dead letters
    /// ([`DeadCause::Rejected`](super::DeadCause::Rejected)).
    Dead {
        /// Kept with the message.
        reason: Option<Reason>,
    },
    /// This occurrence of a recurring message is over: the same message is due again after the delay, with all its
    /// attempts before it, without a turn and without the end of its [`ttl`](NewMessage::ttl), and with the cause
    /// [`Cause::First`].
    Recur {
        /// From now on the queue's clock.
        after: Delay,
        /// In place of the one that it was delivered with.
        recurrence: Recurrence,
        /// Why this occurrence failed, if it did: kept with the message.
        reason: Option<Reason>,
    },
}

/// The answer to a [`Settle`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Settled {
    /// Done as asked.
    Done,
    /// Done, and the message is among the dead letters now: it was asked for, or this was the last attempt.
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
    /// Whose.
    pub receipt: Receipt,
    /// How long it should last from now; a longer rest is kept.
    pub lease: Lease,
}

impl Extension {
    /// Makes this delivery last.
    #[must_use]
    pub const fn new(receipt: Receipt, lease: Lease) -> Self {
        Self { receipt, lease }
    }
}

setters!(const Extension {
    with_receipt => receipt: Receipt,
    with_lease => lease: Lease,
});

/// The answer to an [`Extension`]. A failure on the way is an error, never [`Extended::Stale`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Extended {
    /// The lease lasts at least as long as asked, from now.
    Extended,
    /// The receipt is not valid any more, or its lease has ended. Nothing was changed.
    Stale,
}
