//! Locks over a quorum of independent nodes, with fencing tokens that are unique and ordered.
//!
//! A lock is held when a majority of *all configured* nodes granted it. The nodes may be of any kind that implements
//! [`QuorumNode`](tenure_core::driver::QuorumNode), also mixed, and know nothing of each other.
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
//! With the feature `tracing`, the event `tenure.node_unfit` (warn; fields `node`, `error`) tells once of a node that refuses
//! its votes for a reason which a person has to remove, such as an eviction policy or a missing right. A minority of such
//! nodes shows in no answer.
//!
//! What is promised and what is not stands in the crate's README.

mod acquire;
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
mod standing;
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
