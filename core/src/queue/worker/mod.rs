//! Workers: handle messages, extend their leases, settle them, and stop in good order.

mod builder;
mod job;
mod observer;
mod run;
mod stats;

pub use builder::{Jitter, RetryPolicy, WorkerBuilder};
pub use job::{Ending, IntoOutcome, Job, Outcome, WorkerEvent};
pub use run::Worker;
pub use stats::WorkerStats;
