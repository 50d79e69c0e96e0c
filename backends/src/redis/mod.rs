//! Redis servers of the harness's own.

mod harness;
mod inspector;
mod maker;

pub use maker::RedisMaker;
