//! Delay queues: the same files as for locks, for queues.

mod call;
mod driver;
mod form;
mod names;
#[cfg(test)]
mod properties;
