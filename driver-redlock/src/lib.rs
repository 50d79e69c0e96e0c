//! Locks over a quorum of independent nodes, with fencing tokens that are unique and ordered.
//!
//! A lock is held when a majority of *all configured* nodes granted it. The nodes may be of any kind that implements
//! [`QuorumNode`](tenure_core::driver::QuorumNode), also mixed, and do not communicate with each other.
//!
//! ```
//! use std::sync::Arc;
//! use tenure_core::Client;
//! use tenure_memory::MemoryDriver;
//! use tenure_redlock::Redlock;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> tenure_core::Result<()> {
//! let driver = Redlock::builder()
//!     .node("a", Arc::new(MemoryDriver::new()))
//!     .node("b", Arc::new(MemoryDriver::new()))
//!     .node("c", Arc::new(MemoryDriver::new()))
//!     .build()?;
//! let client = Client::new(driver.clone());
//! let guard = client.lock("orders/42").acquire().await?;
//! assert!(driver.healthy_nodes(guard.token()).unwrap().len() >= 2);
//! guard.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! With the feature `tracing`, the event `tenure.node_unfit` (warn; fields `node`, `error`) reports once a node that
//! refuses its votes for a reason that a person has to remove, such as an eviction policy or a missing right. Answers
//! do not show a minority of such nodes.
//!
//! The crate's README lists the promises and their limits.

mod acquire;
mod attempt_state;
mod background;
mod builder;
mod doctor;
mod driver;
mod elections;
mod inspect;
#[cfg(test)]
mod model;
mod node;
mod node_set;
mod quorum;
mod release;
mod renew;
mod round;
mod shared;
mod slot;
mod slots;
mod telemetry;
mod url;
#[cfg(test)]
mod world;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use builder::{RedlockBuilder, Restarts};
pub use driver::Redlock;
pub use elections::Elections;
