//! A lock as one owner sees it.

use std::sync::Arc;
use std::time::Duration;

use super::ReentrantGuard;
use crate::driver::Holder;
use crate::engine::shared::Shared;
use crate::engine::wait::{Patience, acquire};
use crate::lock::{Lock, Options, option_setters, unless_lost};
use crate::value::error::Result;
use crate::value::name::LockName;
use crate::value::token::OwnerId;

/// A handle on one lock, to be entered and re-entered by one owner. Cheap to make and to clone; holds nothing.
///
/// Who the owner is, is a value ([`OwnerId`]): not the thread, not the task, not this handle. Every entry has a guard
/// of its own, all guards of one hold share its lease and its fencing token, and are lost together. Guards may be
/// dropped in any order; the last one frees the lock.
///
/// The names are those of plain locks: a name held by [`Lock`](crate::Lock) is busy here, and the other way round.
#[derive(Clone, Debug)]
pub struct Reentrant {
    shared: Arc<Shared>,
    name: LockName,
    owner: OwnerId,
    options: Options,
}

impl Reentrant {
    pub(crate) fn new(shared: Arc<Shared>, name: LockName, owner: OwnerId) -> Self {
        Self { shared, name, owner, options: Options::default() }
    }

    /// The name of the lock.
    #[must_use]
    pub fn name(&self) -> &LockName {
        &self.name
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
        let seen = Lock::new(Arc::clone(&self.shared), self.name.clone()).inspect().await?;
        Ok(seen.holder.filter(|holder| holder.owner == Some(self.owner)))
    }

    async fn take(&self, patience: Patience) -> Result<Option<ReentrantGuard>> {
        let ask = self
            .options
            .ask(&self.name, Some(self.owner), &self.shared.config)
            .map_err(|error| error.during(self.shared.driver(), "acquire", &self.name))?;
        Ok(acquire(&self.shared, &ask, patience).await?.map(|held| ReentrantGuard::new(held, self.owner)))
    }
}
