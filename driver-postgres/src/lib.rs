//! PostgreSQL driver of tenure.

mod queue;

pub use queue::{PostgresQueue, QueueLink};
