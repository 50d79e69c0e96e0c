//! The driver's side: the traits and capabilities of a backend.
//!
//! A driver depends on `tenure-core` alone, and its author reads the documentation of [`DistributedLock`]. For programs
//! that use locks, this module has the capabilities that a driver declares
//! ([`Client::capabilities`](crate::Client::capabilities),
//! [`reentrant_capabilities`](crate::Client::reentrant_capabilities),
//! [`census_capabilities`](crate::Client::census_capabilities) and
//! [`queue_capabilities`](crate::Client::queue_capabilities)), and the requests and answers of mocks of the traits.

pub use tenure_core::driver::{
    AcquireRequest, Acquisition, Attempts, Backend, BackendUrl, Begun, Busy, Census, CensusCapabilities, CensusOrder,
    CensusPlace, Delay, DelayQueue, DistributedLock, Doctor, Due, Exclusion, Exited, Extended, Extension, Fencing,
    Grant, Handing, HeldPage, Hold, Introspection, KeyedConcurrency, Lease, LeaseInstant, LeaseRange, LockCapabilities,
    LockTurn, NewMessage, Next, OwnerScope, Parking, Payload, QueueCapabilities, QueueRouter, QueueWake, Queueing,
    RawDelivery, Receipt, ReceiveRequest, Received, ReentrantCapabilities, ReentrantEntry, ReentrantHold,
    ReentrantLock, Released, Renewed, Revocation, Settle, Signal, Ttl, TtlRange, TurnGiven, WaitersCounted, Waiting,
    WakeHandle, WakeRouter, Watch,
};
