//! Held locks.

use std::time::Duration;

use super::runtime::wait;
use crate::{Detached, FencingToken, HoldState, LockName, Loss, LostReason, OwnerId, OwnerToken, Result};

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

/// Several held locks. They count as held only together; what is said of [`LockAllGuard`](crate::LockAllGuard) holds here too.
///
/// **Dropping the guard gives all locks back, but not at once**, as for [`LockGuard`].
#[derive(Debug)]
#[must_use = "dropping the guard gives the locks back"]
pub struct LockAllGuard {
    inner: crate::LockAllGuard,
}

/// What every guard with a field `inner` can do, of one lock or of several.
macro_rules! guard_methods {
    ($guard:ident) => {
        /// The same guard for async code.
        pub fn as_async(&self) -> &crate::$guard {
            &self.inner
        }

        /// Goes on as a guard for async code, with the same hold.
        pub fn into_async(self) -> crate::$guard {
            self.inner
        }

        /// How long the lease surely lasts from now if no renewal succeeds any more; zero once it is lost. The shortest of several.
        #[must_use]
        pub fn remaining(&self) -> Duration {
            self.inner.remaining()
        }

        /// Whether every lease lasts at this moment. Reads the clock; no I/O.
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

        /// Waits until a lease is lost, at most `most`; `None` if all last by then. For a thread that watches over one
        /// that works.
        ///
        /// # Errors
        ///
        /// As [`block_on`](super::block_on).
        pub fn lost_within(&self, most: Duration) -> Result<Option<LostReason>> {
            wait(async { Ok(tokio::time::timeout(most, self.inner.lost()).await.ok()) })
        }

        /// Tells the loss of this hold to other threads, which may go on watching while the guard is released.
        #[must_use]
        pub fn loss(&self) -> Loss {
            self.inner.loss()
        }

        /// Ends work under the lock: a lease that was lost is an error, a release that is not answered is not.
        pub(super) fn end(self) -> Result<()> {
            self.check()?;
            of_the_work(self.release())
        }
    };
}

/// What a guard of one lock can do besides.
macro_rules! single_methods {
    ($guard:ident) => {
        guard_methods!($guard);

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

        /// What is known of the lease now. Reads the clock; no I/O.
        #[must_use]
        pub fn state(&self) -> HoldState {
            self.inner.state()
        }

        /// Renews the lease to `ttl` from now; never shortens it.
        ///
        /// # Errors
        ///
        /// As [`LockGuard::extend`](crate::LockGuard::extend).
        pub fn extend(&self, ttl: Duration) -> Result<()> {
            wait(self.inner.extend(ttl))
        }
    };
}

impl LockGuard {
    single_methods!(LockGuard);

    /// Gives the lock back and waits for the backend's word.
    ///
    /// # Errors
    ///
    /// As [`LockGuard::release`](crate::LockGuard::release).
    pub fn release(self) -> Result<()> {
        wait(self.inner.release())
    }

    /// Leaves the hold to whoever has its token, in this process or another one: [`LockGuard::detach`](crate::LockGuard::detach).
    /// [`Lock::adopt`](super::Lock::adopt) goes on with it.
    ///
    /// # Errors
    ///
    /// As [`LockGuard::detach`](crate::LockGuard::detach).
    pub fn detach(self) -> Result<Detached> {
        wait(self.inner.detach())
    }
}

impl ReentrantGuard {
    single_methods!(ReentrantGuard);

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
}

impl LockAllGuard {
    guard_methods!(LockAllGuard);

    /// The guard of each lock, in the order in which they were taken.
    pub fn guards(&self) -> &[crate::LockGuard] {
        self.inner.guards()
    }

    /// The fencing token of one of the locks, the first of this name; `None` for a name that is not among them.
    #[must_use]
    pub fn fence(&self, name: impl AsRef<[u8]>) -> Option<FencingToken> {
        self.inner.fence(name)
    }

    /// Gives all locks back, the last taken first.
    ///
    /// # Errors
    ///
    /// As [`LockAllGuard::release`](crate::LockAllGuard::release).
    pub fn release(self) -> Result<()> {
        wait(self.inner.release())
    }
}

/// Whether work was done under its lock to its end, by the release that followed it.
fn of_the_work<T>(released: Result<T>) -> Result<()> {
    match released {
        Err(error) if error.is_lost() => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}

macro_rules! from_async {
    ($($guard:ident)*) => {$(
        impl From<crate::$guard> for $guard {
            fn from(inner: crate::$guard) -> Self {
                Self { inner }
            }
        }
    )*};
}
from_async!(LockGuard ReentrantGuard LockAllGuard);
