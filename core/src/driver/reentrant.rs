//! The trait behind re-entrant locks.

use std::fmt::Debug;

use async_trait::async_trait;

use super::{AcquireRequest, Acquisition, Exited, ReentrantCapabilities, ReentrantHold, ReentrantRenewal, Renewed};
use crate::value::error::Result;
use crate::value::token::OwnerId;

/// Re-entrant locks of one backend.
///
/// They live in the same names as the driver's [`DistributedLock`](super::DistributedLock), which also serves their
/// waiters ([`watch`](super::DistributedLock::watch)), operators and forced releases. The rules that all methods share
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
    /// * This entry exists already: the same answer, [`Begun::Earlier`](super::Begun::Earlier), nothing changed.
    /// * Held by another, plain or re-entrant: busy, and the queue is the same.
    /// * Deeper than [`max_depth`](ReentrantCapabilities::max_depth): refuse with
    ///   [`ErrorKind::LimitReached`](crate::ErrorKind::LimitReached).
    async fn enter(&self, owner: &OwnerId, request: &AcquireRequest) -> Result<Acquisition>;

    /// Renews holds, as `DistributedLock::renew` does.
    async fn renew(&self, renewals: &[ReentrantRenewal]) -> Vec<Result<Renewed>>;

    /// Undoes one entry; the last one frees the lock and wakes the first live waiter. May be called again. Must work
    /// when the backend is out of memory.
    async fn exit(&self, hold: &ReentrantHold) -> Result<Exited>;

    /// Undoes whatever this entry's token asked for, as `DistributedLock::abandon` does.
    async fn abandon(&self, hold: &ReentrantHold) -> Result<()>;
}
