//! When a lease that was handed over is made to last.

use tokio::runtime::{Handle, RuntimeFlavor};

/// When a waiter that was handed the lock confirms the lease.
///
/// A release may hand the lock to the first waiter without being asked, as a lease of at most 2 s. A renewal then makes it
/// last for the ttl that was asked for. Work that blocks the only thread of its runtime would keep that renewal from
/// leaving.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Confirmation {
    /// [`First`](Self::First) on a runtime with one worker thread, [`Behind`](Self::Behind) on one with several.
    #[default]
    ByRuntime,
    /// Before `acquire` returns: one round trip more for each lock that was waited for.
    First,
    /// 2 ms after `acquire` has returned, in the background. Work that blocks every worker of the runtime just then
    /// loses the lock after 2 s.
    Behind,
}

impl Confirmation {
    /// Whether `acquire` confirms before it returns, on the runtime that is current here.
    pub(crate) fn comes_first(self) -> bool {
        match self {
            Self::First => true,
            Self::Behind => false,
            Self::ByRuntime => Handle::try_current().is_ok_and(|runtime| has_one_worker(&runtime)),
        }
    }
}

/// Whether nobody is left to drive the runtime when a task blocks its worker.
pub(super) fn has_one_worker(runtime: &Handle) -> bool {
    runtime.runtime_flavor() == RuntimeFlavor::CurrentThread || runtime.metrics().num_workers() == 1
}
