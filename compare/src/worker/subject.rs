//! Whose locks are measured.

use std::future::Future;

use crate::failure::Outcome;
use crate::job::Job;

/// A library, connected.
pub(super) trait Subject: Sized + Send + Sync + 'static {
    type Lane: Lane;

    fn open(job: &Job) -> impl Future<Output = Outcome<Self>> + Send;

    /// What one task uses to take the lock of this name again and again.
    fn lane(&self, name: &str) -> impl Future<Output = Outcome<Self::Lane>> + Send;
}

pub(super) trait Lane: Send + 'static {
    type Held: Send;

    /// Waits for the lock. The number is its fencing token, 0 if there is none.
    fn take(&mut self) -> impl Future<Output = Outcome<(Self::Held, u64)>> + Send;

    fn give(&mut self, held: Self::Held) -> impl Future<Output = Outcome> + Send;
}
