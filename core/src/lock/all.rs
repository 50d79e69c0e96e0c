//! Several locks at once: all or none.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

use futures_util::future::select_all;

use super::{Lock, LockGuard, unless_lost};
use crate::client::Client;
use crate::engine::hold::Loss;
use crate::engine::wait::Patience;
use crate::value::error::{Error, ErrorKind, LockName, Result};
use crate::value::time::{LeaseInstant, LostReason};
use crate::value::token::FencingToken;

/// A handle on several locks, made by [`Client::lock_all`](crate::Client::lock_all) or [`LockAll::of`].
///
/// The locks are taken one after the other in the order of their names, one round trip each. If one fails, those
/// already taken are released.
#[derive(Clone, Debug)]
pub struct LockAll {
    /// The locks, or the error of every call if they cannot be taken together.
    locks: Result<Vec<Lock>>,
}

impl Client {
    /// Returns a handle on several locks, to be taken all or none. Cheap; does no I/O.
    ///
    /// The names are sorted and repetitions removed, so that overlapping sets never wait for each other in a circle.
    /// [`LockAll::of`] takes locks of several clients.
    ///
    /// Acquiring fails with [`ErrorKind::InvalidArgument`], before anything is sent, when there is no name, more than
    /// [`LockAll::MAX_NAMES`], or a bad one.
    pub fn lock_all<N: AsRef<[u8]>>(&self, names: impl IntoIterator<Item = N>) -> LockAll {
        LockAll::of(names.into_iter().map(|name| self.lock(name)))
    }
}

impl LockAll {
    /// The most locks that a handle can have.
    pub const MAX_NAMES: usize = 1_024;

    /// Returns a handle on these locks, of one client or of several, each with its own options. Cheap; does no I/O.
    ///
    /// Overlapping sets never wait for each other in a circle: locks are taken in the order of their names, for all
    /// clients. Locks of the same name through different clients are taken in the given order, because backends have no
    /// other identity that is the same in all processes: give them in the same order everywhere, for example the old
    /// backend before the new one. A lock that is given twice through one client counts once, the first time. Through
    /// two clients of one backend it would wait for itself.
    ///
    /// ```
    /// # mod tenure {
    /// #     pub use tenure_core::*;
    /// #     pub use tenure_memory as memory;
    /// # }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> tenure::Result<()> {
    /// use tenure::memory::MemoryDriver;
    /// use tenure::{Client, LockAll};
    ///
    /// // While a service moves from one backend to another, its new version
    /// // takes each lock on both.
    /// let old = Client::new(MemoryDriver::new());
    /// let new = Client::new(MemoryDriver::new());
    /// let both = LockAll::of([old.lock("orders/42"), new.lock("orders/42")]);
    /// let guard = both.acquire().await?;
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Acquiring fails with [`ErrorKind::InvalidArgument`], before anything is sent, when there is no lock, more than
    /// [`LockAll::MAX_NAMES`], or one with a bad name.
    pub fn of(locks: impl IntoIterator<Item = Lock>) -> Self {
        Self { locks: in_order(locks.into_iter().collect()) }
    }

    fn each(self, set: impl Fn(Lock) -> Lock) -> Self {
        Self { locks: self.locks.map(|locks| locks.into_iter().map(set).collect()) }
    }

    fn locks(&self) -> Result<&[Lock]> {
        self.locks.as_deref().map_err(Error::clone)
    }

    /// Sets [`Lock::ttl`] for every lock.
    #[must_use]
    pub fn ttl(self, ttl: Duration) -> Self {
        self.each(|lock| lock.ttl(ttl))
    }

    /// Sets [`Lock::fixed_ttl`] for every lock. The lease of the first runs while the others are taken.
    #[must_use]
    pub fn fixed_ttl(self, ttl: Duration) -> Self {
        self.each(|lock| lock.fixed_ttl(ttl))
    }

    /// Sets [`Lock::max_hold`] for every lock.
    #[must_use]
    pub fn max_hold(self, most: Duration) -> Self {
        self.each(|lock| lock.max_hold(most))
    }

    /// Sets [`Lock::at_least`] for every lock.
    #[must_use]
    pub fn at_least(self, least: Duration) -> Self {
        self.each(|lock| lock.at_least(least))
    }

    /// Sets [`Lock::label`] for every lock.
    #[must_use]
    pub fn label(self, label: impl Into<String>) -> Self {
        let label = label.into();
        self.each(|lock| lock.label(label.as_str()))
    }

    /// Takes all locks if all are free now; returns `None` if one is not.
    ///
    /// # Errors
    ///
    /// As [`Lock::try_acquire`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves no lock behind.
    pub async fn try_acquire(&self) -> Result<Option<LockAllGuard>> {
        let locks = self.locks()?;
        let mut taken = Vec::with_capacity(locks.len());
        for lock in locks {
            match lock.hold(Patience::None).await? {
                Some(guard) => taken.push(guard),
                None => return Ok(None),
            }
        }
        LockAllGuard::all(taken).map(Some)
    }

    /// Takes all locks, waiting without a limit.
    ///
    /// # Errors
    ///
    /// As [`Lock::acquire`]; [`ErrorKind::Lost`] when one was lost before the last was taken.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves no lock behind.
    pub async fn acquire(&self) -> Result<LockAllGuard> {
        let locks = self.locks()?;
        let mut taken = Vec::with_capacity(locks.len());
        for lock in locks {
            taken.push(lock.hold(Patience::Unlimited).await.map(LockGuard::certain)?);
        }
        LockAllGuard::all(taken)
    }

    /// Takes all locks, waiting for at most `most` together; zero is one attempt each.
    ///
    /// # Errors
    ///
    /// As [`LockAll::acquire`]; [`ErrorKind::TimedOut`] when `most` has passed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves no lock behind.
    pub async fn acquire_within(&self, most: Duration) -> Result<LockAllGuard> {
        let deadline = LeaseInstant::now().after(most);
        let locks = self.locks()?;
        let mut taken = Vec::with_capacity(locks.len());
        for lock in locks {
            let left = deadline.remaining();
            if left.is_zero() && !most.is_zero() {
                let text = format!("{} of {} locks were taken within {most:?}", taken.len(), locks.len());
                return Err(Error::new(ErrorKind::TimedOut, text));
            }
            taken.push(lock.hold(Patience::Within(left)).await.map(LockGuard::certain)?);
        }
        LockAllGuard::all(taken)
    }

    /// Waits for all locks without a limit, runs `work` for as long as all leases last, and releases the locks, as
    /// [`Lock::with`] does.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire) and [`Lock::with`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves no lock behind; the work is dropped, and the locks are released in the background.
    pub async fn with<T>(&self, work: impl AsyncFnOnce(&LockAllGuard) -> T) -> Result<T> {
        let guard = self.acquire().await?;
        let output = guard.run(work(&guard)).await?;
        unless_lost(guard.release().await, output)
    }
}

/// The locks in the order in which they are taken, each once for each client.
fn in_order(given: Vec<Lock>) -> Result<Vec<Lock>> {
    let named: Result<Vec<(LockName, Lock)>> = given.into_iter().map(|lock| Ok((lock.name()?.clone(), lock))).collect();
    let mut named = named?;
    named.sort_by(|(one, _), (other, _)| one.cmp(other)); // stable: those of one name stay in their order
    let mut locks: Vec<(LockName, Lock)> = Vec::with_capacity(named.len());
    for (name, lock) in named {
        let mut of_its_name = locks.iter().rev().take_while(|(known, _)| *known == name);
        if !of_its_name.any(|(_, known)| Arc::ptr_eq(known.shared(), lock.shared())) {
            locks.push((name, lock));
        }
    }
    if locks.is_empty() || locks.len() > LockAll::MAX_NAMES {
        let text = format!("{} locks to take together are outside 1 to {}", locks.len(), LockAll::MAX_NAMES);
        return Err(Error::new(ErrorKind::InvalidArgument, text));
    }
    Ok(locks.into_iter().map(|(_, lock)| lock).collect())
}

/// Several held locks. They count as held only together: the guard is lost with the first lease that ends.
///
/// **Dropping the guard releases all locks, but not at once**, as for [`LockGuard`].
#[derive(Debug)]
#[must_use = "dropping the guard gives the locks back"]
pub struct LockAllGuard {
    guards: Vec<LockGuard>,
}

impl LockAllGuard {
    /// Makes the guard if all locks are still held, and begins them together. Until then no work has been done under
    /// any of them.
    fn all(guards: Vec<LockGuard>) -> Result<Self> {
        let all = Self { guards };
        all.check()?;
        all.guards.iter().for_each(LockGuard::begins);
        Ok(all)
    }

    /// Returns the guard of each lock, in the order in which they were taken.
    pub fn guards(&self) -> &[LockGuard] {
        &self.guards
    }

    /// Returns the fencing token of one of the locks, the first of this name; `None` for a name that is not among them.
    #[must_use]
    pub fn fence(&self, name: impl AsRef<[u8]>) -> Option<FencingToken> {
        self.guards.iter().find(|guard| guard.name().as_bytes() == name.as_ref()).map(LockGuard::fence)
    }

    /// Returns the time that all leases surely last from now: the shortest of them.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.guards.iter().map(LockGuard::remaining).min().unwrap_or_default()
    }

    /// Returns true if all leases are valid now.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.check().is_ok()
    }

    /// Fails if a lease is lost: [`is_held`](Self::is_held) for use with `?`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`], naming the first lock that is lost.
    pub fn check(&self) -> Result<()> {
        self.guards.iter().try_for_each(LockGuard::check)
    }

    /// Resolves when the first lease is lost.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn lost(&self) -> LostReason {
        select_all(self.guards.iter().map(|guard| Box::pin(guard.lost()))).await.0
    }

    /// Returns a handle that reports the first loss among them, as [`LockGuard::loss`] does.
    #[must_use]
    pub fn loss(&self) -> Loss {
        Loss::of(self.guards.iter().map(LockGuard::watched))
    }

    /// Runs `work` for as long as all leases last, as [`LockGuard::run`] does.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`] when a lease ended before the work.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work. The guard remains.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output> {
        let (mut lost, mut work) = (pin!(self.lost()), pin!(work));
        poll_fn(|cx| {
            if let Poll::Ready(reason) = lost.as_mut().poll(cx) {
                let lost = || Error::new(ErrorKind::Lost, reason.to_string());
                return Poll::Ready(Err(self.check().err().unwrap_or_else(lost)));
            }
            self.check()?; // as for one guard
            let output = ready!(work.as_mut().poll(cx));
            Poll::Ready(self.check().map(|()| output))
        })
        .await
    }

    /// Releases all locks, the last taken first.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`] when one of them had been lost before, with the name of the first one found; otherwise the
    /// first error that a driver reports. The others are released nevertheless.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future is like dropping the guard.
    pub async fn release(mut self) -> Result<()> {
        let mut outcome = Ok(());
        while let Some(guard) = self.guards.pop() {
            let released = guard.release().await;
            let known = outcome.as_ref().err().map(Error::is_lost);
            if known.is_none() || (known == Some(false) && released.as_ref().is_err_and(Error::is_lost)) {
                outcome = released;
            }
        }
        outcome
    }
}
