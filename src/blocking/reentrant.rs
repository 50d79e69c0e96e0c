//! A lock as one owner sees it.

use super::ReentrantGuard;
use super::lock::lock_methods;
use super::runtime::wait;
use crate::Holder;
use crate::{LockName, OwnerId, Result};

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

    /// The name of the lock.
    ///
    /// # Errors
    ///
    /// As [`Reentrant::name`](crate::Reentrant::name).
    pub fn name(&self) -> Result<&LockName> {
        self.inner.name()
    }

    /// Who enters.
    #[must_use]
    pub fn owner(&self) -> &OwnerId {
        self.inner.owner()
    }

    /// The owner's hold, as the backend has it; `None` if the owner is not inside: [`Reentrant::held`](crate::Reentrant::held).
    ///
    /// # Errors
    ///
    /// As [`Reentrant::held`](crate::Reentrant::held).
    pub fn held(&self) -> Result<Option<Holder>> {
        wait(self.inner.held())
    }
}
