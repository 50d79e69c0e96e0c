//! Held locks.

use std::time::Duration;

use super::runtime::{is_forked, wait};
use crate::{
    Detached, Error, ErrorKind, FencingToken, HoldState, LockName, Loss, LostReason, OwnerId, OwnerToken, Result,
};

/// A held lock: a *lease*, which the background thread renews. The documentation of [`LockGuard`](crate::LockGuard)
/// applies here too.
///
/// **Dropping the guard releases the lock, but not at once**, and never blocks: the background thread calls the backend
/// until it acknowledges. [`release`](LockGuard::release) waits for that.
#[derive(Debug)]
#[must_use = "dropping the guard gives the lock back"]
pub struct LockGuard {
    inner: crate::LockGuard,
}

/// One entry of a re-entrant lock. The documentation of [`LockGuard`] applies here too.
#[derive(Debug)]
#[must_use = "dropping the guard leaves the lock"]
pub struct ReentrantGuard {
    inner: crate::ReentrantGuard,
}

/// Several held locks. They count as held only together; the documentation of [`LockAllGuard`](crate::LockAllGuard)
/// applies here too.
///
/// **Dropping the guard releases all locks, but not at once**, as for [`LockGuard`].
#[derive(Debug)]
#[must_use = "dropping the guard gives the locks back"]
pub struct LockAllGuard {
    inner: crate::LockAllGuard,
}

/// The methods of every guard with a field `inner`, of one lock or of several.
macro_rules! guard_methods {
    ($guard:ident) => {
        /// Returns the same guard for async code.
        pub fn as_async(&self) -> &crate::$guard {
            &self.inner
        }

        /// Converts to a guard for async code, with the same hold.
        pub fn into_async(self) -> crate::$guard {
            self.inner
        }

        /// Returns the time that the lease surely lasts from now if no further renewal succeeds; zero once it is lost.
        /// The shortest of several. Zero in a forked child.
        #[must_use]
        pub fn remaining(&self) -> Duration {
            if is_forked() { Duration::ZERO } else { self.inner.remaining() }
        }

        /// Returns true if every lease is valid now. Reads the clock; no I/O. False in a forked child: its parent holds
        /// the lock.
        #[must_use]
        pub fn is_held(&self) -> bool {
            !is_forked() && self.inner.is_held()
        }

        /// Fails if the lease is lost: [`is_held`](Self::is_held) for use with `?` between the steps of long work.
        ///
        /// # Errors
        ///
        /// [`ErrorKind::Lost`](crate::ErrorKind::Lost), with the reason.
        pub fn check(&self) -> Result<()> {
            if is_forked() {
                let text = "the process that this one was forked from holds the lock";
                return Err(Error::new(ErrorKind::Lost, text));
            }
            self.inner.check()
        }

        /// Waits until a lease is lost, at most `most`; returns `None` if all last by then. For a thread that watches
        /// the hold while another one works.
        ///
        /// # Errors
        ///
        /// As [`block_on`](super::block_on).
        pub fn lost_within(&self, most: Duration) -> Result<Option<LostReason>> {
            wait(async { Ok(tokio::time::timeout(most, self.inner.lost()).await.ok()) })
        }

        /// Returns a handle that reports the loss of this hold to other threads, which may continue to watch while the
        /// guard is released.
        #[must_use]
        pub fn loss(&self) -> Loss {
            self.inner.loss()
        }

        /// Ends work under the lock: a lost lease is an error, a release without an answer is not.
        pub(super) fn end(self) -> Result<()> {
            self.check()?;
            of_the_work(self.release())
        }
    };
}

/// The additional methods of a guard of one lock.
macro_rules! single_methods {
    ($guard:ident) => {
        guard_methods!($guard);

        /// Returns the name of the lock.
        #[must_use]
        pub fn name(&self) -> &LockName {
            self.inner.name()
        }

        /// Returns the fencing token of this hold: greater than that of every earlier grant of the name. Constant; no
        /// I/O.
        #[must_use]
        pub fn fence(&self) -> FencingToken {
            self.inner.fence()
        }

        /// Returns the secret token of this hold, for resources that compare instead of order.
        #[must_use]
        pub fn token(&self) -> &OwnerToken {
            self.inner.token()
        }

        /// Returns the known state of the lease. Reads the clock; no I/O. [`LostReason::Closed`] in a forked child.
        #[must_use]
        pub fn state(&self) -> HoldState {
            if is_forked() { HoldState::Lost(LostReason::Closed) } else { self.inner.state() }
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

    /// Releases the lock and waits for the backend's acknowledgement.
    ///
    /// # Errors
    ///
    /// As [`LockGuard::release`](crate::LockGuard::release).
    pub fn release(self) -> Result<()> {
        wait(self.inner.release())
    }

    /// Ends the guard and keeps the lock taken, without renewals: [`LockGuard::detach`](crate::LockGuard::detach). A
    /// holder of the token, in this process or another one, continues the hold with
    /// [`Lock::adopt`](super::Lock::adopt).
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

    /// Returns the owner of this entry.
    #[must_use]
    pub fn owner(&self) -> &OwnerId {
        self.inner.owner()
    }

    /// Returns the number of entries that the owner had when this one was made, this one included. Constant; no I/O.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.inner.depth()
    }

    /// Undoes this entry and waits for the backend's acknowledgement. Returns the number of entries that the owner has
    /// left; with the last one the lock is free.
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

    /// Returns the guard of each lock, in the order in which they were taken.
    pub fn guards(&self) -> &[crate::LockGuard] {
        self.inner.guards()
    }

    /// Returns the fencing token of one of the locks, the first of this name; `None` for a name that is not among them.
    #[must_use]
    pub fn fence(&self, name: impl AsRef<[u8]>) -> Option<FencingToken> {
        self.inner.fence(name)
    }

    /// Releases all locks, the last taken first.
    ///
    /// # Errors
    ///
    /// As [`LockAllGuard::release`](crate::LockAllGuard::release).
    pub fn release(self) -> Result<()> {
        wait(self.inner.release())
    }
}

/// Checks that work was finished under its lock, by the release that followed it.
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
