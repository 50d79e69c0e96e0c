//! Delay queues: values, handles, deliveries and workers.

mod limits;
mod name;

pub use limits::{Attempts, Delay, Lease, Payload};
pub use name::{ConcurrencyKey, MessageId, QueueName, Reason};
