//! The trait behind plain locks.

use std::fmt::Debug;

use async_trait::async_trait;

use crate::driver::{
    AcquireRequest, Acquisition, Exited, ForceReleased, Hold, Inspection, LockCapabilities, ReentrantCapabilities,
    ReentrantEntry, ReentrantHold, Released, Renewed, Watch,
};
use crate::value::error::Result;
use crate::value::name::LockName;
use crate::value::token::{FencingToken, OwnerId, OwnerToken};
use crate::value::ttl::Ttl;

/// Plain locks of one backend. The rules that all methods share are in the [module's documentation](super).
#[cfg_attr(feature = "mock", mockall::automock)]
#[async_trait]
pub trait DistributedLock: Debug + Send + Sync + 'static {
    /// A short constant name for errors and spans: `"redis"`, `"memory"`. No endpoint, no secret.
    fn driver(&self) -> &'static str;

    /// What the locks promise. Constant; does no I/O.
    fn capabilities(&self) -> LockCapabilities;

    /// Takes the lock for the token, or tells that it is busy, in one atomic step at the backend.
    ///
    /// * Granted: the lease lasts `ttl` by the backend's clock and has a fence greater than every earlier grant's.
    /// * The token holds it already: the same fence again, [`Begun::Earlier`](crate::driver::Begun::Earlier), nothing changed.
    /// * The token was abandoned: refuse with [`ErrorKind::NotHeld`](crate::ErrorKind::NotHeld).
    /// * Busy with [`Queueing::Join`](crate::driver::Queueing::Join): the token keeps or gets its place; asking again renews
    ///   its presence. A full queue refuses with [`ErrorKind::LimitReached`](crate::ErrorKind::LimitReached).
    /// * A free lock with live waiters is busy for everybody but the first of them.
    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquisition>;

    /// Makes leases last for `ttl` from now, up to [`renew_batch`](LockCapabilities::renew_batch) of them: one answer for
    /// each, in order.
    ///
    /// A renewal never shortens a lease, and never revives one that has ended.
    async fn renew(&self, ttl: Ttl, holds: &[Hold]) -> Vec<Result<Renewed>>;

    /// Ends the lease if the token holds it, and wakes the first live waiter. May be called again.
    async fn release(&self, hold: &Hold) -> Result<Released>;

    /// Undoes whatever the token asked for: the lease, the place in the queue, and a request still on its way.
    ///
    /// The last is what makes it differ from a release: the backend remembers for a while that the token was abandoned,
    /// and refuses an [`acquire`](Self::acquire) that arrives after it. `Ok` means that the token holds nothing and,
    /// within the time stated in the driver's guarantees, never will. May be called again.
    async fn abandon(&self, hold: &Hold) -> Result<()>;

    /// Listens for wake-ups meant for this token. Called before the first `acquire` that joins the queue.
    ///
    /// Returns once a wake-up cannot be missed any more. After every gap in the link the driver wakes all watchers, so
    /// that they ask again. Dropping the [`Watch`] ends the listening. Usually no round trip: one subscription serves
    /// the whole client. A driver that declares [`Waiting::Poll`](crate::driver::Waiting::Poll) is not asked; it refuses with
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported).
    async fn watch(&self, name: &LockName, token: &OwnerToken) -> Result<Watch>;

    /// Looks at a lock without changing it.
    async fn inspect(&self, name: &LockName) -> Result<Inspection>;

    /// Takes the lock from whoever holds it, plain or re-entrant, and wakes the first live waiter; only from the hold with
    /// the `expected` fence, if there is one, compared in the same atomic step. The fence of a hold is the one that
    /// [`inspect`](Self::inspect) tells. A foreign client's has none: it is not the expected one.
    async fn force_release(&self, name: &LockName, expected: Option<FencingToken>) -> Result<ForceReleased>;

    /// Ends connections and background work. Later calls fail with [`ErrorKind::Closed`](crate::ErrorKind::Closed).
    async fn close(&self);
}

// The trait behind re-entrant locks.

/// Re-entrant locks of one backend.
///
/// They live in the same names as the driver's [`DistributedLock`](crate::driver::DistributedLock), which also serves their
/// waiters ([`watch`](crate::driver::DistributedLock::watch)), operators and forced releases. The rules that all methods share
/// are in the [module's documentation](super).
#[cfg_attr(feature = "mock", mockall::automock)]
#[async_trait]
pub trait ReentrantLock: Debug + Send + Sync + 'static {
    /// What re-entry promises. Constant; does no I/O.
    fn capabilities(&self) -> ReentrantCapabilities;

    /// Enters the lock for `owner`; the request's token names this one entry.
    ///
    /// * Free: a new hold with a new fence and depth 1, as in `DistributedLock::acquire`.
    /// * Held by `owner`: one entry more, the same fence, and a lease of `max(what is left, ttl)`; waiters are passed.
    /// * This entry exists already: the same answer, [`Begun::Earlier`](crate::driver::Begun::Earlier), nothing changed.
    /// * Held by another, plain or re-entrant: busy, and the queue is the same.
    /// * Deeper than [`max_depth`](ReentrantCapabilities::max_depth): refuse with
    ///   [`ErrorKind::LimitReached`](crate::ErrorKind::LimitReached).
    async fn enter(&self, owner: &OwnerId, request: &AcquireRequest) -> Result<Acquisition>;

    /// Renews holds, as `DistributedLock::renew` does.
    async fn renew(&self, ttl: Ttl, holds: &[ReentrantHold]) -> Vec<Result<Renewed>>;

    /// Undoes one entry; the last one frees the lock and wakes the first live waiter. May be called again. Must work
    /// when the backend is out of memory.
    async fn exit(&self, hold: &ReentrantEntry) -> Result<Exited>;

    /// Undoes whatever this entry's token asked for, as `DistributedLock::abandon` does.
    async fn abandon(&self, hold: &ReentrantEntry) -> Result<()>;
}
