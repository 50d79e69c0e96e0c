//! tenure's driver for Redis (one server, a cluster, or behind sentinels), on the `redis` crate.
//!
//! ```no_run
//! use tenure_core::driver::Backend;
//! use tenure_redis::{RedisConfig, RedisDriver};
//!
//! # async fn example() -> tenure_core::Result<()> {
//! let driver = RedisDriver::connect_with(RedisConfig::from_url("redis://127.0.0.1/")?).await?;
//! let backend = Backend::from(driver);
//! # Ok(())
//! # }
//! ```
//!
//! One multiplexed RESP3 connection to each server carries commands and wake-ups; with RESP2 it is two. A link that
//! ends, or goes silent without ending, is replaced for as long as the driver lives; no command is ever repeated by the
//! client library. All of that, and what the server does with locks, is the business of `tenure-redis-support`: this
//! crate opens connections of its client library and translates commands, replies and errors.

mod dialer;
mod driver;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use driver::{RedisDialer, RedisDriver};
pub use tenure_redis_support::{
    Address, Eviction, Fences, Identity, Login, Notes, Prefix, Protocol, RedisConfig, RedisSettings, Tls, Topology,
};
