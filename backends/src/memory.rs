//! The memory driver, on a paused clock.

use std::sync::Arc;

use async_trait::async_trait;
use tenure_conformance::{
    BoxError, CaseContext, Declared, Fault, FaultKind, Harness, HarnessMaker, Healer, Inspector, Residue,
};
use tenure_core::LockName;
use tenure_core::driver::{Backend, DistributedLock as _};
use tenure_memory::{MemoryDriver, Wakeups};

/// Makes a fresh store for each case.
#[derive(Clone, Copy, Debug)]
pub struct MemoryMaker;

#[async_trait]
impl HarnessMaker for MemoryMaker {
    fn id(&self) -> &str {
        "memory/virtual-time"
    }

    fn declared(&self) -> Declared {
        let backend = Backend::from(store());
        let declared = Declared::new(backend.locks().capabilities())
            .virtual_time()
            .visible_leftovers()
            .faults([FaultKind::ExpireLease, FaultKind::CutConnections, FaultKind::MuteNotifications])
            .faults([FaultKind::PauseServer]);
        let declared = match backend.reentrant() {
            Some(reentrant) => declared.reentrant(reentrant.capabilities()),
            None => declared,
        };
        match backend.queue() {
            Some(queue) => declared.queue(queue.capabilities()),
            None => declared,
        }
    }

    async fn make(&self, _context: CaseContext) -> Result<Box<dyn Harness>, BoxError> {
        Ok(Box::new(MemoryHarness { store: store(), clients: Vec::new() }))
    }
}

/// A store with caps that the suite can reach.
fn store() -> MemoryDriver {
    MemoryDriver::builder().max_waiters(100).max_depth(50).build().expect("the caps are within their limits")
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

    async fn inject(&mut self, fault: Fault) -> Result<Healer, BoxError> {
        let faults: Vec<_> = self.clients.iter().map(MemoryDriver::faults).collect();
        match fault {
            Fault::ExpireLease(name) => {
                self.store.faults().expire(name.as_bytes())?;
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
            other => return Err(format!("the memory store cannot {other:?}").into()),
        }
        Ok(Healer::new(async move {
            faults.iter().for_each(|link| link.heal());
            Ok(())
        }))
    }

    fn inspector(&self) -> Option<Arc<dyn Inspector>> {
        Some(Arc::new(MemoryInspector(self.store.clone())))
    }
}

struct MemoryInspector(MemoryDriver);

#[async_trait]
impl Inspector for MemoryInspector {
    async fn residue(&self, name: &LockName) -> Result<Residue, BoxError> {
        // Through a connection that no fault meets. The store serves one case, so what it counts is this case's.
        let seen = self.0.inspect(name).await?;
        let store = self.0.residue();
        Ok(Residue {
            leases: usize::from(seen.holder.is_some()),
            waiters: usize::try_from(seen.waiters)?,
            subscriptions: store.watches,
            tombstones: store.tombstones,
            endless: 0,
        })
    }
}
