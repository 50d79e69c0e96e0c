//! The backends that the workspace proves its own drivers on.
//!
//! | id | what |
//! |---|---|
//! | `memory/virtual-time` | the memory driver on a paused clock |
//! | `redis/single`, `fred/single` | the drivers on a `redis-server` of the harness's own |
//! | `…/resp2` | the same in the older protocol, on connections with a name |
//! | `…/tls` | the same over TLS, with certificates on both sides |
//! | `…/acl` | the same, as a user with exactly the rights that the driver's README lists |
//! | `…/cluster` | on a cluster of three primaries with a replica each |
//! | `…/sentinel` | on a primary and a replica, found through three sentinels |
//!
//! A backend is a [`HarnessMaker`]; `src/bin/conformance.rs` runs the suite on them.

mod memory;
mod pages;
mod redis;

use std::sync::Arc;

use tenure_conformance::HarnessMaker;
use tenure_core::driver::Backend;
use tenure_core::{Error, ErrorKind};

pub use memory::MemoryMaker;
pub use pages::{capabilities_page, cases_page, ids};
pub use redis::{Library, RedisMaker, Setup};

/// A connection to the backend at `url`, for a worker in another process.
///
/// # Errors
///
/// Those of the driver; `Unsupported` for a URL of no backend that other processes can reach.
pub async fn connect(url: &str) -> tenure_core::Result<Backend> {
    match url.split_once(':') {
        Some((scheme, _)) if scheme.contains("redis") => redis::connect(url).await,
        _ => Err(Error::new(ErrorKind::Unsupported, "no backend that a worker can reach")),
    }
}

/// Every backend, in the order of the reports.
#[must_use]
pub fn makers() -> Vec<Arc<dyn HarnessMaker>> {
    let redis = RedisMaker::all().map(|maker| Arc::new(maker) as Arc<dyn HarnessMaker>);
    std::iter::once(Arc::new(MemoryMaker) as Arc<dyn HarnessMaker>).chain(redis).collect()
}
