//! Read-write locks: many readers, or one writer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::client::Client;
use crate::driver::{Family, ForceReleased, PermitInspection, Share};
use crate::engine::ask::{Options, WaitProgress};
use crate::engine::hold::HeldEntry;
use crate::engine::wait::Patience;
use crate::lock::{guard_methods, option_setters};
use crate::permits::{Target, certain, release};
use crate::value::error::{Error, LockName, Result};
use crate::value::token::FencingToken;

/// A handle on one read-write lock, with the options of its acquisitions. Cheap to make and to clone; holds nothing.
///
/// Readers hold it together; a writer holds it alone. An *upgradable* reader holds it beside readers, and may become a
/// writer without letting another writer in between; there is at most one at a time.
///
/// Waiters are served in order of arrival, where the driver keeps a line
/// ([`permit_capabilities`](Client::permit_capabilities)): readers that arrive behind a waiting writer wait for it, so
/// neither starves the other. **A task that reads, and reads again while a writer waits, waits for itself**: use
/// [`ReadGuard::share`] instead of a second request. With the feature `tracing`, a wait that outlasts its ttl while a
/// hold of the same client blocks it logs the event `tenure.waits_for_own_client`.
///
/// ```
/// # use tenure_core as tenure;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tenure::Result<()> {
/// # let client = tenure::Client::new(tenure_memory::MemoryDriver::new());
/// let prices = client.rw_lock("prices");
/// let (one, other) = (prices.read().await?, prices.read().await?);
/// assert!(prices.try_write().await?.is_none());
/// one.release().await?;
/// other.release().await?;
///
/// let guard = prices.upgradable().await?;
/// // … read, and find that something has to be written …
/// let guard = guard.upgrade().await?;
/// let guard = guard.downgrade().await?;
/// assert!(prices.try_read().await?.is_some());
/// # drop(guard);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RwLock {
    target: Target,
    options: Options,
}

impl Client {
    /// Returns a handle on the read-write lock of this name. Cheap; does no I/O.
    ///
    /// An invalid name is refused as by [`Client::lock`]. With a driver that has no read-write locks, every call fails
    /// with [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported);
    /// [`permit_capabilities`](Self::permit_capabilities) shows this beforehand.
    pub fn rw_lock(&self, name: impl AsRef<[u8]>) -> RwLock {
        let (local_queues, name) = (Arc::clone(&self.local_queues), LockName::new(name));
        RwLock { target: Target { local_queues, family: Family::RwLock, name }, options: Options::alone() }
    }
}

/// Three ways to take a share: at once, with patience, and with a limit.
macro_rules! takes {
    ($guard:ident, $share:expr, $what:literal, $try:ident, $take:ident, $within:ident) => {
        #[doc = concat!("Takes the lock ", $what, " if that is possible now and no client waits; returns `None` if not.")]
        ///
        /// # Errors
        ///
        /// As [`Lock::try_acquire`](crate::Lock::try_acquire).
        ///
        /// # Cancel safety
        ///
        /// Dropping the future leaves no hold behind: the client undoes the sent request with the same token.
        pub async fn $try(&self) -> Result<Option<$guard>> {
            Ok(self.target.take(&self.options, $share, Patience::None).await?.map($guard::new))
        }

        #[doc = concat!("Takes the lock ", $what, ", waiting without a limit.")]
        ///
        /// # Errors
        ///
        /// As [`Lock::acquire`](crate::Lock::acquire).
        ///
        /// # Cancel safety
        ///
        /// Dropping the future gives up the place in the line and leaves no hold behind.
        pub async fn $take(&self) -> Result<$guard> {
            Ok($guard::new(certain(self.target.take(&self.options, $share, Patience::Unlimited).await?)))
        }

        #[doc = concat!("Takes the lock ", $what, ", waiting for at most `most`; zero is one attempt.")]
        ///
        /// # Errors
        ///
        /// As [`Lock::acquire_within`](crate::Lock::acquire_within).
        ///
        /// # Cancel safety
        ///
        /// Dropping the future gives up the place in the line and leaves no hold behind.
        pub async fn $within(&self, most: Duration) -> Result<$guard> {
            Ok($guard::new(certain(self.target.take(&self.options, $share, Patience::Within(most)).await?)))
        }
    };
}

impl RwLock {
    /// Returns the name of the lock.
    ///
    /// # Errors
    ///
    /// As [`Lock::name`](crate::Lock::name).
    pub fn name(&self) -> Result<&LockName> {
        self.target.name()
    }

    option_setters!();

    /// Shows the number of waiters ahead, as [`Lock::progress`](crate::Lock::progress) does.
    #[must_use]
    pub fn progress(mut self, progress: &WaitProgress) -> Self {
        self.options.progress = Some(progress.clone());
        self
    }

    takes!(ReadGuard, Share::READER, "for reading, beside other readers", try_read, read, read_within);
    takes!(WriteGuard, Share::WRITER, "for writing, alone", try_write, write, write_within);
    takes!(
        UpgradableGuard,
        Share::UPGRADABLE,
        "for reading, beside readers but not beside another upgradable one",
        try_upgradable,
        upgradable,
        upgradable_within
    );

    /// Returns the first 100 holders in order of their fences, and the number of waiters. A holder's
    /// [`share`](crate::PermitHolder::share) is [`Share::READER`], [`Share::UPGRADABLE`] or [`Share::WRITER`]. Changes
    /// nothing.
    ///
    /// # Errors
    ///
    /// As [`Lock::inspect`](crate::Lock::inspect).
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing is changed.
    pub async fn inspect(&self) -> Result<PermitInspection> {
        self.target.inspect().await
    }

    /// Takes the lock from the holder with this fence, as [`Lock::force_release_if`](crate::Lock::force_release_if)
    /// does. No other holder is affected.
    ///
    /// # Errors
    ///
    /// As [`Lock::force_release`](crate::Lock::force_release).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the lock may or may not be taken.
    pub async fn evict(&self, fence: FencingToken) -> Result<ForceReleased> {
        self.target.evict(fence).await
    }
}

/// A read-write lock held for reading. The documentation of [`LockGuard`](crate::LockGuard) applies here too.
///
/// **Dropping the guard gives the hold back, but not at once**: its token goes to the client's reaper.
#[derive(Debug)]
#[must_use = "dropping the guard gives the hold back"]
pub struct ReadGuard {
    held: Arc<HeldEntry>,
}

impl ReadGuard {
    fn new(held: HeldEntry) -> Self {
        Self { held: Arc::new(held) }
    }

    guard_methods!();

    /// Makes another guard of the same hold, with the same lease and the same fence: no request, no wait. For a task of
    /// this process that reads too. The hold is given back with its last guard.
    pub fn share(&self) -> Self {
        Self { held: Arc::clone(&self.held) }
    }

    /// Gives the hold back and waits for the backend's acknowledgement; does nothing while the hold has another guard.
    ///
    /// # Errors
    ///
    /// As [`LockGuard::release`](crate::LockGuard::release).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future is like dropping the guard: the release continues in the background.
    pub async fn release(self) -> Result<()> {
        match Arc::into_inner(self.held) {
            Some(held) => release(held).await,
            None => Ok(()),
        }
    }
}

/// A read-write lock held for reading, which may become a writer's. The documentation of
/// [`LockGuard`](crate::LockGuard) applies here too.
///
/// **Dropping the guard gives the hold back, but not at once**: its token goes to the client's reaper.
#[derive(Debug)]
#[must_use = "dropping the guard gives the hold back"]
pub struct UpgradableGuard {
    held: HeldEntry,
    /// The number of its last change.
    step: u32,
}

/// An upgrade that did not happen, and the hold, which is as it was.
pub struct NotUpgraded {
    /// The hold. If the [error](Self::error) is a loss, it reports that loss.
    pub guard: UpgradableGuard,
    /// The reason.
    pub error: Error,
}

impl fmt::Debug for NotUpgraded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NotUpgraded").field("error", &self.error).finish_non_exhaustive()
    }
}

impl fmt::Display for NotUpgraded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for NotUpgraded {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.error)
    }
}

impl From<NotUpgraded> for Error {
    /// Gives the hold back in the background.
    fn from(refused: NotUpgraded) -> Self {
        refused.error
    }
}

impl UpgradableGuard {
    fn new(held: HeldEntry) -> Self {
        Self { held, step: 0 }
    }

    guard_methods!();

    /// Makes this hold a writer's, waiting until all readers have left. The request comes before all waiters, and while
    /// it waits no reader is let in. The guard that it returns has a greater fence, and the same lease.
    ///
    /// # Errors
    ///
    /// [`NotUpgraded`], with the guard and the driver's error; [`ErrorKind::Lost`](crate::ErrorKind::Lost) when the
    /// lease has ended. An upgrade whose request is without an answer is withdrawn in the background.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives the hold back: the future owns the guard.
    pub async fn upgrade(self) -> Result<WriteGuard, NotUpgraded> {
        self.grow(Patience::Unlimited).await
    }

    /// Makes this hold a writer's as [`upgrade`](Self::upgrade) does, waiting for at most `most`.
    ///
    /// # Errors
    ///
    /// As [`upgrade`](Self::upgrade); [`ErrorKind::TimedOut`](crate::ErrorKind::TimedOut) when readers were still there.
    ///
    /// # Cancel safety
    ///
    /// As for [`upgrade`](Self::upgrade).
    pub async fn upgrade_within(self, most: Duration) -> Result<WriteGuard, NotUpgraded> {
        self.grow(Patience::Within(most)).await
    }

    /// Makes this hold a writer's if there are no readers now, in one request.
    ///
    /// # Errors
    ///
    /// As [`upgrade_within`](Self::upgrade_within).
    ///
    /// # Cancel safety
    ///
    /// As for [`upgrade`](Self::upgrade).
    pub async fn try_upgrade(self) -> Result<WriteGuard, NotUpgraded> {
        self.grow(Patience::None).await
    }

    async fn grow(mut self, patience: Patience) -> Result<WriteGuard, NotUpgraded> {
        let step = self.step + 1;
        self.step += 2; // a withdrawal has the second number
        match self.held.grow(Share::UPGRADABLE, Share::WRITER, step, patience).await {
            Ok(()) => Ok(WriteGuard { held: self.held, step }),
            Err(error) => Err(NotUpgraded { guard: self, error }),
        }
    }

    /// Makes this hold a plain reader's, with the same lease and fence. It is that from the moment that the request
    /// leaves: without an answer, the client repeats it in the background.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) when the lease has ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives the hold back: the future owns the guard.
    pub async fn downgrade(self) -> Result<ReadGuard> {
        self.held.shrink(Share::READER, self.step + 1, "downgrade").await?;
        Ok(ReadGuard::new(self.held))
    }

    /// Gives the hold back and waits for the backend's acknowledgement.
    ///
    /// # Errors
    ///
    /// As [`LockGuard::release`](crate::LockGuard::release).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future is like dropping the guard: the release continues in the background.
    pub async fn release(self) -> Result<()> {
        release(self.held).await
    }
}

/// A read-write lock held for writing. The documentation of [`LockGuard`](crate::LockGuard) applies here too.
///
/// **Dropping the guard gives the hold back, but not at once**: its token goes to the client's reaper.
#[derive(Debug)]
#[must_use = "dropping the guard gives the hold back"]
pub struct WriteGuard {
    held: HeldEntry,
    /// The number of its last change.
    step: u32,
}

impl WriteGuard {
    fn new(held: HeldEntry) -> Self {
        Self { held, step: 0 }
    }

    guard_methods!();

    /// Makes this hold a reader's, with the same lease and fence, without letting a writer in between. It is that from
    /// the moment that the request leaves: without an answer, the client repeats it in the background.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) when the lease has ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives the hold back: the future owns the guard.
    pub async fn downgrade(self) -> Result<ReadGuard> {
        self.held.shrink(Share::READER, self.step + 1, "downgrade").await?;
        Ok(ReadGuard::new(self.held))
    }

    /// Makes this hold an upgradable reader's, as [`downgrade`](Self::downgrade) makes it a reader's.
    ///
    /// # Errors
    ///
    /// As [`downgrade`](Self::downgrade).
    ///
    /// # Cancel safety
    ///
    /// As for [`downgrade`](Self::downgrade).
    pub async fn downgrade_to_upgradable(self) -> Result<UpgradableGuard> {
        let step = self.step + 1;
        self.held.shrink(Share::UPGRADABLE, step, "downgrade").await?;
        Ok(UpgradableGuard { held: self.held, step })
    }

    /// Gives the hold back and waits for the backend's acknowledgement.
    ///
    /// # Errors
    ///
    /// As [`LockGuard::release`](crate::LockGuard::release).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future is like dropping the guard: the release continues in the background.
    pub async fn release(self) -> Result<()> {
        release(self.held).await
    }
}
