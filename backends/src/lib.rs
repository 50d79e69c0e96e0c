//! The backends that the workspace proves its own drivers on.
//!
//! | id | what |
//! |---|---|
//! | `memory/virtual-time` | the memory driver on a paused clock |
//! | `redis/single` | the `redis` driver on a `redis-server` of the harness's own |
//!
//! A backend is a [`HarnessMaker`]; `src/bin/conformance.rs` runs the suite on them.

mod memory;
mod pages;
mod redis;

use std::sync::Arc;

use tenure_conformance::HarnessMaker;
use tenure_core::driver::Backend;
use tenure_core::{Error, ErrorKind};
use tenure_redis::RedisDriver;

pub use memory::MemoryMaker;
pub use pages::{capabilities_page, cases_page, ids};
pub use redis::RedisMaker;

/// A connection to the backend at `url`, for a worker in another process.
///
/// # Errors
///
/// Those of the driver; `Unsupported` for a URL of no backend that other processes can reach.
pub async fn connect(url: &str) -> tenure_core::Result<Backend> {
    match url.split_once(':') {
        Some(("redis" | "redis+unix", _)) => Ok(RedisDriver::connect_url(url).await?.into()),
        _ => Err(Error::new(ErrorKind::Unsupported, "no backend that a worker can reach")),
    }
}

/// Every backend, in the order of the reports.
#[must_use]
pub fn makers() -> Vec<Arc<dyn HarnessMaker>> {
    vec![Arc::new(MemoryMaker), Arc::new(RedisMaker::single())]
}
