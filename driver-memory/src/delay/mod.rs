//! Delay queues: two ordered sets (what waits, what is leased) and a map of messages, all under one mutex.
//!
//! Nothing runs in the background: every request first looks at the clock. A message parked behind a lock is known by
//! the store, which makes it due when the lock becomes free.

mod all;
mod deliver;
mod driver;
mod limiter;
mod numbered;
mod operate;
mod settle;
mod slot;
mod state;

pub(crate) use all::Queues;
pub(crate) use state::{QueueCaps, QueueState, Turn};
