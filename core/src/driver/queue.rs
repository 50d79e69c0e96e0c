//! The trait of delay queues: the methods that pushes and deliveries need.

use std::fmt::Debug;

use async_trait::async_trait;

use crate::driver::{
    Exchanged, Extended, Extension, LockTurn, NewMessage, Pushed, QueueCapabilities, ReceiveRequest, Received, Settle,
    Settled, TurnGiven, Watch,
};
use crate::value::error::Result;
use crate::value::queue::{Lease, MessageId, QueueName};

/// Delay queues of one backend. The rules that all methods share are in the [module's documentation](super).
///
/// Operations on stored messages and whole queues are a second trait, [`QueueAdmin`](super::QueueAdmin).
///
/// **A message** is `Scheduled` until it is due, then `Ready` (which is not stored: it is "due ≤ the queue's clock"),
/// then `InFlight` for the length of a lease. A settlement removes it, schedules it again, or moves it to the dead
/// letters. A lease that ends makes the message due again: its place is the lease's end.
///
/// **No background role.** [`exchange`](Self::exchange) does all repairs (leases that ended, messages without attempts
/// left, orphans of a crash), a bounded number in each call.
///
/// **Time** is the backend's alone; requests and answers contain spans, never instants. A backend without its own clock
/// declares the error of the one it uses ([`clock_error`](QueueCapabilities::clock_error)). The queue's clock never
/// steps back.
#[cfg_attr(feature = "mock", mockall::automock)]
#[async_trait]
pub trait DelayQueue: Debug + Send + Sync + 'static {
    /// Returns the capabilities of the queues. Constant; does no I/O.
    fn capabilities(&self) -> QueueCapabilities;

    /// Stores messages, all or none, up to [`batch`](QueueCapabilities::batch): one answer for each, in order.
    ///
    /// * Each gets a number greater than all before it; equal due times are delivered in this order.
    /// * A message whose [`id`](NewMessage::id) is known (waiting, in flight, dead, or settled within its window, also
    ///   from earlier in the same batch) is not stored: [`Pushed::Duplicate`], and nothing of the known one changes.
    ///   With [`IfKnown::Replace`](super::IfKnown::Replace) it replaces a waiting one, as if that had been cancelled
    ///   and this one pushed, in one step.
    /// * For each message, one of the [watchers](Self::watch) receives when it is due: it knew of the time already, or
    ///   this push wakes it. A driver may wake all of them, or as many as there are messages.
    /// * A batch of more bytes than [`request_bytes`](QueueCapabilities::request_bytes) is refused before it is sent,
    ///   with [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument).
    /// * A full queue refuses the whole batch with [`ErrorKind::LimitReached`](crate::ErrorKind::LimitReached).
    async fn push(&self, queue: &QueueName, messages: &[NewMessage]) -> Result<Vec<Pushed>>;

    /// Settles deliveries, up to [`batch`](QueueCapabilities::batch), and hands out due messages, in one round trip.
    /// Never waits.
    ///
    /// Not atomic as a pair, but the settlements come first, and a failure promises the same as it does for a
    /// settlement: if only the receive failed, it is [`ErrorKind::Indeterminate`](crate::ErrorKind::Indeterminate) or
    /// the settlements are answered with [`Received::nothing`]. With nothing to settle and a
    /// [`max`](ReceiveRequest::max) of 0 nothing need be sent.
    ///
    /// **Settlements.** One answer for each, in order. A receipt is valid from its delivery until it is settled, or
    /// until the message is delivered again, moved to the dead letters, cancelled or rescheduled. The end of the lease
    /// alone does not make it invalid. Any other receipt answers [`Settled::Stale`](super::Settled::Stale) and changes
    /// nothing. Works while the queue is paused. [`Lifecycle::settle`](super::Lifecycle::settle) decides the next state
    /// of the message.
    ///
    /// **Messages.** Up to [`max`](ReceiveRequest::max) that are due, the soonest first, each with a lease, an attempt counted,
    /// and a fence greater than that of every earlier delivery of the queue.
    ///
    /// * A message whose lease has ended is due at that instant: it is delivered again, and the older receipt becomes
    ///   invalid.
    /// * A message without attempts left moves to the dead letters instead
    ///   ([`DeadCause::Exhausted`](super::DeadCause)); if it is due because a lease has ended, with the reason
    ///   [`Reason::lease_ended`](crate::queue::Reason::lease_ended).
    /// * A damaged message moves to the dead letters ([`DeadCause::Damaged`](super::DeadCause)), with the reason; it
    ///   harms no other. Purges, cancellations and lists work on it.
    /// * A message that is due later than its [`ttl`](NewMessage::ttl) allows moves to the dead letters
    ///   ([`DeadCause::Expired`](super::DeadCause::Expired)).
    /// * A message whose key is in flight is passed over, and not checked again until the key is free.
    /// * Hands out no more than the queue's [limits](super::QueueAdmin::limit) allow, and then returns the time for the next
    ///   request.
    /// * A paused queue hands out nothing and repairs nothing.
    /// * Checks a bounded number of messages; [`Next::Now`](super::Next::Now) when it stopped at that bound.
    async fn exchange(&self, settles: &[Settle], request: &ReceiveRequest) -> Result<Exchanged>;

    /// Sets the remaining time of leases, up to [`batch`](QueueCapabilities::batch): one answer for each, in order.
    ///
    /// A valid receipt whose lease has not ended stays the valid receipt, and its lease lasts the given span from now;
    /// a longer remaining time is kept. A lease that has ended is [`Extended::Stale`] even if the message was not
    /// delivered again yet: an extension never revives. May be called again.
    async fn extend(&self, queue: &QueueName, extensions: &[Extension]) -> Result<Vec<Extended>>;

    /// Makes a parked message due, and keeps the turn with it until it is delivered; wakes watchers if it became the
    /// soonest.
    ///
    /// * A parked message is one that waits because of [`Settlement::Park`](super::Settlement::Park) or
    ///   [`Due::Parked`](super::Due::Parked). One that is due already also gets the turn, which replaces an earlier
    ///   one.
    /// * Its due time is then that of its push: it is delivered before all messages pushed later, since a lock is kept
    ///   for it.
    /// * The next delivery carries the turn, to any receiver, and no other delivery does. Other changes of the message
    ///   may keep the turn or drop it.
    /// * The answer is that of the one request that was sent. A request that is repeated after it was carried out finds
    ///   the message no longer parked, and the caller would take the hold back from the receiver that handles the
    ///   message under it.
    ///
    /// A driver that declares [`Parking::BackOff`](super::Parking::BackOff) is not called; it refuses with
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported).
    async fn give_turn(&self, queue: &QueueName, id: &MessageId, turn: &LockTurn) -> Result<TurnGiven>;

    /// Subscribes to changes that make a message of the queue due sooner than before: a push, a settlement, a
    /// reschedule, a redrive, a key or lock that became free, room under a limit, the end of a pause.
    ///
    /// A watcher receives at the time of [`next`](Received::next), and every 20 s at the latest: a driver that wakes
    /// one of many relies on the others. It need not wake a watcher whose last receive was answered with as many
    /// messages as it asked for, until that one asks again.
    ///
    /// Returns once a wake-up cannot be missed any more. After every gap in the connection the driver wakes all
    /// watchers. Dropping the [`Watch`] ends the subscription. Usually no round trip: one subscription serves the whole
    /// client. A driver that declares [`QueueWake::Poll`](super::QueueWake::Poll) is not called; it refuses with
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

    /// Settles deliveries, and requests no messages.
    async fn settle(&self, queue: &QueueName, settles: &[Settle]) -> Result<Vec<Settled>> {
        let request = ReceiveRequest { queue: queue.clone(), max: 0, lease: Lease::DEFAULT };
        Ok(self.exchange(settles, &request).await?.settled)
    }
}

impl<Q: DelayQueue + ?Sized> DelayQueueExt for Q {}
