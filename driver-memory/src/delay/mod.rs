//! Delay queues: four ordered lines and a map of messages, all under one mutex.
//!
//! Nothing runs in the background: every request first looks at the clock. The store knows the messages that are parked
//! behind a lock, and makes one due when the lock becomes free.

mod all;
mod driver;
mod numbered;
mod state;

pub(crate) use all::{QueueRule, Queues};
pub(crate) use state::QueueCaps;
