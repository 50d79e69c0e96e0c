//! The list of held locks.

use async_trait::async_trait;
use tenure_core::Result;
use tenure_core::driver::{Census, CensusCapabilities, CensusOrder, CensusPlace, HeldPage};

use crate::driver::MemoryDriver;
use crate::link::{Failure, Operation};

/// A page looks at every name that the store knows, since these are in no order; the store is locked meanwhile.
#[async_trait]
impl Census for MemoryDriver {
    fn capabilities(&self) -> CensusCapabilities {
        CensusCapabilities::new(CensusOrder::Sorted)
    }

    async fn held(&self, prefix: &[u8], from: Option<&CensusPlace>, max: usize) -> Result<HeldPage> {
        let (prefix, after) = (prefix.to_vec(), from.map(|place| place.as_bytes().to_vec()));
        let listed = self.carry(Operation::Inspect, move |store| store.held(&prefix, after.as_deref(), max)).await;
        listed.map_err(Failure::error)
    }
}
