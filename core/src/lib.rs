//! The core of tenure: values, driver traits, and the lock engine over them.
//!
//! Applications depend on the facade crate `tenure`, which re-exports the types for applications. Depend on this crate
//! directly to write a driver: it contains no client library and no socket.
//!
//! | here | what |
//! |---|---|
//! | [`driver`] | the traits [`DistributedLock`](driver::DistributedLock), [`ReentrantLock`](driver::ReentrantLock), [`Permits`](driver::Permits), [`DelayQueue`](driver::DelayQueue) and [`QueueAdmin`](driver::QueueAdmin), and their types |
//! | [`rules`] | the decisions of drivers whose backend only stores rows |
//! | [`Client`], [`Lock`], [`Reentrant`], [`LockAll`] | handles, with the options of an acquisition |
//! | [`Semaphore`], [`RwLock`] | handles on permits that several holders share, and their guards [`Permit`], [`ReadGuard`], [`UpgradableGuard`], [`WriteGuard`] |
//! | [`LockGuard`], [`ReentrantGuard`], [`LockAllGuard`] | held locks, which report their loss |
//! | [`Election`](election::Election), [`Leadership`](election::Leadership), [`Observer`](election::Observer) | one leader among candidates, and its observers |
//! | [`Queue`](queue::Queue), [`Delivery`](queue::Delivery), [`Worker`](queue::Worker), [`DeadLetters`](queue::DeadLetters) | delay queues: messages that are due later, and their handlers |
//! | [`FencingToken`], [`FenceGate`], [`FenceFloor`] | protection for the resource, from holders that lost the lock without knowing |
//! | [`telemetry`] | names of spans and events |

#![cfg_attr(docsrs, feature(doc_cfg))]

/// The types of a health check's result, as [`Client::doctor`] returns it.
pub mod doctor {
    pub use crate::driver::{Checkup, Concern, Finding, Topic};
}
pub mod driver;
pub mod election;
pub mod queue;
pub mod rules;
pub mod telemetry;

#[cfg(feature = "mock")]
pub mod mock {
    //! `mockall` mocks of the driver traits, for tests of code that is generic over drivers.
    //!
    //! To test an application, prefer the memory driver: it has real behaviour, and can be set to fail. A new major
    //! version of `mockall` is a breaking change of this module alone.
    //!
    //! ```
    //! use std::sync::Arc;
    //! use tenure_core::{Client, ErrorKind, Error, driver::Backend, mock::MockDistributedLock};
    //! # use std::time::Duration;
    //! # use tenure_core::driver::*;
    //! # fn capabilities() -> LockCapabilities {
    //! #     let (min, max, granularity) = (Duration::from_millis(10), Duration::from_secs(60), Duration::from_millis(1));
    //! #     LockCapabilities::new(Exclusion::SingleNode, Fencing::Strict, Waiting::Poll, TtlRange { min, max, granularity })
    //! # }
    //! # #[tokio::main(flavor = "current_thread")]
    //! # async fn main() {
    //! let mut driver = MockDistributedLock::new();
    //! driver.expect_driver().return_const("mock");
    //! driver.expect_capabilities().returning(capabilities);
    //! driver.expect_acquire().returning(|_| Err(Error::new(ErrorKind::Unavailable, "the backend is down")));
    //!
    //! let client = Client::new(Backend::new(Arc::new(driver)));
    //! let refused = client.lock("orders/42").try_acquire().await.unwrap_err();
    //! assert_eq!(refused.kind(), ErrorKind::Unavailable);
    //! # }
    //! ```

    pub use crate::driver::{
        MockDelayQueue, MockDistributedLock, MockPermits, MockQueueAdmin, MockQuorumNode, MockReentrantLock,
    };
}

mod client;
mod engine;
mod fence;
mod lock;
mod meters;
mod permits;
mod reentrant;
mod runtime;

mod value {
    //! Values: the types that drivers, the engine and users share. They depend on nothing above them.

    pub(crate) mod error;
    pub(crate) mod queue;
    pub(crate) mod time;
    pub(crate) mod token;
}

pub use crate::driver::{ForceReleased, HeldLock, Holder, Inspection, PermitHolder, PermitInspection, Share};
pub use crate::engine::ask::WaitProgress;
pub use crate::engine::hold::Loss;
pub use crate::engine::renewer::Confirmation;
pub use crate::fence::{FenceFloor, FenceGate, StaleFence};
pub use crate::value::error::{Error, ErrorKind, Label, LockName, Result};
pub use crate::value::time::{DriftBound, HoldState, LostReason};
pub use crate::value::token::{FencingToken, OwnerId, OwnerToken, TokenText};
pub use client::{Client, ClientBuilder, ClientStats};
pub use lock::{Detached, HeldLocks, Lock, LockAll, LockAllGuard, LockGuard};
pub use permits::{NotUpgraded, Permit, ReadGuard, RwLock, Semaphore, UpgradableGuard, WriteGuard};
pub use reentrant::{Reentrant, ReentrantGuard};
