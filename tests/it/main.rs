//! The tests of the facade.

mod application;
#[cfg(all(feature = "blocking", feature = "memory"))]
mod blocking;
mod configuration;
mod connect;
mod queues;
mod shop;
mod tower;
