//! tenure's driver for Redis (one server, a cluster, or behind sentinels), on the `fred` crate.
//!
//! ```no_run
//! use tenure_core::driver::Backend;
//! use tenure_fred::FredDriver;
//!
//! # async fn example() -> tenure_core::Result<()> {
//! let driver = FredDriver::connect("fred+redis://127.0.0.1/").await?;
//! let backend = Backend::from(driver);
//! # Ok(())
//! # }
//! ```
//!
//! It shares locks with `tenure-redis`: scripts, keys and links are those of `tenure-redis-support`, and this crate
//! opens connections of its client library and translates commands, replies and errors.

mod dialer;
mod driver;
mod tuning;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use driver::{FredDialer, FredDriver};
pub use tenure_redis_support::{
    Address, Eviction, Fences, Identity, Login, Notes, Prefix, Protocol, RedisConfig, RedisSettings, Tls, Topology,
};
