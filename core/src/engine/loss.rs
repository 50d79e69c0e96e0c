//! The loss of holds, as whoever has no guard of them can watch it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;

use super::lease::Lease;
use crate::value::hold_state::{HoldState, LostReason};

/// Whether one hold on a lease was given back or passed on before the lease ended. Read and written under the lock of the lease.
#[derive(Debug, Default)]
pub(crate) struct Over(AtomicBool);

impl Over {
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Tells the loss of a hold, or of several that count together, to whoever has not the guard: a task that watches while another
/// one works and releases. Made by [`LockGuard::loss`](crate::LockGuard::loss) and its like; clones watch the same.
///
/// It keeps nothing alive: the hold ends with its guard.
#[derive(Clone, Debug)]
pub struct Loss(Arc<[Watched]>);

/// One hold on a lease.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    pub(super) lease: Arc<Lease>,
    pub(super) over: Arc<Over>,
}

impl Loss {
    pub(crate) fn of(holds: impl IntoIterator<Item = Watched>) -> Self {
        Self(holds.into_iter().collect())
    }

    /// Whether the hold is lost. Reads the clock; no I/O, no task needed.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.reason().is_some()
    }

    /// Why the hold is lost; `None` if it is not, or was given back before. Reads the clock; no I/O, no task needed.
    #[must_use]
    pub fn reason(&self) -> Option<LostReason> {
        self.0.iter().find_map(|hold| match hold.lease.state_of(&hold.over) {
            HoldState::Lost(reason) => Some(reason),
            HoldState::Held | HoldState::Suspect | HoldState::Released => None,
        })
    }

    /// Resolves when the hold is lost, as [`LockGuard::lost`](crate::LockGuard::lost) does. Never resolves for one that is given
    /// back: a task that should end then waits for [`ended`](Self::ended).
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn lost(&self) -> LostReason {
        match self.ended().await {
            Some(reason) => reason,
            None => std::future::pending().await,
        }
    }

    /// Resolves when the hold is over: with the reason when it is lost, with `None` when its guard gives it back or is dropped. That is
    /// told at once, before the backend's word: a loss that only the release finds is the error of the release, and not told here.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn ended(&self) -> Option<LostReason> {
        let mut ends: FuturesUnordered<_> = self.0.iter().map(|hold| hold.lease.ended(Some(&hold.over))).collect();
        while let Some(end) = ends.next().await {
            if end.is_some() {
                return end;
            }
        }
        None
    }
}
