//! One plain lock, and the methods of all kinds of locks.

use std::time::Duration;

use super::LockGuard;
use super::runtime::wait;
use crate::{FencingToken, LockName, OwnerToken, Result};
use crate::{ForceReleased, Inspection, WaitProgress};

/// A handle on one lock, with the options of its acquisitions. Cheap to make and to clone; holds nothing.
///
/// Not re-entrant: a thread that holds the lock and acquires it again waits for itself. [`Reentrant`](super::Reentrant)
/// is re-entrant.
///
/// For settings without a method here, convert an async [`Lock`](crate::Lock) with `Lock::from`.
#[derive(Clone, Debug)]
pub struct Lock {
    inner: crate::Lock,
}

impl From<crate::Lock> for Lock {
    fn from(inner: crate::Lock) -> Self {
        Self { inner }
    }
}

/// The methods of every handle with a field `inner`.
macro_rules! lock_methods {
    ($async:ty, $guard:ident) => {
        /// Returns the same handle for async code, and for methods without a blocking form.
        #[must_use]
        pub fn as_async(&self) -> &$async {
            &self.inner
        }

        /// Converts to a handle for async code.
        #[must_use]
        pub fn into_async(self) -> $async {
            self.inner
        }

        /// Sets the lease length; the lease is renewed for as long as the guard lives: [`Lock::ttl`](crate::Lock::ttl).
        #[must_use]
        pub fn ttl(self, ttl: std::time::Duration) -> Self {
            Self { inner: self.inner.ttl(ttl) }
        }

        /// Sets a lease of this length that is not renewed: [`Lock::fixed_ttl`](crate::Lock::fixed_ttl).
        #[must_use]
        pub fn fixed_ttl(self, ttl: std::time::Duration) -> Self {
            Self { inner: self.inner.fixed_ttl(ttl) }
        }

        /// Sets the longest time to hold the lock, renewed or not: [`Lock::max_hold`](crate::Lock::max_hold).
        #[must_use]
        pub fn max_hold(self, most: std::time::Duration) -> Self {
            Self { inner: self.inner.max_hold(most) }
        }

        /// Sets a note for operators: [`Lock::label`](crate::Lock::label).
        #[must_use]
        pub fn label(self, label: impl Into<String>) -> Self {
            Self { inner: self.inner.label(label) }
        }

        /// Takes the lock if it is available now; returns `None` if another client has it. Never waits for it.
        ///
        /// # Errors
        ///
        /// As [`Lock::try_acquire`](crate::Lock::try_acquire).
        pub fn try_acquire(&self) -> $crate::Result<Option<$guard>> {
            let taken = $crate::blocking::runtime::wait(self.inner.try_acquire())?;
            Ok(taken.map($guard::from))
        }

        /// Takes the lock, waiting without a limit. The thread sleeps meanwhile.
        ///
        /// # Errors
        ///
        /// As [`Lock::acquire`](crate::Lock::acquire).
        pub fn acquire(&self) -> $crate::Result<$guard> {
            $crate::blocking::runtime::wait(self.inner.acquire()).map($guard::from)
        }

        /// Takes the lock, waiting for at most `most`; zero is one attempt.
        ///
        /// # Errors
        ///
        /// As [`Lock::acquire_within`](crate::Lock::acquire_within).
        pub fn acquire_within(&self, most: std::time::Duration) -> $crate::Result<$guard> {
            $crate::blocking::runtime::wait(self.inner.acquire_within(most)).map($guard::from)
        }

        /// Takes the lock, runs `work` on this thread, and releases the lock, also when the work panics.
        ///
        /// The lease is renewed meanwhile. If it is lost nevertheless, the work is not stopped: it can
        /// [`check`](super::LockGuard::check), and an error is returned instead of its output.
        ///
        /// # Errors
        ///
        /// As [`acquire`](Self::acquire): the work was not begun. [`ErrorKind::Lost`](crate::ErrorKind::Lost) when the
        /// lease had ended before the work did. A release that fails is no error: it continues in the background.
        pub fn with<T>(&self, work: impl FnOnce(&$guard) -> T) -> $crate::Result<T> {
            let guard = self.acquire()?;
            let done = work(&guard);
            guard.end().map(|()| done)
        }
    };
}
pub(super) use lock_methods;

impl Lock {
    lock_methods!(crate::Lock, LockGuard);

    /// Returns the name of the lock.
    ///
    /// # Errors
    ///
    /// As [`Lock::name`](crate::Lock::name).
    pub fn name(&self) -> Result<&LockName> {
        self.inner.name()
    }

    /// Keeps the lock taken for at least this long after the grant, even if it is released earlier:
    /// [`Lock::at_least`](crate::Lock::at_least).
    #[must_use]
    pub fn at_least(self, least: Duration) -> Self {
        Self { inner: self.inner.at_least(least) }
    }

    /// Shows the number of waiters ahead while a thread waits for the lock, to any other thread:
    /// [`Lock::progress`](crate::Lock::progress).
    #[must_use]
    pub fn progress(self, progress: &WaitProgress) -> Self {
        Self { inner: self.inner.progress(progress) }
    }

    /// Continues a hold that was [detached](super::LockGuard::detach), here or in another process:
    /// [`Lock::adopt`](crate::Lock::adopt).
    ///
    /// # Errors
    ///
    /// As [`Lock::adopt`](crate::Lock::adopt).
    pub fn adopt(&self, token: OwnerToken, fence: FencingToken) -> Result<LockGuard> {
        wait(self.inner.adopt(token, fence)).map(LockGuard::from)
    }

    /// Waits until the lock is free, without taking it: [`Lock::until_free`](crate::Lock::until_free).
    ///
    /// # Errors
    ///
    /// As [`Lock::until_free`](crate::Lock::until_free).
    pub fn until_free(&self) -> Result<()> {
        wait(self.inner.until_free())
    }

    /// Returns the lock's holder and the number of waiters.
    ///
    /// # Errors
    ///
    /// As [`Lock::inspect`](crate::Lock::inspect).
    pub fn inspect(&self) -> Result<Inspection> {
        wait(self.inner.inspect())
    }

    /// Takes the lock from its holder. For operators: the holder may be at work.
    ///
    /// # Errors
    ///
    /// As [`Lock::force_release`](crate::Lock::force_release).
    pub fn force_release(&self) -> Result<ForceReleased> {
        wait(self.inner.force_release())
    }

    /// Takes the lock from the hold with this fence only.
    ///
    /// # Errors
    ///
    /// As [`Lock::force_release_if`](crate::Lock::force_release_if).
    pub fn force_release_if(&self, fence: FencingToken) -> Result<ForceReleased> {
        wait(self.inner.force_release_if(fence))
    }
}
