//! Common helpers of the cases of permits.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::driver::{
    AcquireRequest, Acquisition, Family, Grant, Handing, Introspection, PermitChange, PermitHold, PermitRequest,
    Permits, Queueing, Released, Renewed, Share, Ttl, Watch,
};
use tenure_core::{Client, ErrorKind, LockName, OwnerToken, Result, RwLock, Semaphore};
use tokio::task::JoinHandle;

use crate::case::{CaseResult, Context, Failure};
use crate::cases::support::granted;
use crate::layer::{Answer, FaultLayer, Op};

/// A presence and a ttl that outlast a case.
pub(in crate::cases) const LONG: Duration = Duration::from_secs(60);

pub(in crate::cases) const fn share(weight: u32, capacity: u32) -> Share {
    Share { weight, capacity }
}

pub(in crate::cases) fn semaphore(client: &Client, name: &LockName, capacity: u32) -> Semaphore {
    client.semaphore(name.as_bytes(), capacity)
}

pub(in crate::cases) fn rw_lock(client: &Client, name: &LockName) -> RwLock {
    client.rw_lock(name.as_bytes())
}

/// Requests for one name past the engine.
pub(in crate::cases) struct Raw {
    permits: Arc<dyn Permits>,
    family: Family,
    pub(in crate::cases) name: LockName,
    ttl: Duration,
}

impl Raw {
    /// A semaphore over a separate connection, with leases of this length.
    pub(in crate::cases) async fn new(context: &mut Context, suffix: &str, ttl: Duration) -> CaseResult<Self> {
        let backend = context.backend().await?;
        let permits = backend.permits().ok_or_else(|| Failure::new("permits are declared and not there"))?;
        Ok(Self { permits: Arc::clone(permits), family: Family::Semaphore, name: context.name(suffix), ttl })
    }

    pub(in crate::cases) fn hold(&self, token: OwnerToken) -> PermitHold {
        PermitHold::new(self.family, self.name.clone(), token)
    }

    async fn acquire(&self, token: OwnerToken, share: Share, queue: Queueing) -> Result<Acquisition> {
        let lock = AcquireRequest::new(self.name.clone(), token, Ttl::new(self.ttl)?).with_queue(queue);
        self.permits.acquire(&PermitRequest::new(self.family, share, lock)).await
    }

    /// A request that does not wait.
    pub(in crate::cases) async fn ask(&self, token: OwnerToken, share: Share) -> Result<Acquisition> {
        self.acquire(token, share, Queueing::None).await
    }

    /// A request that joins the line.
    pub(in crate::cases) async fn join(
        &self,
        token: OwnerToken,
        share: Share,
        presence: Duration,
    ) -> Result<Acquisition> {
        self.acquire(token, share, Queueing::Join { presence, accepts: Handing::Asked }).await
    }

    /// Takes a share that must be free.
    pub(in crate::cases) async fn take(&self, share: Share) -> CaseResult<(OwnerToken, Grant)> {
        let token = OwnerToken::random();
        Ok((token, granted(self.ask(token, share).await?)?))
    }

    /// Whether the share can be taken now; gives it back at once.
    pub(in crate::cases) async fn fits(&self, share: Share) -> CaseResult<bool> {
        let token = OwnerToken::random();
        match self.ask(token, share).await? {
            Acquisition::Busy(_) => Ok(false),
            Acquisition::Granted(_) => Ok(self.release(token).await? == Released::Released),
        }
    }

    pub(in crate::cases) async fn resize(
        &self,
        token: OwnerToken,
        to: Share,
        step: u32,
        presence: Option<Duration>,
    ) -> Result<Acquisition> {
        self.permits.resize(&PermitChange::new(self.hold(token), to, step).with_presence(presence)).await
    }

    pub(in crate::cases) async fn renew(&self, token: OwnerToken) -> CaseResult<Renewed> {
        let mut answers = self.permits.renew(Ttl::new(self.ttl)?, &[self.hold(token)]).await;
        assert_eq!(answers.len(), 1, "one answer for one hold");
        Ok(answers.remove(0)?)
    }

    pub(in crate::cases) async fn release(&self, token: OwnerToken) -> Result<Released> {
        self.permits.release(&self.hold(token)).await
    }

    pub(in crate::cases) async fn abandon(&self, token: OwnerToken) -> Result<()> {
        self.permits.abandon(&self.hold(token)).await
    }

    pub(in crate::cases) async fn watch(&self, token: OwnerToken) -> Result<Watch> {
        self.permits.watch(&self.hold(token)).await
    }
}

/// Whether the name has no holder and no waiter.
pub(in crate::cases) async fn is_idle(client: &Client, family: Family, name: &LockName) -> CaseResult<bool> {
    // A request that names the capacity 1 fits beside no other holder.
    let taken = match family {
        Family::Semaphore => match semaphore(client, name, 1).try_acquire().await? {
            Some(permit) => Some(permit.release().await),
            None => None,
        },
        _ => match rw_lock(client, name).try_write().await? {
            Some(guard) => Some(guard.release().await),
            None => None,
        },
    };
    Ok(taken.transpose()?.is_some())
}

/// Fails unless everything that the clients did on this name is undone soon: no hold, no waiter, no clean-up.
pub(in crate::cases) async fn clean(
    context: &Context,
    probe: &Client,
    family: Family,
    name: &LockName,
    clients: &[&Client],
) -> CaseResult {
    let idle = async || is_idle(probe, family, name).await;
    context.eventually(context.soon(), "all permits are free", idle).await?;
    let undone = async || {
        clients
            .iter()
            .map(|client| client.stats())
            .all(|stats| (stats.holds, stats.waiters, stats.cleanups) == (0, 0, 0))
    };
    context.eventually(context.soon(), "no hold, waiter or clean-up is left in the clients", undone).await?;
    if context.declared().permits.is_some_and(|permits| permits.introspection != Introspection::None) {
        let empty = async || -> CaseResult<bool> {
            let seen = match family {
                Family::Semaphore => semaphore(probe, name, 1).inspect().await?,
                _ => rw_lock(probe, name).inspect().await?,
            };
            Ok(seen.holders.is_empty() && seen.used == 0 && seen.waiters == 0)
        };
        context.eventually(context.soon(), "no holder and no waiter is left to be seen", empty).await?;
    }
    if let Some(inspector) = context.inspector() {
        let residue = async || inspector.residue(name).await.map(|residue| residue.is_clean());
        context.eventually(context.soon(), "nothing is left in the store", residue).await?;
    }
    Ok(())
}

/// Starts an acquisition and returns once the backend has answered that it has to wait.
pub(in crate::cases) async fn waiting<T: Send + 'static>(
    context: &Context,
    layer: &FaultLayer,
    name: &LockName,
    acquisition: impl Future<Output = Result<T>> + Send + 'static,
) -> CaseResult<JoinHandle<Result<T>>> {
    let busy = || {
        let frames = layer.frames_of(Op::Acquire, name);
        frames.iter().filter(|f| f.answer == Answer::Busy).map(|f| f.token).collect::<HashSet<_>>().len()
    };
    let before = busy();
    let task = tokio::spawn(acquisition);
    context.eventually(context.soon(), "the waiter has its place", async || busy() > before).await?;
    Ok(task)
}

#[track_caller]
pub(in crate::cases) fn must<T>(taken: Option<T>) -> CaseResult<T> {
    taken.ok_or_else(|| Failure::new("busy instead of granted"))
}

/// Fails unless the answer is that the request or the hold is not valid any more.
#[track_caller]
pub(in crate::cases) fn not_held(answer: Result<Acquisition>) -> CaseResult {
    crate::cases::support::must_fail(answer, ErrorKind::NotHeld).map(drop)
}
