//! Common helpers of the cases.

use std::time::Duration;

use tenure_core::driver::{
    AcquireRequest, Acquisition, Busy, DistributedLock, Grant, Handing, Hold, Introspection, Queueing, Released, Ttl,
};
use tenure_core::{Client, FencingToken, Lock, LockGuard, LockName, OwnerToken};

use crate::case::{CaseResult, Context, Failure};

pub(super) fn lock(client: &Client, name: &LockName) -> Lock {
    client.lock(name.as_bytes())
}

/// Takes a lock that must be free, for a lease that is not renewed.
pub(super) async fn take(client: &Client, name: &LockName, ttl: Duration) -> CaseResult<LockGuard> {
    must(lock(client, name).fixed_ttl(ttl).try_acquire().await?, name)
}

/// Takes a lock that must be free, for a lease that is renewed.
pub(super) async fn keep(client: &Client, name: &LockName, ttl: Duration) -> CaseResult<LockGuard> {
    must(lock(client, name).ttl(ttl).try_acquire().await?, name)
}

#[track_caller]
pub(super) fn must<T>(guard: Option<T>, name: &LockName) -> CaseResult<T> {
    guard.ok_or_else(|| Failure::new(format!("\"{name}\" is busy and should be free")))
}

/// Whether the lock can be taken now; gives it back at once.
pub(super) async fn is_free(client: &Client, name: &LockName) -> CaseResult<bool> {
    match lock(client, name).try_acquire().await? {
        Some(guard) => guard.release().await.map(|()| true).map_err(Failure::from),
        None => Ok(false),
    }
}

/// Fails unless the lock is free within the time; returns how long it took.
#[track_caller]
pub(super) fn free_within<'a>(
    context: &'a Context,
    client: &'a Client,
    name: &'a LockName,
    within: Duration,
) -> impl Future<Output = CaseResult<Duration>> + 'a {
    context.eventually(within, "the lock is free", async || is_free(client, name).await)
}

/// Fails unless everything that the clients did on this name is undone soon: no hold, no waiter, no clean-up.
pub(super) async fn clean(context: &Context, probe: &Client, name: &LockName, clients: &[&Client]) -> CaseResult {
    free_within(context, probe, name, context.soon()).await?;
    let idle = async || {
        clients.iter().all(|client| {
            let stats = client.stats();
            stats.holds == 0 && stats.waiters == 0 && stats.cleanups == 0
        })
    };
    context.eventually(context.soon(), "no hold, waiter or clean-up is left in the clients", idle).await?;
    if context.declared().locks.introspection != Introspection::None {
        // The last of several servers may hear of it after the clients are done.
        let handle = lock(probe, name);
        let empty = async || handle.inspect().await.map(|seen| seen.holder.is_none() && seen.waiters == 0);
        context.eventually(context.soon(), "no holder and no waiter is left to be seen", empty).await?;
    }
    if let Some(inspector) = context.inspector() {
        let residue = async || inspector.residue(name).await.map(|residue| residue.is_clean());
        context.eventually(context.soon(), "nothing is left in the store", residue).await?;
    }
    Ok(())
}

pub(super) fn ttl_of(length: Duration) -> CaseResult<Ttl> {
    Ok(Ttl::new(length)?)
}

/// A request that does not wait.
pub(super) fn request(name: &LockName, token: OwnerToken, ttl: Duration) -> CaseResult<AcquireRequest> {
    Ok(AcquireRequest::new(name.clone(), token, ttl_of(ttl)?))
}

/// A request that joins the queue.
pub(super) fn joining(
    name: &LockName,
    token: OwnerToken,
    ttl: Duration,
    presence: Duration,
) -> CaseResult<AcquireRequest> {
    Ok(request(name, token, ttl)?.with_queue(Queueing::Join { presence, accepts: Handing::Asked }))
}

pub(super) fn hold(name: &LockName, token: OwnerToken) -> Hold {
    Hold::new(name.clone(), token)
}

#[track_caller]
pub(super) fn granted(answer: Acquisition) -> CaseResult<Grant> {
    match answer {
        Acquisition::Granted(grant) => Ok(grant),
        Acquisition::Busy(busy) => Err(Failure::new(format!("busy instead of granted: {busy:?}"))),
    }
}

#[track_caller]
pub(super) fn busy(answer: Acquisition) -> CaseResult<Busy> {
    match answer {
        Acquisition::Busy(busy) => Ok(busy),
        Acquisition::Granted(grant) => Err(Failure::new(format!("granted instead of busy: {grant:?}"))),
    }
}

/// Takes a free lock past the engine.
pub(super) async fn take_raw(
    locks: &dyn DistributedLock,
    name: &LockName,
    ttl: Duration,
) -> CaseResult<(OwnerToken, FencingToken)> {
    let token = OwnerToken::random();
    let grant = granted(locks.acquire(&request(name, token, ttl)?).await?)?;
    Ok((token, grant.fence))
}

/// Whether a lock can be taken now past the engine; gives it back at once.
pub(super) async fn is_free_raw(locks: &dyn DistributedLock, name: &LockName) -> CaseResult<bool> {
    let token = OwnerToken::random();
    match locks.acquire(&request(name, token, locks.capabilities().ttl.min.max(Duration::from_secs(2)))?).await? {
        Acquisition::Busy(_) => Ok(false),
        Acquisition::Granted(_) => Ok(locks.release(&hold(name, token)).await? == Released::Released),
    }
}

#[track_caller]
pub(super) fn must_fail<T: std::fmt::Debug>(
    result: tenure_core::Result<T, impl Into<tenure_core::Error>>,
    kind: tenure_core::ErrorKind,
) -> CaseResult<tenure_core::Error> {
    match result.map_err(Into::into) {
        Err(error) if error.kind() == kind => Ok(error),
        other => Err(Failure::new(format!("{other:?} instead of an error of kind {kind:?}"))),
    }
}
