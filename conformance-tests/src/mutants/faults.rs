//! Mutants that handle a fault of the server badly, or unobserved time.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::driver::{AcquireRequest, Acquisition, Busy, ForceReleased, Hold, Released};
use tenure_core::{ErrorKind, FencingToken, LockName, Result};

use super::delay_bend::Quirk;
use super::delay_bent::quirky;
use super::leases::made_up;
use super::maker::{Mutant, mutant};
use super::twist::{Inner, Shared, Twist, flaw};
use crate::harness::{Fault, FaultKind};

#[rustfmt::skip]
pub(super) const MUTANTS: &[Mutant] = &[
    mutant!("link/idle-cut-costs-an-error", "the first request after a cut fails",
        Fails::after(FaultKind::CutConnections, |fails, client, _| fails.insert(client)),
        ["server/idle-connection-cut-costs-no-error"]),
    mutant!("link/stays-with-a-demoted-server", "connections to a server that refuses writes are kept",
        Fails::after(FaultKind::DemoteServer, |_, _, _| true), ["server/demoted-server-is-left"]),
    mutant!("link/names-bound-to-closed-connections", "half of the names need a connection that cannot be opened",
        Fails::after(FaultKind::FewConnections, |_, _, name| name.as_bytes().ends_with(b"1")),
        ["server/few-connections-serve-every-name"]),
    mutant!("push/blocked-by-open-transactions", "a push in an open transaction blocks its queue",
        quirky(Quirk::OpenPushesBlock), ["queue/open-transaction-holds-up-nobody"]),
    mutant!("push/first-blocks-new-queues", "a push in an open transaction blocks queues that are new",
        quirky(Quirk::OpenPushesBlockNewQueues), ["queue/first-push-in-open-transaction"]),
    mutant!("lease/over-once-observed", "a client that has not seen a lease waits for it to end once more",
        OverOnceObserved::default(), ["lease/over-for-who-never-looked"]),
    mutant!("names/kept-for-ever", "every name that was used is kept",
        flaw!(release(inner, hold) => {
            let trace = LockName::new([hold.name.as_bytes(), b"/was used"].concat())?;
            inner.locks().acquire(&AcquireRequest::new(trace, OwnerToken::random(), Ttl::new(Ttl::MAX)?)).await?;
            inner.locks().release(hold).await
        }), ["hygiene/idle-names-are-removed"]),
];

/// Whether this client's request for this name fails, once the fault has been injected.
type Which = fn(&mut HashSet<usize>, usize, &LockName) -> bool;

/// After a fault, some requests fail.
struct Fails {
    after: FaultKind,
    which: Which,
    injected: Shared<Option<HashSet<usize>>>,
}

impl Fails {
    fn after(after: FaultKind, which: Which) -> Self {
        Self { after, which, injected: Shared::default() }
    }
}

#[async_trait]
impl Twist for Fails {
    fn injected(&self, fault: &Fault) {
        if fault.kind() == self.after {
            *self.injected.lock() = Some(HashSet::new());
        }
    }

    async fn acquire(&self, inner: &Inner, request: &AcquireRequest) -> Result<Acquisition> {
        let fails = self.injected.lock().as_mut().is_some_and(|seen| (self.which)(seen, inner.client(), &request.name));
        if fails {
            return Err(made_up(ErrorKind::Unavailable));
        }
        inner.locks().acquire(request).await
    }
}

/// A lease that ended by itself counts as held for clients that have not seen it.
#[derive(Default)]
struct OverOnceObserved {
    /// The clients that have seen the last grant of a name, as long as nothing released it.
    seen: Shared<HashMap<LockName, HashSet<usize>>>,
}

#[async_trait]
impl Twist for OverOnceObserved {
    async fn acquire(&self, inner: &Inner, request: &AcquireRequest) -> Result<Acquisition> {
        let known = match self.seen.lock().get_mut(&request.name) {
            Some(seen) => !seen.insert(inner.client()),
            None => true,
        };
        if !known && inner.locks().inspect(&request.name).await.is_ok_and(|seen| seen.holder.is_none()) {
            return Ok(Acquisition::Busy(Busy::default().with_recheck_after(Some(Duration::from_secs(1)))));
        }
        let answer = inner.locks().acquire(request).await?;
        if matches!(answer, Acquisition::Granted(_)) {
            self.seen.lock().insert(request.name.clone(), HashSet::from([inner.client()]));
        }
        Ok(answer)
    }

    async fn release(&self, inner: &Inner, hold: &Hold) -> Result<Released> {
        self.seen.lock().remove(&hold.name);
        inner.locks().release(hold).await
    }

    async fn abandon(&self, inner: &Inner, hold: &Hold) -> Result<()> {
        self.seen.lock().remove(&hold.name);
        inner.locks().abandon(hold).await
    }

    async fn force_release(
        &self,
        inner: &Inner,
        name: &LockName,
        expected: Option<FencingToken>,
    ) -> Result<ForceReleased> {
        self.seen.lock().remove(name);
        inner.locks().force_release(name, expected).await
    }
}
