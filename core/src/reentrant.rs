//! Re-entrant locks: the same owner may enter again.

use std::sync::Arc;
use std::time::Duration;

use crate::client::Client;
use crate::driver::{ErrorExt as _, Exited, Holder, ReentrantEntry};
use crate::engine::ask::Wanted;
use crate::engine::hold::HeldEntry;
use crate::engine::local_handover::LocalQueues;
use crate::engine::shared::Shared;
use crate::engine::wait::{Patience, acquire};
use crate::lock::{Lock, Options, guard_methods, option_setters, unless_lost};
use crate::value::error::{Error, LockName, Result};
use crate::value::token::OwnerId;

// A lock as one owner sees it.

/// A handle on one lock, to be entered and re-entered by one owner. Cheap to make and to clone; holds nothing.
///
/// The owner is a value ([`OwnerId`]), not the thread, the task or this handle. Every entry has its own guard; all
/// guards of one hold share its lease and its fencing token, and are lost together. Guards may be dropped in any order;
/// the last one frees the lock.
///
/// The names are those of plain locks: a name held by [`Lock`](crate::Lock) is busy here, and the reverse.
///
/// ```
/// # use tenure_core as tenure;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tenure::Result<()> {
/// # let client = tenure::Client::new(tenure_memory::MemoryDriver::new());
/// use tenure::OwnerId;
///
/// // Pass the owner down the call stack.
/// let owner = OwnerId::new();
/// let order = client.reentrant("orders/42", &owner);
/// let outer = order.acquire().await?;
/// let inner = order.acquire().await?;
/// assert_eq!((inner.depth(), inner.fence()), (2, outer.fence()));
///
/// let other = client.reentrant("orders/42", &OwnerId::new());
/// assert!(other.try_acquire().await?.is_none());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Reentrant {
    local_queues: Arc<LocalQueues>,
    /// The name, or the error of every call if the name is invalid.
    name: Result<LockName>,
    owner: OwnerId,
    options: Options,
}

impl Client {
    /// Returns a handle on the lock of this name, to be entered and re-entered by `owner`. Cheap; does no I/O.
    ///
    /// An invalid name is refused as by [`Client::lock`]. With a driver that has no re-entrant locks, every call fails
    /// with [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported); [`reentrant_capabilities`](Self::reentrant_capabilities) shows this beforehand.
    pub fn reentrant(&self, name: impl AsRef<[u8]>, owner: &OwnerId) -> Reentrant {
        let (local_queues, name) = (Arc::clone(&self.local_queues), LockName::new(name));
        Reentrant { local_queues, name, owner: *owner, options: Options::default() }
    }
}

impl Reentrant {
    /// Returns the name of the lock.
    ///
    /// # Errors
    ///
    /// As [`Lock::name`](crate::Lock::name).
    pub fn name(&self) -> Result<&LockName> {
        self.name.as_ref().map_err(Error::clone)
    }

    /// Returns the owner that enters.
    #[must_use]
    pub fn owner(&self) -> &OwnerId {
        &self.owner
    }

    option_setters!();

    /// Enters if the lock is free or the owner's own; returns `None` if another owner has it.
    ///
    /// # Errors
    ///
    /// As [`Lock::try_acquire`](crate::Lock::try_acquire); [`ErrorKind::LimitReached`](crate::ErrorKind::LimitReached)
    /// also when the owner has as many entries as the driver allows.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves no entry behind: the client undoes the sent request with the same token.
    pub async fn try_acquire(&self) -> Result<Option<ReentrantGuard>> {
        self.take(Patience::None).await
    }

    /// Enters, waiting without a limit.
    ///
    /// # Errors
    ///
    /// As [`Lock::acquire`](crate::Lock::acquire).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the place in the queue and leaves no entry behind.
    pub async fn acquire(&self) -> Result<ReentrantGuard> {
        self.take(Patience::Unlimited).await.map(ReentrantGuard::certain)
    }

    /// Enters, waiting for at most `most`; zero is one attempt.
    ///
    /// # Errors
    ///
    /// As [`Lock::acquire_within`](crate::Lock::acquire_within).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the place in the queue and leaves no entry behind.
    pub async fn acquire_within(&self, most: Duration) -> Result<ReentrantGuard> {
        self.take(Patience::Within(most)).await.map(ReentrantGuard::certain)
    }

    /// Enters, waiting without a limit, runs `work` for as long as the lease lasts, and leaves again, as
    /// [`Lock::with`](crate::Lock::with) does.
    ///
    /// # Errors
    ///
    /// As [`Lock::with`](crate::Lock::with).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the place in the queue, or drops the work and leaves in the background.
    pub async fn with<T>(&self, work: impl AsyncFnOnce(&ReentrantGuard) -> T) -> Result<T> {
        let guard = self.acquire().await?;
        let output = guard.run(work(&guard)).await?;
        unless_lost(guard.release().await, output)
    }

    /// Returns the owner's hold from the backend: its depth, its fence and its remaining time. `None` if the owner is
    /// not inside. One request, which changes nothing; the hold may have changed by the time of the answer.
    ///
    /// Where [`OwnerScope::Process`](crate::driver::OwnerScope::Process) is declared, owners of other processes are not
    /// seen.
    ///
    /// # Errors
    ///
    /// As [`Lock::inspect`](crate::Lock::inspect).
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing is changed.
    pub async fn held(&self) -> Result<Option<Holder>> {
        let name = self.supported()?.clone();
        let seen = Lock::new(Arc::clone(&self.local_queues), Ok(name)).inspect().await?;
        Ok(seen.holder.filter(|holder| holder.owner == Some(self.owner)))
    }

    fn shared(&self) -> &Shared {
        self.local_queues.shared()
    }

    /// Returns the name, if the driver has re-entrant locks.
    fn supported(&self) -> Result<&LockName> {
        self.shared().backend.required_reentrant()?;
        self.name()
    }

    async fn take(&self, patience: Patience) -> Result<Option<ReentrantGuard>> {
        let name = self.supported()?;
        let ask = self.options.ask(name, Wanted::Entry(self.owner), self.shared().config.ttl);
        let ask = ask.map_err(|error| error.during(self.shared().driver(), "acquire", name))?;
        Ok(acquire(&self.local_queues, &ask, patience).await?.map(|held| ReentrantGuard::new(held, self.owner)))
    }
}

// The guard of one entry.

/// One entry of a re-entrant lock. The documentation of [`LockGuard`](crate::LockGuard) applies here too.
///
/// **Dropping the guard undoes its entry, but not at once**: its token goes to the client's reaper.
#[derive(Debug)]
#[must_use = "dropping the guard leaves the lock"]
pub struct ReentrantGuard {
    held: HeldEntry,
    owner: OwnerId,
}

impl ReentrantGuard {
    pub(crate) fn new(held: HeldEntry, owner: OwnerId) -> Self {
        Self { held, owner }
    }

    /// For patience that always ends in a guard or an error.
    pub(crate) fn certain(guard: Option<Self>) -> Self {
        guard.expect("waiting ends with a lock or an error")
    }

    guard_methods!();

    /// Returns the owner of this entry.
    #[must_use]
    pub fn owner(&self) -> &OwnerId {
        &self.owner
    }

    /// Returns the number of entries that the owner had when this one was made, this one included. Constant; no I/O.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.held.depth()
    }

    /// Undoes this entry and waits for the backend's acknowledgement. Returns the number of entries that the owner has
    /// left; with the last one the lock is free.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost), with the reason, when the hold had ended before; no other hold was touched. Otherwise the
    /// driver's error: the exit continues in the background with the same token.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future is like dropping the guard: the exit continues in the background.
    pub async fn release(self) -> Result<u32> {
        let (name, owner) = (self.name().clone(), self.owner);
        let call = |shared: Arc<Shared>, token, _| async move {
            let driver = shared.backend.required_reentrant()?;
            Ok(match driver.exit(&ReentrantEntry { name, owner, token }).await? {
                Exited::Inside { depth } => Some(depth),
                Exited::Released => Some(0),
                Exited::NotHeld => None,
            })
        };
        self.held.give_back(call).await
    }
}
