//! A quorum of three memory stores, on a paused clock.

use std::sync::Arc;

use async_trait::async_trait;
use tenure_conformance::{
    BoxError, CaseContext, Declared, Fault, FaultKind, Harness, HarnessMaker, Healer, Inspector, Residue,
};
use tenure_core::driver::{Backend, DistributedLock as _, QuorumNode};
use tenure_core::{LockName, Ttl};
use tenure_memory::{MemoryDriver, Wakeups};
use tenure_redlock::Redlock;

const NODES: usize = 3;

/// Makes fresh stores for each case.
#[derive(Clone, Copy, Debug)]
pub struct RedlockMemoryMaker;

#[async_trait]
impl HarnessMaker for RedlockMemoryMaker {
    fn id(&self) -> &str {
        "redlock/memory-virtual-time"
    }

    fn declared(&self) -> Declared {
        let backend = Backend::from(driver(&stores(), None).expect("the settings are within their limits"));
        let declared = Declared::new(backend.locks().capabilities())
            .virtual_time()
            .visible_leftovers()
            .faults([FaultKind::ExpireLease, FaultKind::CutConnections, FaultKind::MuteNotifications])
            .faults([FaultKind::PauseServer]);
        match backend.reentrant() {
            Some(reentrant) => declared.reentrant(reentrant.capabilities()),
            None => declared,
        }
    }

    async fn make(&self, _context: CaseContext) -> Result<Box<dyn Harness>, BoxError> {
        Ok(Box::new(RedlockMemoryHarness { stores: stores(), links: Vec::new(), first: None }))
    }
}

fn stores() -> Vec<MemoryDriver> {
    let store = || MemoryDriver::builder().max_waiters(100).build().expect("the caps are within their limits");
    (0..NODES).map(|_| store()).collect()
}

fn driver(links: &[MemoryDriver], other: Option<&Redlock>) -> Result<Redlock, BoxError> {
    let named = links.iter().enumerate().map(|(i, link)| (format!("n{i}"), Arc::new(link.clone())));
    let builder = Redlock::builder().max_ttl(Ttl::MAX);
    let builder = named.fold(builder, |builder, (name, link)| builder.node(name, link as Arc<dyn QuorumNode>));
    let builder = other.into_iter().fold(builder, tenure_redlock::RedlockBuilder::share_owners_with);
    Ok(builder.build()?)
}

struct RedlockMemoryHarness {
    stores: Vec<MemoryDriver>,
    links: Vec<MemoryDriver>,
    first: Option<Redlock>,
}

#[async_trait]
impl Harness for RedlockMemoryHarness {
    async fn backend(&mut self) -> Result<Backend, BoxError> {
        let links: Vec<MemoryDriver> = self.stores.iter().map(MemoryDriver::another_client).collect();
        let driver = driver(&links, self.first.as_ref())?;
        self.links.extend(links);
        self.first.get_or_insert_with(|| driver.clone());
        Ok(driver.into())
    }

    async fn inject(&mut self, fault: Fault) -> Result<Healer, BoxError> {
        let faults: Vec<_> = self.links.iter().map(MemoryDriver::faults).collect();
        match fault {
            Fault::ExpireLease(name) => {
                for store in &self.stores {
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
            other => return Err(format!("memory stores cannot {other:?}").into()),
        }
        Ok(Healer::new(async move {
            faults.iter().for_each(|link| link.heal());
            Ok(())
        }))
    }

    fn inspector(&self) -> Option<Arc<dyn Inspector>> {
        Some(Arc::new(Look(self.stores.clone())))
    }
}

struct Look(Vec<MemoryDriver>);

#[async_trait]
impl Inspector for Look {
    /// What any of the stores has left.
    async fn residue(&self, name: &LockName) -> Result<Residue, BoxError> {
        let mut most = Residue::default();
        for store in &self.0 {
            let (seen, left) = (store.inspect(name).await?, store.residue());
            most.leases = most.leases.max(usize::from(seen.holder.is_some()));
            most.waiters = most.waiters.max(usize::try_from(seen.waiters)?);
            most.subscriptions = most.subscriptions.max(left.watches);
            most.tombstones = most.tombstones.max(left.tombstones);
        }
        Ok(most)
    }
}
