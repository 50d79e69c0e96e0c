//! The core of tenure: values, driver traits, and the lock engine over them.
//!
//! Applications depend on the facade crate `tenure`, which re-exports what they need. Depend on this crate directly to
//! write a driver: it knows no client library and no socket.
//!
//! | here | what |
//! |---|---|
//! | [`driver`] | the traits [`DistributedLock`](driver::DistributedLock), [`ReentrantLock`](driver::ReentrantLock) and [`DelayQueue`](driver::DelayQueue), and what they speak of |
//! | [`Client`], [`Lock`], [`Reentrant`], [`LockAll`] | handles: how a lock is asked for |
//! | [`LockGuard`], [`ReentrantGuard`], [`LockAllGuard`] | held locks, and how their loss is told |
//! | [`Queue`](queue::Queue), [`Delivery`](queue::Delivery), [`Worker`](queue::Worker), [`DeadLetters`](queue::DeadLetters) | delay queues: messages that are due later, and who handles them |
//! | [`FencingToken`], [`FenceGate`], [`FenceFloor`] | protection for the resource, from holders that lost the lock without knowing |
//! | [`telemetry`] | names of spans and events |

/// What [`Client::doctor`] found.
pub mod doctor {
    pub use crate::driver::{Checkup, Concern, Finding, Topic};
}
pub mod driver;
pub mod queue;
pub mod telemetry;

#[cfg(feature = "mock")]
pub mod mock;

mod alarm;
mod background;
mod client;
mod engine;
mod fence_gate;
mod lock;
mod panicked;
mod reentrant;
mod request;
mod value;

pub use crate::driver::{ForceReleased, Holder, Inspection};
pub use crate::engine::hold::Loss;
pub use crate::engine::renewer::Confirmation;
pub use crate::value::error::{Error, ErrorKind, Result};
pub use crate::value::fence::FenceFloor;
pub use crate::value::hold_state::{HoldState, LostReason};
pub use crate::value::name::{Label, LockName};
pub use crate::value::token::{FencingToken, OwnerId, OwnerToken, TokenText};
pub use crate::value::ttl::DriftBound;
pub use client::{Client, ClientBuilder, ClientStats};
pub use fence_gate::{FenceGate, StaleFence};
pub use lock::{Detached, Lock, LockAll, LockAllGuard, LockGuard};
pub use reentrant::{Reentrant, ReentrantGuard};
