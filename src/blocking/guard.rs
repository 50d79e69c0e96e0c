//! Held locks.

use std::time::Duration;

use super::runtime::wait;
use crate::{FencingToken, HoldState, LockName, Loss, LostReason, OwnerId, OwnerToken, Result};

/// A held lock: a *lease*, which the background thread renews. What is said of [`LockGuard`](crate::LockGuard) holds here too.
///
/// **Dropping the guard gives the lock back, but not at once**, and never blocks: the background thread calls the backend
/// until it is acknowledged. [`release`](LockGuard::release) waits for that.
#[derive(Debug)]
#[must_use = "dropping the guard gives the lock back"]
pub struct LockGuard {
    inner: crate::LockGuard,
}

/// One entry of a re-entrant lock. What is said of [`LockGuard`] holds here too.
#[derive(Debug)]
#[must_use = "dropping the guard leaves the lock"]
pub struct ReentrantGuard {
    inner: crate::ReentrantGuard,
}

/// What every guard with a field `inner` can do.
macro_rules! guard_methods {
    ($async:ty) => {
        /// The same guard for async code.
        pub fn as_async(&self) -> &$async {
            &self.inner
        }

        /// The name of the lock.
        #[must_use]
        pub fn name(&self) -> &LockName {
            self.inner.name()
        }

        /// The fencing token of this hold: greater than that of every earlier grant of the name. Constant; no I/O.
        #[must_use]
        pub fn fence(&self) -> FencingToken {
            self.inner.fence()
        }

        /// The secret token of this hold, for resources that compare instead of order.
        #[must_use]
        pub fn token(&self) -> &OwnerToken {
            self.inner.token()
        }

        /// How long the lease surely lasts from now if no renewal succeeds any more; zero once it is lost.
        #[must_use]
        pub fn remaining(&self) -> Duration {
            self.inner.remaining()
        }

        /// What is known of the lease now. Reads the clock; no I/O.
        #[must_use]
        pub fn state(&self) -> HoldState {
            self.inner.state()
        }

        /// Whether the lease lasts at this moment. Reads the clock; no I/O.
        #[must_use]
        pub fn is_held(&self) -> bool {
            self.inner.is_held()
        }

        /// As [`is_held`](Self::is_held), for use with `?` between the steps of long work.
        ///
        /// # Errors
        ///
        /// [`ErrorKind::Lost`](crate::ErrorKind::Lost), with the reason.
        pub fn check(&self) -> Result<()> {
            self.inner.check()
        }

        /// Waits until the lease is lost, at most `most`; `None` if it lasts by then. For a thread that watches over one
        /// that works.
        ///
        /// # Errors
        ///
        /// As [`block_on`](super::block_on).
        pub fn lost_within(&self, most: Duration) -> Result<Option<LostReason>> {
            wait(async { Ok(tokio::time::timeout(most, self.inner.lost()).await.ok()) })
        }

        /// Makes the lease last for at least `ttl` from now; never shortens it.
        ///
        /// # Errors
        ///
        /// As [`LockGuard::extend`](crate::LockGuard::extend).
        pub fn extend(&self, ttl: Duration) -> Result<()> {
            wait(self.inner.extend(ttl))
        }

        /// Tells the loss of this hold to other threads, which may go on watching while the guard is released.
        #[must_use]
        pub fn loss(&self) -> Loss {
            self.inner.loss()
        }
    };
}

impl LockGuard {
    guard_methods!(crate::LockGuard);

    /// Gives the lock back and waits for the backend's word.
    ///
    /// # Errors
    ///
    /// As [`LockGuard::release`](crate::LockGuard::release).
    pub fn release(self) -> Result<()> {
        wait(self.inner.release())
    }

    /// Ends work under the lock: a lease that was lost is an error, a release that is not answered is not.
    pub(super) fn end(self) -> Result<()> {
        self.check()?;
        of_the_work(self.release())
    }
}

impl ReentrantGuard {
    guard_methods!(crate::ReentrantGuard);

    /// Whose entry this is.
    #[must_use]
    pub fn owner(&self) -> &OwnerId {
        self.inner.owner()
    }

    /// How many entries the owner had when this one was made, this one included. Constant; no I/O.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.inner.depth()
    }

    /// Undoes this entry and waits for the backend's word. Returns how many entries of the owner are left; with the last one the lock
    /// is free.
    ///
    /// # Errors
    ///
    /// As [`ReentrantGuard::release`](crate::ReentrantGuard::release).
    pub fn release(self) -> Result<u32> {
        wait(self.inner.release())
    }

    /// Ends work under the lock, as that of a [`LockGuard`].
    pub(super) fn end(self) -> Result<()> {
        self.check()?;
        of_the_work(self.release())
    }
}

/// Whether work was done under its lock to its end, by the release that followed it.
fn of_the_work<T>(released: Result<T>) -> Result<()> {
    match released {
        Err(error) if error.is_lost() => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}

impl From<crate::LockGuard> for LockGuard {
    fn from(inner: crate::LockGuard) -> Self {
        Self { inner }
    }
}

impl From<crate::ReentrantGuard> for ReentrantGuard {
    fn from(inner: crate::ReentrantGuard) -> Self {
        Self { inner }
    }
}
