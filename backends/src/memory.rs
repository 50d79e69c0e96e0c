//! The memory driver, on a paused clock.

use std::sync::Arc;

use async_trait::async_trait;
use tenure_conformance::{
    BoxError, CaseContext, Declared, Fault, FaultKind, Harness, HarnessMaker, Healer, Inspector, Residue,
};
use tenure_core::driver::{Backend, DistributedLock, Family, Permits};
use tenure_core::{FenceFloor, LockName};
use tenure_memory::{MemoryDriver, Wakeups};

/// Makes a fresh store for each case.
#[derive(Clone, Copy, Debug)]
pub struct MemoryMaker {
    passing: bool,
}

impl MemoryMaker {
    /// The backend `memory/virtual-time`.
    #[must_use]
    pub fn new() -> Self {
        Self { passing: true }
    }

    /// The backend `memory/no-passing`: clients that pass no lease on.
    #[must_use]
    pub fn without_passing() -> Self {
        Self { passing: false }
    }
}

impl Default for MemoryMaker {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl HarnessMaker for MemoryMaker {
    fn id(&self) -> &str {
        if self.passing { "memory/virtual-time" } else { "memory/no-passing" }
    }

    fn declared(&self) -> Declared {
        let declared = declare(&Backend::from(store()));
        if self.passing { declared } else { declared.without_passing() }
    }

    async fn make(&self, _context: CaseContext) -> Result<Box<dyn Harness>, BoxError> {
        Ok(Box::new(MemoryHarness { store: store(), clients: Vec::new() }))
    }
}

/// A store with caps that the suite can reach.
fn store() -> MemoryDriver {
    let builder = MemoryDriver::builder().max_waiters(100).max_depth(50).max_request_bytes(2 * 1024 * 1024);
    builder.build().expect("the caps are within their limits")
}

struct MemoryHarness {
    store: MemoryDriver,
    clients: Vec<MemoryDriver>,
}

#[async_trait]
impl Harness for MemoryHarness {
    async fn backend(&mut self) -> Result<Backend, BoxError> {
        let client = self.store.another_client();
        self.clients.push(client.clone());
        Ok(Backend::from(client))
    }

    async fn backend_beyond(&mut self, floor: FenceFloor) -> Result<Backend, BoxError> {
        self.store.raise_fences(floor);
        self.backend().await
    }

    async fn inject(&mut self, fault: Fault) -> Result<Healer, BoxError> {
        inject(std::slice::from_ref(&self.store), &self.clients, fault)
    }

    fn inspector(&self) -> Option<Arc<dyn Inspector>> {
        Some(Arc::new(MemoryInspector(vec![self.store.clone()])))
    }
}

/// What memory stores promise through `backend`, and what can be done to them.
pub(crate) fn declare(backend: &Backend) -> Declared {
    let declared = Declared::new(backend.locks().capabilities())
        .virtual_time()
        .visible_leftovers()
        .fence_floors()
        .faults([FaultKind::ExpireLease, FaultKind::CutConnections, FaultKind::MuteNotifications])
        .faults([FaultKind::PauseServer]);
    let declared = match backend.reentrant() {
        Some(reentrant) => declared.reentrant(reentrant.capabilities()),
        None => declared,
    };
    let declared = match backend.permits() {
        Some(permits) => declared.permits(permits.capabilities()),
        None => declared,
    };
    let declared = match backend.census() {
        Some(census) => declared.census(census.capabilities()),
        None => declared,
    };
    let declared = match backend.queue() {
        Some(queue) => declared.queue(queue.capabilities()),
        None => declared,
    };
    if backend.queue_admin().is_some() { declared } else { declared.without_queue_admin() }
}

/// Does something bad to memory stores, and to all links to them.
pub(crate) fn inject(stores: &[MemoryDriver], links: &[MemoryDriver], fault: Fault) -> Result<Healer, BoxError> {
    let faults: Vec<_> = links.iter().map(MemoryDriver::faults).collect();
    match fault {
        Fault::ExpireLease(name) => {
            for store in stores {
                store.faults().expire(name.as_bytes())?;
            }
            return Ok(Healer::nothing());
        }
        Fault::CutConnections => {
            for link in &faults {
                link.outage();
                link.heal();
            }
            return Ok(Healer::nothing());
        }
        Fault::MuteNotifications => faults.iter().for_each(|link| link.set_wakeups(Wakeups::Lost)),
        Fault::PauseServer => faults.iter().for_each(|link| link.silence()),
        other => return Err(format!("a memory store cannot {other:?}").into()),
    }
    Ok(Healer::new(async move {
        faults.iter().for_each(|link| link.heal());
        Ok(())
    }))
}

/// Looks at stores through connections that no fault meets. They serve one case, so what they count is this case's.
pub(crate) struct MemoryInspector(pub(crate) Vec<MemoryDriver>);

#[async_trait]
impl Inspector for MemoryInspector {
    /// What any of the stores has left.
    async fn residue(&self, name: &LockName) -> Result<Residue, BoxError> {
        let mut most = Residue::default();
        for store in &self.0 {
            let (seen, left) = (DistributedLock::inspect(store, name).await?, store.residue());
            let (mut leases, mut waiters) = (usize::from(seen.holder.is_some()), usize::try_from(seen.waiters)?);
            for family in Family::ALL {
                let seen = Permits::inspect(store, family, name, usize::MAX).await?;
                leases += seen.holders.len();
                waiters += usize::try_from(seen.waiters)?;
            }
            most.leases = most.leases.max(leases);
            most.waiters = most.waiters.max(waiters);
            most.subscriptions = most.subscriptions.max(left.watches);
            most.tombstones = most.tombstones.max(left.tombstones);
        }
        Ok(most)
    }

    async fn names(&self) -> Result<usize, BoxError> {
        Ok(self.0.iter().map(|store| store.residue().names).max().unwrap_or_default())
    }
}
