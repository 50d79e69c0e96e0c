//! Locks and delay queues in a MySQL or MariaDB database that is there already, for [tenure](https://docs.rs/tenure).

mod census;
mod config;
mod connection;
mod dial;
mod doctor;
mod driver;
mod error;
mod locks;
mod queue;
mod row;
mod schema;
mod span;

pub use config::MysqlConfig;
pub use driver::MysqlDriver;
pub use schema::install_sql;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
