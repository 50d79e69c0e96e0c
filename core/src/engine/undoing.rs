//! How far the entries of a lost hold are undone.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::clock::LeaseInstant;

/// Shared by a lease and the clean-ups of its entries.
#[derive(Debug, Default)]
pub(crate) struct Undoing(Mutex<Progress>);

#[derive(Debug, Default)]
struct Progress {
    pending: usize,
    last: Option<LeaseInstant>,
}

/// One clean-up under way; over when it is dropped.
#[derive(Debug)]
pub(crate) struct UndoMark(Arc<Undoing>);

impl Undoing {
    pub(crate) fn begin(self: &Arc<Self>) -> UndoMark {
        self.progress().pending += 1;
        UndoMark(Arc::clone(self))
    }

    /// Whether nothing was left to undo when a request left at `sent`. One that left earlier may have met what was
    /// not undone yet.
    pub(crate) fn was_over_at(&self, sent: LeaseInstant) -> bool {
        let progress = self.progress();
        progress.pending == 0 && progress.last.is_none_or(|last| last < sent)
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for UndoMark {
    fn drop(&mut self) {
        let mut progress = self.0.progress();
        progress.pending -= 1;
        progress.last = Some(LeaseInstant::now());
    }
}
