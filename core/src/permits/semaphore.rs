//! Semaphores: a number of permits that holders share.

use std::sync::Arc;
use std::time::Duration;

use crate::client::Client;
use crate::driver::{Family, ForceReleased, PermitInspection, Share};
use crate::engine::ask::{Options, WaitProgress};
use crate::engine::hold::HeldEntry;
use crate::engine::wait::Patience;
use crate::lock::{guard_methods, option_setters, unless_lost};
use crate::permits::{Target, certain, release};
use crate::value::error::{Error, ErrorKind, LockName, Result};
use crate::value::token::FencingToken;

/// A handle on one semaphore, with the options of its acquisitions. Cheap to make and to clone; holds nothing.
///
/// At most `capacity` permits of a semaphore are held at a time, by all clients together. A hold takes one of them, or
/// as many as its [`weight`](Self::weight), all or none. Each hold is a lease: the permits of a process that died come
/// back at the end of its ttl, and no holder affects another's lease.
///
/// Waiters are served in order of arrival, where the driver keeps a line
/// ([`permit_capabilities`](Client::permit_capabilities)): a light request does not overtake a heavy one, which would
/// otherwise wait for ever.
///
/// **The capacity belongs to the request**, and the backend stores none. All clients should name the same. While a
/// deployment changes it, some clients name the old number and some the new one: then the permits held never exceed the
/// greater number, and each request is granted when its own number allows it.
///
/// The semaphore, the [read-write lock](crate::RwLock) and the [lock](crate::Lock) of one name are three different
/// things.
///
/// ```
/// # use tenure_core as tenure;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tenure::Result<()> {
/// # let client = tenure::Client::new(tenure_memory::MemoryDriver::new());
/// // At most three exports at a time, on all machines together.
/// let exports = client.semaphore("exports", 3);
/// let permit = exports.acquire().await?;
/// let large = exports.clone().weight(2).acquire().await?;
/// assert!(exports.try_acquire().await?.is_none());
/// large.release().await?;
/// assert!(exports.try_acquire().await?.is_some());
/// # drop(permit);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Semaphore {
    target: Target,
    share: Share,
    options: Options,
}

impl Client {
    /// Returns a handle on the semaphore of this name, with `capacity` permits. Cheap; does no I/O.
    ///
    /// An invalid name is refused as by [`Client::lock`], and a capacity of zero in the same way. With a driver that has
    /// no semaphores, every call fails with [`ErrorKind::Unsupported`];
    /// [`permit_capabilities`](Self::permit_capabilities) shows this beforehand.
    pub fn semaphore(&self, name: impl AsRef<[u8]>, capacity: u32) -> Semaphore {
        let (local_queues, name) = (Arc::clone(&self.local_queues), LockName::new(name));
        let target = Target { local_queues, family: Family::Semaphore, name };
        Semaphore { target, share: Share { weight: 1, capacity }, options: Options::alone() }
    }
}

impl Semaphore {
    /// Returns the name of the semaphore.
    ///
    /// # Errors
    ///
    /// As [`Lock::name`](crate::Lock::name).
    pub fn name(&self) -> Result<&LockName> {
        self.target.name()
    }

    /// Returns the number of permits that this handle names.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.share.capacity
    }

    /// Sets the number of permits that a hold takes. Default: 1. Zero and more than the capacity are refused with
    /// [`ErrorKind::InvalidArgument`] when permits are requested, before anything is sent.
    #[must_use]
    pub fn weight(mut self, weight: u32) -> Self {
        self.share.weight = weight;
        self
    }

    option_setters!();

    /// Shows the number of waiters ahead, as [`Lock::progress`](crate::Lock::progress) does.
    #[must_use]
    pub fn progress(mut self, progress: &WaitProgress) -> Self {
        self.options.progress = Some(progress.clone());
        self
    }

    /// Takes the permits if they are free now and no client waits for some; returns `None` if not.
    ///
    /// # Errors
    ///
    /// As [`Lock::try_acquire`](crate::Lock::try_acquire).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves no permits behind: the client undoes the sent request with the same token.
    pub async fn try_acquire(&self) -> Result<Option<Permit>> {
        self.take(Patience::None).await
    }

    /// Takes the permits, waiting without a limit.
    ///
    /// # Errors
    ///
    /// As [`Lock::acquire`](crate::Lock::acquire).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the place in the line and leaves no permits behind.
    pub async fn acquire(&self) -> Result<Permit> {
        let held = self.target.take(&self.options, self.share, Patience::Unlimited).await?;
        Ok(Permit { held: certain(held), share: self.share, step: 0 })
    }

    /// Takes the permits, waiting for at most `most`; zero is one attempt.
    ///
    /// # Errors
    ///
    /// As [`Lock::acquire_within`](crate::Lock::acquire_within).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the place in the line and leaves no permits behind.
    pub async fn acquire_within(&self, most: Duration) -> Result<Permit> {
        let held = self.target.take(&self.options, self.share, Patience::Within(most)).await?;
        Ok(Permit { held: certain(held), share: self.share, step: 0 })
    }

    /// Waits for the permits without a limit, runs `work` for as long as the lease lasts, and gives them back, as
    /// [`Lock::with`](crate::Lock::with) does.
    ///
    /// # Errors
    ///
    /// As [`Lock::with`](crate::Lock::with).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the place in the line, or drops the work and gives the permits back in the
    /// background.
    pub async fn with<T>(&self, work: impl AsyncFnOnce(&Permit) -> T) -> Result<T> {
        let permit = self.acquire().await?;
        let output = permit.run(work(&permit)).await?;
        unless_lost(permit.release().await, output)
    }

    async fn take(&self, patience: Patience) -> Result<Option<Permit>> {
        let held = self.target.take(&self.options, self.share, patience).await?;
        Ok(held.map(|held| Permit { held, share: self.share, step: 0 }))
    }

    /// Returns the permits in use, the first 100 holders in order of their fences, and the number of waiters. Changes
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

    /// Takes the permits of the hold with this fence from their holder, as
    /// [`Lock::force_release_if`](crate::Lock::force_release_if) does. No other holder is affected.
    ///
    /// # Errors
    ///
    /// As [`Lock::force_release`](crate::Lock::force_release).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the permits may or may not be taken.
    pub async fn evict(&self, fence: FencingToken) -> Result<ForceReleased> {
        self.target.evict(fence).await
    }
}

/// Held permits of a semaphore. The documentation of [`LockGuard`](crate::LockGuard) applies here too.
///
/// **Dropping the permit gives it back, but not at once**: its token goes to the client's reaper.
///
/// Fences order the grants of a semaphore, but its holders work at the same time: a resource that admits one holder at
/// a time by its [fence](Self::fence) would refuse the others.
#[derive(Debug)]
#[must_use = "dropping the permit gives it back"]
pub struct Permit {
    held: HeldEntry,
    share: Share,
    /// The number of its last change.
    step: u32,
}

impl Permit {
    guard_methods!();

    /// Returns the number of permits.
    #[must_use]
    pub fn weight(&self) -> u32 {
        self.share.weight
    }

    /// Gives back all permits but `weight` of them, and keeps lease and fence. The others count as given back from the
    /// moment that the request leaves: without an answer, the client repeats it in the background.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] for zero, and for more than the permit has; [`ErrorKind::Lost`] when the lease has
    /// ended.
    ///
    /// # Cancel safety
    ///
    /// Once polled, the permits are given back; dropping the future only ends the waiting.
    pub async fn shrink(&mut self, weight: u32) -> Result<()> {
        if weight == 0 || weight > self.share.weight {
            let text = format!("a permit of {} cannot shrink to {weight}", self.share.weight);
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        if weight == self.share.weight {
            return self.check();
        }
        self.share.weight = weight;
        self.step += 1;
        self.held.shrink(self.share, self.step, "shrink").await
    }

    /// Gives the permits back and waits for the backend's acknowledgement.
    ///
    /// # Errors
    ///
    /// As [`LockGuard::release`](crate::LockGuard::release).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future is like dropping the permit: the release continues in the background.
    pub async fn release(self) -> Result<()> {
        release(self.held).await
    }
}
