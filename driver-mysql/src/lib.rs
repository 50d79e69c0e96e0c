//! Locks, semaphores, read-write locks and delay queues in an existing MySQL or MariaDB database, for [tenure](https://docs.rs/tenure).

mod census;
mod config;
mod connection;
mod dial;
mod doctor;
mod driver;
mod encryption;
mod error;
mod locks;
mod permits;
mod queue;
mod row;
mod schema;
mod span;
#[cfg(feature = "tls")]
mod tls;

pub use config::MysqlConfig;
pub use driver::MysqlDriver;
pub use schema::install_sql;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
