//! The guard of a plain lock, and what all guards can do.

use std::sync::Arc;
use std::time::Duration;

use crate::driver::{Hold, LockTurn, Released};
use crate::engine::hold::{HeldEntry, LooseHold, Watched};
use crate::engine::lease::outlast;
use crate::engine::shared::Shared;
use crate::value::clock::LeaseInstant;
use crate::value::error::{LockName, Result};
use crate::value::token::{FencingToken, OwnerToken};

/// A held lock. It is a *lease*: it protects from concurrent work while this process is scheduled and clocks run at
/// about the same rate. Give [`fence`](LockGuard::fence) to the resource, and a paused process does no harm either.
///
/// **Dropping the guard gives the lock back, but not at once**: its token goes to the client's reaper, which calls the
/// backend until it is acknowledged. Dropping never blocks, and works outside a runtime.
/// [`release`](LockGuard::release) is the form that can be awaited. With [`Lock::at_least`](crate::Lock::at_least) it is given
/// back when the rest of that span is over.
///
/// **A forgotten guard** (`std::mem::forget`) is renewed as long as the process lives, unless the lock has a
/// [`max_hold`](crate::Lock::max_hold).
#[derive(Debug)]
#[must_use = "dropping the guard gives the lock back"]
pub struct LockGuard {
    held: HeldEntry,
}

/// A hold without a guard: what somebody else needs to go on with it; made by [`LockGuard::detach`].
#[derive(Clone, Debug)]
#[must_use = "no task renews the lease; adopt it, or it ends by itself"]
#[non_exhaustive]
pub struct Detached {
    /// Which lock.
    pub name: LockName,
    /// Who has this, has the lock. A secret: [`OwnerToken::expose`] to send it, [`OwnerToken::parse`] to read it.
    pub token: OwnerToken,
    /// The fence of the hold.
    pub fence: FencingToken,
    /// How long the lease surely lasted when it was detached.
    pub remaining: Duration,
}

impl LockGuard {
    /// Of a hold that nobody works under yet: whatever [span](crate::Lock::at_least) it was asked to stand for, it is given back at
    /// once if the guard is dropped before it [begins](Self::begins).
    pub(super) fn new(held: HeldEntry) -> Self {
        Self { held }
    }

    /// Comes to whoever asked for it.
    pub(super) fn begins(&self) {
        self.held.begins();
    }

    /// For patience that always ends in a guard or an error.
    pub(crate) fn certain(guard: Option<Self>) -> Self {
        guard.expect("waiting ends with a lock or an error")
    }

    pub(crate) fn let_loose(self) -> Option<LooseHold> {
        self.held.let_loose()
    }

    /// Leaves the hold to whoever has its token, in this process or another one: the lock stays taken, nobody renews the lease,
    /// and [`Lock::adopt`](crate::Lock::adopt) goes on with it. [`extend`](Self::extend) the lease before if that may take long. What
    /// [`at_least`](crate::Lock::at_least) asked for ends here; whoever adopts may ask for a span of its own, from then on.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) when the lease has ended;
    /// [`ErrorKind::Indeterminate`](crate::ErrorKind::Indeterminate) when a request of the token is still without an answer, which
    /// could take the lock again behind a release: the lock is then given back.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives the lock back, as dropping the guard does.
    pub async fn detach(self) -> Result<Detached> {
        let lease = Arc::clone(self.held.lease());
        let LockTurn { lock: name, token, fence } = self.held.detach().await?;
        Ok(Detached { name, token, fence, remaining: lease.deadline().remaining() })
    }

    pub(super) fn watched(&self) -> Watched {
        self.held.watched()
    }

    guard_methods!();

    /// Gives the lock back and waits for the backend's word; or gives it to the client's next waiter, see
    /// [`holders_per_grant`](crate::ClientBuilder::holders_per_grant); or sees to it that the lease is left standing, see
    /// [`Lock::at_least`](crate::Lock::at_least).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost), with the reason, when the lease had ended before, so that somebody else may
    /// have been at work since; nobody else's lock was touched. Otherwise whatever the driver reports: the release goes on in
    /// the background with the same token, and the lease is no longer renewed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future is like dropping the guard: the release goes on in the background.
    pub async fn release(mut self) -> Result<()> {
        if self.held.pass_on() {
            return Ok(());
        }
        let (name, lease) = (self.name().clone(), Arc::clone(self.held.lease()));
        let call = |shared: Arc<Shared>, token, stands_until: Option<LeaseInstant>| async move {
            if let Some(until) = stands_until
                && outlast(&shared.backend, shared.config.drift, &lease, until).await?
            {
                return Ok(Some(()));
            }
            let released = shared.backend.locks().release(&Hold { name, token }).await?;
            Ok((released == Released::Released).then_some(()))
        };
        self.held.give_back(call).await
    }
}

/// What every guard with a field `held` can do.
macro_rules! guard_methods {
    () => {
        /// The name of the lock.
        #[must_use]
        pub fn name(&self) -> &$crate::LockName {
            self.held.lease().name()
        }

        /// The fencing token of this hold: greater than that of every earlier grant of the name. Constant; no I/O.
        #[must_use]
        pub fn fence(&self) -> $crate::FencingToken {
            self.held.fence()
        }

        /// The secret token of this hold, for resources that compare instead of order. Not to be adopted: the lease may
        /// have been passed on within the client by then, or be left standing. Only the token of a
        /// [`Detached`](crate::Detached) hold is.
        #[must_use]
        pub fn token(&self) -> &$crate::OwnerToken {
            self.held.token()
        }

        /// How long the lease surely lasts from now if no renewal succeeds any more; zero once it is lost.
        #[must_use]
        pub fn remaining(&self) -> std::time::Duration {
            self.held.lease().remaining()
        }

        /// What is known of the lease now. Reads the clock; no I/O, no task needed.
        #[must_use]
        pub fn state(&self) -> $crate::HoldState {
            self.held.lease().state()
        }

        /// Whether the lease lasts at this moment. Reads the clock; no I/O, no task needed.
        #[must_use]
        pub fn is_held(&self) -> bool {
            self.check().is_ok()
        }

        /// As [`is_held`](Self::is_held), for use with `?`.
        ///
        /// # Errors
        ///
        /// [`ErrorKind::Lost`](crate::ErrorKind::Lost), with the reason.
        pub fn check(&self) -> $crate::Result<()> {
            self.held.check()
        }

        /// Resolves when the lease is lost, no later than its deadline, and without an answer from anywhere. Never
        /// resolves for a lock that is released.
        ///
        /// Timers stand still while the machine is suspended: a lease that ended then is told within a second of the
        /// resume. [`is_held`](Self::is_held) and [`run`](Self::run) read the clock and need no timer.
        ///
        /// # Cancel safety
        ///
        /// Safe.
        pub async fn lost(&self) -> $crate::LostReason {
            self.held.lease().lost().await
        }

        /// Renews the lease to `ttl` from now: one more time for a fixed lease, or ahead of work that blocks the runtime for one that is
        /// renewed anyway. [`remaining`](Self::remaining) is then `ttl` less the way there and the
        /// [drift bound](crate::DriftBound), or as long as before: it is never shortened. A [`max_hold`](crate::Lock::max_hold) stays
        /// what it is.
        ///
        /// # Errors
        ///
        /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) for a ttl out of range, or one that the drift bound
        /// eats, before anything is sent; [`ErrorKind::Lost`](crate::ErrorKind::Lost) when the lease has ended; otherwise whatever the driver reports:
        /// the lease then lasts as long as was known before.
        ///
        /// # Cancel safety
        ///
        /// Dropping the future may leave the lease extended or not.
        /// Keep it and poll it no more, and it is given up when its time for an answer is over: the client's `op_timeout`, the
        /// ttl or a quarter of what is left of the lease, whichever is least. Until then the lease is not renewed, and a release
        /// waits. Polled again after that, it sends nothing and fails.
        pub async fn extend(&self, ttl: std::time::Duration) -> $crate::Result<()> {
            self.held.extend(ttl).await
        }

        /// Tells the loss of this hold to others: it can be cloned, sent to a task, and watched while the guard is released.
        #[must_use]
        pub fn loss(&self) -> $crate::Loss {
            $crate::Loss::of([self.held.watched()])
        }

        /// Runs `work` for as long as the lease lasts: when it is lost, the work is dropped where it stands. After the
        /// end of the lease it is not polled any more, by the clock.
        ///
        /// Work that blocks its thread cannot be dropped; check [`is_held`](Self::is_held) in it.
        ///
        /// # Errors
        ///
        /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) when the lease ended before the work, also if the work came to
        /// its end before anybody noticed.
        ///
        /// # Cancel safety
        ///
        /// Dropping the future drops the work. The guard stays.
        pub async fn run<F: Future>(&self, work: F) -> $crate::Result<F::Output> {
            self.held.run(work).await
        }
    };
}
pub(crate) use guard_methods;

/// What became of work that was done under a lock: its output, unless the release finds that the lock had been lost. One that
/// fails otherwise goes on in the background.
pub(crate) fn unless_lost<R, T>(released: Result<R>, output: T) -> Result<T> {
    match released {
        Err(error) if error.is_lost() => Err(error),
        Ok(_) | Err(_) => Ok(output),
    }
}
