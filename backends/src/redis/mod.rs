//! Redis servers of the harness's own.

mod harness;
mod inspector;
mod maker;
mod servers;
mod setup;

pub(crate) use harness::{Shared, inject, lock};
pub(crate) use inspector::RedisInspector;
pub(crate) use maker::MAX_WAITERS;
pub use maker::RedisMaker;
pub(crate) use servers::{Servers, hosts};
pub use setup::{Library, Setup};
