//! Re-entrant locks: requests to decisions, decisions to answers.

use async_trait::async_trait;
use tenure_core::driver::{
    AcquireRequest, Acquisition, Exited, OwnerScope, ReentrantCapabilities, ReentrantEntry, ReentrantHold,
    ReentrantLock, Renewed, Ttl,
};
use tenure_core::rules::locks::Claimant;
use tenure_core::{LockName, OwnerId, Result};

use crate::driver::MemoryDriver;
use crate::link::Operation;
use crate::locks;
use crate::store::Store;

#[async_trait]
impl ReentrantLock for MemoryDriver {
    fn capabilities(&self) -> ReentrantCapabilities {
        ReentrantCapabilities::new(OwnerScope::Process, self.caps().locks.depth)
    }

    async fn enter(&self, owner: &OwnerId, request: &AcquireRequest) -> Result<Acquisition> {
        let (claimant, asked) = (Claimant::Owner(*owner), request.clone());
        let apply = move |store: &Store, _: &LockName| locks::acquire(store, claimant, &asked);
        self.call(Operation::Acquire, &request.name, apply).await
    }

    async fn renew(&self, ttl: Ttl, holds: &[ReentrantHold]) -> Vec<Result<Renewed>> {
        self.renew_each(holds, move |store, ReentrantHold { name, owner, fence, .. }| {
            let claimant = Claimant::Owner(*owner);
            store.with_entry(name, |entry| entry.rule().renew_hold(claimant, *fence, ttl.get()))
        })
        .await
    }

    async fn exit(&self, hold: &ReentrantEntry) -> Result<Exited> {
        let (claimant, token) = (Claimant::Owner(hold.owner), hold.token);
        self.call(Operation::Release, &hold.name, move |store, name| {
            let Ok(exited) = store.with_entry(name, |entry| entry.rule().exit(claimant, &token));
            Ok(exited)
        })
        .await
    }

    async fn abandon(&self, hold: &ReentrantEntry) -> Result<()> {
        let (claimant, token) = (Claimant::Owner(hold.owner), hold.token);
        self.call(Operation::Abandon, &hold.name, move |store, name| {
            locks::abandon(store, claimant, name, token);
            Ok(())
        })
        .await
    }
}
