//! tenure's driver for a single Redis server, on the `redis` crate.
//!
//! ```no_run
//! use tenure_core::driver::Backend;
//! use tenure_redis::{RedisConfig, RedisDriver};
//!
//! # async fn example() -> tenure_core::Result<()> {
//! let driver = RedisDriver::connect(RedisConfig::from_url("redis://127.0.0.1/")?).await?;
//! let backend = Backend::from(driver);
//! # Ok(())
//! # }
//! ```
//!
//! One multiplexed RESP3 connection per driver carries commands and wake-ups. A link that ends, or goes silent without
//! ending, is replaced for as long as the driver lives; no command is ever repeated by the client library. What the
//! server does with locks is the business of `tenure-redis-support`.

mod config;
mod driver;
mod executor;
mod link;
mod url;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use config::RedisConfig;
pub use driver::RedisDriver;
pub use tenure_redis_support::{Eviction, FenceScope, Fences, Notes, Prefix, RedisSettings};
