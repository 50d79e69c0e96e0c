//! The capabilities of a backend, the limits of its values, and backends as values.
//!
//! A program that uses locks needs these names only to look at what its driver declares
//! ([`Client::capabilities`](crate::Client::capabilities),
//! [`reentrant_capabilities`](crate::Client::reentrant_capabilities),
//! [`census_capabilities`](crate::Client::census_capabilities) and
//! [`queue_capabilities`](crate::Client::queue_capabilities)), or to connect a driver by itself. The traits of drivers,
//! their requests, answers and mocks are in the crate `tenure-core`, on which a driver depends.

pub use tenure_core::driver::{
    Attempts, Backend, BackendUrl, CensusCapabilities, CensusOrder, Delay, Exclusion, Fencing, Introspection,
    KeyedConcurrency, Lease, LeaseRange, LockCapabilities, OwnerScope, Parking, QueueCapabilities, QueueWake,
    ReentrantCapabilities, Revocation, Ttl, TtlRange, WaitersCounted, Waiting,
};
