//! Who sees what happens in a worker: its counters, and the user's hook.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::driver::Settled;
use crate::queue::OccurrenceEnd;
use crate::queue::worker::job::{Ending, Outcome, WorkerEvent};
use crate::queue::worker::stats::WorkerStats;
use crate::value::error::Result;

impl WorkerStats {
    pub(super) fn note(&mut self, event: &WorkerEvent) {
        match event {
            WorkerEvent::Began { .. } | WorkerEvent::Stopped { .. } => {}
            WorkerEvent::Ended { ending, settled, occurrence, .. } => {
                *self.message(ending, *occurrence, settled) += 1;
                self.handling(ending);
                if let Err(error) = settled {
                    self.last_error = Some(error.clone());
                }
            }
            WorkerEvent::ReceiveFailed { error } => {
                self.receive_failed += 1;
                self.last_error = Some(error.clone());
            }
        }
    }

    /// The number in which a message counts.
    fn message(&mut self, ending: &Ending, occurrence: Option<OccurrenceEnd>, settled: &Result<Settled>) -> &mut u64 {
        match (settled, ending) {
            (Err(error), _) if error.is_transient() => &mut self.unconfirmed,
            (Err(_), _) => &mut self.failed,
            (Ok(Settled::Stale), _) => &mut self.stale,
            (Ok(Settled::Dead | Settled::Postponed), _) => &mut self.dead,
            (Ok(Settled::Done), _) if occurrence == Some(OccurrenceEnd::Failed) => &mut self.occurrences_failed,
            (Ok(Settled::Done), Ending::Said(Outcome::Done | Outcome::End)) => &mut self.handled,
            (Ok(Settled::Done), Ending::Said(Outcome::Later(_))) => &mut self.put_off,
            (Ok(Settled::Done), Ending::LockTaken(_)) => &mut self.parked,
            (Ok(Settled::Done), Ending::Stopped) => &mut self.returned,
            (Ok(Settled::Done), _) => &mut self.retried,
        }
    }

    fn handling(&mut self, ending: &Ending) {
        match ending {
            Ending::Panicked(_) => self.panicked += 1,
            Ending::TimedOut => self.timed_out += 1,
            Ending::LeaseLost | Ending::LockLost => self.lost += 1,
            Ending::Undecodable(_) => self.undecodable += 1,
            Ending::Said(_) | Ending::LockTaken(_) | Ending::LockFailed(_) | Ending::Stopped => {}
        }
    }
}

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
