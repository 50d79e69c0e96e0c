//! A quorum of three memory stores, on a paused clock.

use std::sync::Arc;

use async_trait::async_trait;
use tenure_conformance::{BoxError, CaseContext, Declared, Fault, Harness, HarnessMaker, Healer, Inspector};
use tenure_core::FenceFloor;
use tenure_core::driver::{Backend, QuorumNode, Ttl};
use tenure_memory::MemoryDriver;
use tenure_redlock::Redlock;

use crate::memory::{MemoryInspector, declare, inject};

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
        let backend = Backend::from(driver(&stores(), FenceFloor::NONE).expect("the settings are within their limits"));
        declare(&backend)
    }

    async fn make(&self, _context: CaseContext) -> Result<Box<dyn Harness>, BoxError> {
        Ok(Box::new(RedlockMemoryHarness { stores: stores(), links: Vec::new() }))
    }
}

fn stores() -> Vec<MemoryDriver> {
    let store = || MemoryDriver::builder().max_waiters(100).build().expect("the caps are within their limits");
    (0..NODES).map(|_| store()).collect()
}

fn driver(links: &[MemoryDriver], floor: FenceFloor) -> Result<Redlock, BoxError> {
    let named = links.iter().enumerate().map(|(i, link)| (format!("n{i}"), Arc::new(link.clone())));
    let builder = Redlock::builder().max_ttl(Ttl::MAX).fence_floor(floor);
    let builder = named.fold(builder, |builder, (name, link)| builder.node(name, link as Arc<dyn QuorumNode>));
    Ok(builder.build()?)
}

struct RedlockMemoryHarness {
    stores: Vec<MemoryDriver>,
    links: Vec<MemoryDriver>,
}

#[async_trait]
impl Harness for RedlockMemoryHarness {
    async fn backend(&mut self) -> Result<Backend, BoxError> {
        self.backend_beyond(FenceFloor::NONE).await
    }

    async fn backend_beyond(&mut self, floor: FenceFloor) -> Result<Backend, BoxError> {
        let links: Vec<MemoryDriver> = self.stores.iter().map(MemoryDriver::another_client).collect();
        let driver = driver(&links, floor)?;
        self.links.extend(links);
        Ok(driver.into())
    }

    async fn inject(&mut self, fault: Fault) -> Result<Healer, BoxError> {
        inject(&self.stores, &self.links, fault)
    }

    fn inspector(&self) -> Option<Arc<dyn Inspector>> {
        Some(Arc::new(MemoryInspector(self.stores.clone())))
    }
}
