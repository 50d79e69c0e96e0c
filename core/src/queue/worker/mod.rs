//! Workers: handle messages, extend their leases, settle them, and stop in good order.

mod builder;
mod event;
mod handling;
mod job;
mod locking;
mod observer;
mod outcome;
mod retry;
mod run;
mod stats;

pub use builder::WorkerBuilder;
pub use event::{Ending, WorkerEvent};
pub use job::Job;
pub use outcome::{IntoOutcome, Outcome};
pub use retry::{Jitter, RetryPolicy};
pub use run::Worker;
pub use stats::WorkerStats;
