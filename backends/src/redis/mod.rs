//! Redis servers of the harness's own.

mod front;
mod harness;
mod inspector;
mod maker;
mod servers;
mod setup;

pub(crate) use harness::inject;
pub(crate) use inspector::RedisInspector;
pub use maker::RedisMaker;
pub(crate) use servers::{Servers, Shared, hosts, lock};
pub(crate) use setup::MAX_WAITERS;
pub use setup::{Library, Setup};
