//! What a worker counts.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::driver::Settled;
use crate::queue::OccurrenceEnd;
use crate::queue::worker::job::{Ending, Outcome, WorkerEvent};
use crate::value::error::{Error, Result};

/// What a worker has done so far.
///
/// Every message whose handling has ended counts once in one of the numbers from [`handled`](Self::handled) to
/// [`failed`](Self::failed), by what became of it. The others count besides.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct WorkerStats {
    /// Messages that were handled, and are gone, or recur.
    pub handled: u64,
    /// Messages whose handling failed, and that will be tried again.
    pub retried: u64,
    /// Messages that moved to the dead letters, or wait for a place there.
    pub dead: u64,
    /// Occurrences of [recurring](crate::Recurring) messages that failed for good; the next ones are scheduled.
    pub occurrences_failed: u64,
    /// Messages that their handlers put off: [`Outcome::Later`].
    pub put_off: u64,
    /// Messages parked because their lock was taken.
    pub parked: u64,
    /// Messages that were returned because the worker stopped first.
    pub returned: u64,
    /// Messages that somebody else had received by the time of their settlement, which changed nothing.
    pub stale: u64,
    /// Messages whose settlement was not confirmed. It goes on in the background until it is, or the lease has ended.
    pub unconfirmed: u64,
    /// Messages whose settlement was refused. They are delivered again after their lease.
    pub failed: u64,
    /// Handlers that panicked.
    pub panicked: u64,
    /// Handlers that were dropped because they took too long.
    pub timed_out: u64,
    /// Handlers that were dropped because the lease or the lock of their message was lost.
    pub lost: u64,
    /// Messages that could not be decoded.
    pub undecodable: u64,
    /// Requests for messages that failed.
    pub receive_failed: u64,
    /// The last error of a request for messages or of a settlement.
    pub last_error: Option<Error>,
}

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

// Who sees what happens in a worker: its counters, and the user's hook.

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
