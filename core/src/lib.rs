//! The core of tenure: values, driver traits, and the lock engine over them.
//!
//! Applications depend on the facade crate `tenure`, which re-exports what they need. Depend on this crate directly to
//! write a driver: it knows no client library and no socket.
//!
//! | here | what |
//! |---|---|
//! | [`driver`] | the traits [`DistributedLock`](driver::DistributedLock), [`ReentrantLock`](driver::ReentrantLock) and [`DelayQueue`](driver::DelayQueue), and what they speak of |
//! | [`Client`], [`Lock`], [`Reentrant`], [`LockAll`] | handles: how a lock is asked for |
//! | [`LockGuard`], [`ReentrantGuard`], [`MultiGuard`] | held locks, and how their loss is told |
//! | [`Queue`], [`Delivery`], [`Worker`], [`DeadLetters`] | delay queues: messages that are due later, and who handles them |
//! | [`FencingToken`], [`FenceGate`], [`FenceFloor`] | protection for the resource, from holders that lost the lock without knowing |
//! | [`telemetry`] | names of spans and events |

pub mod driver;
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
mod queue;
mod reentrant;
mod request;
mod value;

pub use crate::engine::hold::Loss;
pub use crate::engine::renewer::Confirmation;
pub use crate::value::clock::LeaseInstant;
pub use crate::value::error::{Error, ErrorKind, Result};
pub use crate::value::fence::FenceFloor;
pub use crate::value::hold_state::{HoldState, LostReason};
pub use crate::value::name::{Label, LockName};
pub use crate::value::token::{FencingToken, OwnerId, OwnerToken, TokenText};
pub use crate::value::ttl::{DriftBound, Ttl};
pub use client::{Client, ClientBuilder, Stats};
pub use fence_gate::{FenceGate, StaleFence};
pub use lock::{Detached, Lock, LockAll, LockGuard, MultiGuard};
#[cfg(feature = "json")]
pub use queue::Json;
pub use queue::{
    Attempts, Bytes, Codec, ConcurrencyKey, DeadLetters, Delay, Delivery, Ending, Ensured, IntoOutcome, Jitter, Job,
    Lease, Message, MessageId, Missed, OccurrenceEnd, OrPark, Outcome, Payload, Push, PushMany, PushManyError, Queue,
    QueueLimits, QueueName, Rate, Reason, Recurrence, Recurring, RetryPolicy, Text, Worker, WorkerBuilder, WorkerEvent,
    WorkerStats,
};
pub use reentrant::{Reentrant, ReentrantGuard};
