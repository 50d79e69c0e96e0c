//! Re-entrant locks: the same owner may enter again.

use std::sync::Arc;
use std::time::Duration;

use crate::client::Client;
use crate::driver::{Exited, Holder, ReentrantEntry};
use crate::engine::hold::HeldEntry;
use crate::engine::local_handover::LocalQueues;
use crate::engine::shared::Shared;
use crate::engine::wait::{Patience, acquire};
use crate::lock::{Lock, Options, guard_methods, option_setters, unless_lost};
use crate::value::error::{Error, ErrorKind, LockName, Result};
use crate::value::token::OwnerId;

// A lock as one owner sees it.

/// A handle on one lock, to be entered and re-entered by one owner. Cheap to make and to clone; holds nothing.
///
/// Who the owner is, is a value ([`OwnerId`]): not the thread, not the task, not this handle. Every entry has a guard
/// of its own, all guards of one hold share its lease and its fencing token, and are lost together. Guards may be
/// dropped in any order; the last one frees the lock.
///
/// The names are those of plain locks: a name held by [`Lock`](crate::Lock) is busy here, and the other way round.
#[derive(Clone, Debug)]
pub struct Reentrant {
    local_queues: Arc<LocalQueues>,
    /// Or why there is no such name: the error of every call.
    name: Result<LockName>,
    owner: OwnerId,
    options: Options,
}

impl Client {
    /// A handle on the lock of this name, to be entered and re-entered by `owner`. Cheap; does no I/O.
    ///
    /// A bad name is refused as by [`Client::lock`]. With a driver that has no re-entrant locks every call fails with
    /// [`ErrorKind::Unsupported`]; [`reentrant_capabilities`](Self::reentrant_capabilities) says so beforehand.
    pub fn reentrant(&self, name: impl AsRef<[u8]>, owner: &OwnerId) -> Reentrant {
        let (local_queues, name) = (Arc::clone(&self.local_queues), LockName::new(name));
        Reentrant { local_queues, name, owner: *owner, options: Options::default() }
    }
}

impl Reentrant {
    /// The name of the lock.
    ///
    /// # Errors
    ///
    /// As [`Lock::name`](crate::Lock::name).
    pub fn name(&self) -> Result<&LockName> {
        self.name.as_ref().map_err(Error::clone)
    }

    /// Who enters.
    #[must_use]
    pub fn owner(&self) -> &OwnerId {
        &self.owner
    }

    option_setters!();

    /// Enters if the lock is free or the owner's own; `None` if another has it.
    ///
    /// # Errors
    ///
    /// As [`Lock::try_acquire`](crate::Lock::try_acquire); [`ErrorKind::LimitReached`](crate::ErrorKind::LimitReached)
    /// also when the owner is in as deep as the driver allows.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves no entry behind: what was sent is undone with the same token.
    pub async fn try_acquire(&self) -> Result<Option<ReentrantGuard>> {
        self.take(Patience::None).await
    }

    /// Enters, waiting as long as it takes.
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

    /// Enters, waiting as long as it takes, does the work for as long as the lease lasts, and leaves again, as
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

    /// The owner's hold, as the backend has it: how deep it is inside, under which fence, for how long. `None` if the owner is
    /// not inside. One look, which changes nothing; by the time of the answer it may be otherwise.
    ///
    /// Where [`OwnerScope::Process`](crate::driver::OwnerScope::Process) is declared, an owner of another process is not seen.
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

    /// The name, where there are re-entrant locks at all.
    fn supported(&self) -> Result<&LockName> {
        if self.shared().backend.reentrant().is_none() {
            let text = format!("the driver \"{}\" has no re-entrant locks", self.shared().driver());
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        self.name()
    }

    async fn take(&self, patience: Patience) -> Result<Option<ReentrantGuard>> {
        let name = self.supported()?;
        let ask = self.options.ask(name, Some(self.owner), self.shared().config.ttl);
        let ask = ask.map_err(|error| error.during(self.shared().driver(), "acquire", name))?;
        Ok(acquire(&self.local_queues, &ask, patience).await?.map(|held| ReentrantGuard::new(held, self.owner)))
    }
}

// The guard of one entry.

/// One entry of a re-entrant lock. What is said of [`LockGuard`](crate::LockGuard) holds here too.
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

    /// Whose entry this is.
    #[must_use]
    pub fn owner(&self) -> &OwnerId {
        &self.owner
    }

    /// How many entries the owner had when this one was made, this one included. Constant; no I/O.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.held.depth()
    }

    /// Undoes this entry and waits for the backend's word. Returns how many entries of the owner are left; with the last one
    /// the lock is free.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`], with the reason, when the hold had ended before; nobody else's lock was touched. Otherwise whatever
    /// the driver reports: the exit goes on in the background with the same token.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future is like dropping the guard: the exit goes on in the background.
    pub async fn release(self) -> Result<u32> {
        let (name, owner) = (self.name().clone(), self.owner);
        let call = |shared: Arc<Shared>, token, _| async move {
            let Some(driver) = shared.backend.reentrant() else {
                return Err(Error::new(ErrorKind::Unsupported, "this driver has no re-entrant locks"));
            };
            Ok(match driver.exit(&ReentrantEntry { name, owner, token }).await? {
                Exited::Inside { depth } => Some(depth),
                Exited::Released => Some(0),
                Exited::NotHeld => None,
            })
        };
        self.held.give_back(call).await
    }
}
