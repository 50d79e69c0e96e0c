//! Redis servers of the harness's own.

mod harness;
mod inspector;
mod maker;
mod servers;
mod setup;

pub use maker::RedisMaker;
pub(crate) use setup::connect;
pub use setup::{Library, Setup};
