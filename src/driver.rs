//! The driver's side: what a backend implements and promises.
//!
//! Whoever writes a driver depends on `tenure-core` alone, and reads the documentation of
//! [`DistributedLock`]. Whoever uses locks meets here the answers of
//! [`Client::capabilities`](crate::Client::capabilities), [`Client::doctor`](crate::Client::doctor),
//! [`Lock::inspect`](crate::Lock::inspect) and [`Lock::force_release`](crate::Lock::force_release), and those of
//! queues: [`Queue::list`](crate::Queue::list), [`Queue::stats`](crate::Queue::stats) and others.

pub use tenure_core::driver::{
    AcquireRequest, Acquisition, Backend, BackendUrl, Begun, Busy, Checkup, Concern, DistributedLock, Doctor,
    Exclusion, Exited, Fencing, Finding, ForceReleased, Grant, Handed, Handing, Hold, Holder, Inspection,
    Introspection, LockCapabilities, OwnerScope, Queueing, ReentrantCapabilities, ReentrantHold, ReentrantLock,
    ReentrantRenewal, Released, Renewal, Renewed, Revocation, Signal, Topic, TtlRange, Waiting, WakeHandle, WakeRouter,
    Watch,
};
pub use tenure_core::driver::{
    Cancelled, Cause, DeadCause, DeadLetter, DeadPage, DeadPlace, DeadSelection, DelayQueue, Due, Extended, Extension,
    Flow, Healed, IfKnown, KeyedConcurrency, LeaseRange, ListPlace, Listed, LockTurn, MessageInfo, MessagePage,
    MessageState, NamedId, NewMessage, Next, Parking, PurgePlace, PurgeStep, Purged, Pushed, QueueCapabilities,
    QueuePage, QueueRouter, QueueStats, QueueWake, RawDelivery, Receipt, ReceiveRequest, Received, Redriven,
    Rescheduled, Rest, Settle, Settled, Settlement, TurnGiven,
};
