//! Locks, semaphores, read-write locks and delay queues in an existing PostgreSQL database, for [tenure](https://docs.rs/tenure).

mod census;
mod config;
mod connection;
mod doctor;
mod driver;
mod error;
mod line;
mod locks;
mod permits;
mod queue;
mod record;
mod schema;
mod span;
#[cfg(feature = "tls")]
mod tls;

pub use config::{Install, PostgresConfig};
pub use driver::PostgresDriver;
pub use schema::{census_sql, install_sql, permits_sql};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
