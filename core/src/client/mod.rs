//! A client of one backend: where locks come from.

mod builder;
mod handle;

pub use builder::ClientBuilder;
pub use handle::{Client, Stats};
