//! The tests of the facade.

mod application;
mod configuration;
mod connect;
mod queues;
mod shop;
mod tower;
