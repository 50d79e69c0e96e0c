//! Who sees what happens in a worker: its counters, and the user's hook.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::event::WorkerEvent;
use super::stats::WorkerStats;

/// What a user wants to be told.
pub(super) type Hook = Arc<dyn Fn(&WorkerEvent) + Send + Sync>;

#[derive(Default)]
pub(super) struct Observer {
    stats: Mutex<WorkerStats>,
    hook: Option<Hook>,
}

impl Observer {
    pub(super) fn new(hook: Option<Hook>) -> Self {
        Self { stats: Mutex::default(), hook }
    }

    /// Counts an event, and tells the user. A hook that panics is of no account: the panic was printed.
    pub(super) fn tell(&self, event: &WorkerEvent) {
        self.locked().note(event);
        if let Some(hook) = &self.hook {
            let _ = std::panic::catch_unwind(AssertUnwindSafe(|| hook(event)));
        }
    }

    pub(super) fn stats(&self) -> WorkerStats {
        self.locked().clone()
    }

    fn locked(&self) -> MutexGuard<'_, WorkerStats> {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
