//! A lock as one owner sees it.

use super::ReentrantGuard;
use super::lock::lock_methods;
use crate::OwnerId;

/// A handle on one lock, to be entered and re-entered by one owner. Cheap to make and to clone; holds nothing.
///
/// The owner is a value ([`OwnerId`]): neither the thread nor this handle. Every entry has a guard of its own; guards may be
/// dropped in any order, on any thread, and the last one frees the lock.
#[derive(Clone, Debug)]
pub struct Reentrant {
    inner: crate::Reentrant,
}

impl From<crate::Reentrant> for Reentrant {
    fn from(inner: crate::Reentrant) -> Self {
        Self { inner }
    }
}

impl Reentrant {
    lock_methods!(crate::Reentrant, ReentrantGuard);

    /// Who enters.
    #[must_use]
    pub fn owner(&self) -> &OwnerId {
        self.inner.owner()
    }
}
