//! Whose queues are measured.

use std::future::Future;
use std::time::Duration;

use crate::failure::Outcome;
use crate::job::Job;

/// What every message carries, in bytes.
pub(crate) const PAYLOAD: usize = 100;

/// A library, connected to one queue. Clones are the same.
pub(super) trait Subject: Sized + Clone + Send + Sync + 'static {
    fn open(job: &Job) -> impl Future<Output = Outcome<Self>> + Send;

    /// What the task of this number uses.
    fn of(&self, _task: usize) -> Self {
        self.clone()
    }

    /// Stores messages in one request, if the library can.
    fn push(&self, payloads: Vec<Vec<u8>>, delay: Duration) -> impl Future<Output = Outcome> + Send;

    /// Takes up to so many messages that are due and settles them. How many it were.
    fn drain(&self, most: usize) -> impl Future<Output = Outcome<usize>> + Send;

    /// Waits for one message, and settles it after the clock was read.
    fn receive(&self) -> impl Future<Output = Outcome<(u64, Vec<u8>)>> + Send;
}
