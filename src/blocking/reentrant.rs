//! One re-entrant lock, for one owner.

use super::ReentrantGuard;
use super::lock::lock_methods;
use super::runtime::wait;
use crate::Holder;
use crate::{LockName, OwnerId, Result};

/// A handle on one lock, to be entered and re-entered by one owner. Cheap to make and to clone; holds nothing.
///
/// The owner is a value ([`OwnerId`]): neither the thread nor this handle. Every entry has its own guard; guards may be
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

    /// Returns the name of the lock.
    ///
    /// # Errors
    ///
    /// As [`Reentrant::name`](crate::Reentrant::name).
    pub fn name(&self) -> Result<&LockName> {
        self.inner.name()
    }

    /// Returns the owner that enters.
    #[must_use]
    pub fn owner(&self) -> &OwnerId {
        self.inner.owner()
    }

    /// Returns the owner's hold from the backend; `None` if the owner is not inside:
    /// [`Reentrant::held`](crate::Reentrant::held).
    ///
    /// # Errors
    ///
    /// As [`Reentrant::held`](crate::Reentrant::held).
    pub fn held(&self) -> Result<Option<Holder>> {
        wait(self.inner.held())
    }
}
