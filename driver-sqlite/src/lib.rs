//! Locks between the processes of one machine, in an SQLite file, for [tenure](https://docs.rs/tenure).

#[cfg(not(target_os = "linux"))]
compile_error!("tenure-sqlite counts leases by CLOCK_BOOTTIME and the boot id, which it knows on Linux only");

mod bell;
mod census;
mod clock;
mod config;
mod decide;
mod doctor;
mod driver;
mod error;
mod files;
mod hold;
mod line;
mod locks;
mod permits;
mod place;
mod queue;
mod reentrant;
mod schema;
mod span;
mod store;
mod worker;

pub use config::SqliteConfig;
pub use driver::SqliteDriver;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
