//! Workers: handle messages, extend their leases, settle them, and stop in good order.

mod builder;
mod handling;
mod job;
mod locking;
mod outcome;
mod retry;
mod run;

pub use builder::WorkerBuilder;
pub use job::Job;
pub use outcome::{IntoOutcome, Outcome};
pub use retry::{Jitter, RetryPolicy};
pub use run::{Worker, WorkerStats};
