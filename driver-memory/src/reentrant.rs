//! Re-entrant locks: requests to decisions, decisions to answers.

use async_trait::async_trait;
use tenure_core::driver::{
    AcquireRequest, Acquisition, Exited, OwnerScope, ReentrantCapabilities, ReentrantHold, ReentrantLock,
    ReentrantRenewal, Renewed,
};
use tenure_core::{OwnerId, Result};

use crate::driver::MemoryDriver;
use crate::faults::Operation;
use crate::hold::Claimant;
use crate::locks;
use crate::store::{Entry, Store};

#[async_trait]
impl ReentrantLock for MemoryDriver {
    fn capabilities(&self) -> ReentrantCapabilities {
        ReentrantCapabilities { scope: OwnerScope::Process, max_depth: self.caps().max_depth }
    }

    async fn enter(&self, owner: &OwnerId, request: &AcquireRequest) -> Result<Acquisition> {
        let apply = |store: &Store| locks::acquire(store, Claimant::Owner(*owner), request);
        self.call(Operation::Acquire, &request.name, apply).await
    }

    async fn renew(&self, renewals: &[ReentrantRenewal]) -> Vec<Result<Renewed>> {
        self.renew_each(renewals, |store, ReentrantRenewal { name, owner, fence, ttl }| {
            let claimant = Claimant::Owner(*owner);
            store.with_entry(name, |entry| entry.state.renew_hold(entry.now, claimant, *fence, ttl.get()))
        })
        .await
    }

    async fn exit(&self, hold: &ReentrantHold) -> Result<Exited> {
        let claimant = Claimant::Owner(hold.owner);
        let decide = |entry: &mut Entry<'_>| entry.state.exit(entry.now, claimant, &hold.token);
        self.call(Operation::Release, &hold.name, |store| Ok(store.decide(&hold.name, decide))).await
    }

    async fn abandon(&self, hold: &ReentrantHold) -> Result<()> {
        let apply = |store: &Store| locks::abandon(store, Claimant::Owner(hold.owner), &hold.name, hold.token);
        self.call(Operation::Abandon, &hold.name, apply).await
    }
}
