//! How far the entries of a lost hold are undone.

use std::sync::Arc;

use super::lease::Lease;
use crate::value::clock::LeaseInstant;

/// What a lease knows of the clean-ups of its entries.
#[derive(Debug, Default)]
#[repr(Rust, packed(4))] // it is a part of every lease, between fields of a few bytes
pub(crate) struct Undoing {
    pending: u32,
    last: Option<LeaseInstant>,
}

/// One clean-up under way; over when it is dropped.
#[derive(Debug)]
pub(crate) struct UndoMark(Arc<Lease>);

impl UndoMark {
    pub(crate) fn of(lease: &Arc<Lease>) -> Self {
        lease.undoing(|progress| progress.pending += 1);
        Self(Arc::clone(lease))
    }

    pub(crate) fn lease(&self) -> &Lease {
        &self.0
    }
}

impl Undoing {
    /// Whether nothing was left to undo when a request left at `sent`. One that left earlier may have met what was
    /// not undone yet.
    pub(crate) fn was_over_at(&self, sent: LeaseInstant) -> bool {
        self.pending == 0 && self.last.is_none_or(|last| last < sent)
    }
}

impl Drop for UndoMark {
    fn drop(&mut self) {
        self.0.undoing(|progress| {
            progress.pending -= 1;
            progress.last = Some(LeaseInstant::now());
        });
    }
}
