//! Re-entrant locks: turns requests into decisions, and decisions into answers.

use async_trait::async_trait;
use tenure_core::driver::{
    AcquireRequest, Acquisition, Exited, OwnerScope, ReentrantCapabilities, ReentrantEntry, ReentrantHold,
    ReentrantLock, Renewed, Ttl,
};
use tenure_core::rules::locks::Claimant;
use tenure_core::{OwnerId, Result};

use crate::decide::decide;
use crate::driver::SqliteDriver;

#[async_trait]
impl ReentrantLock for SqliteDriver {
    fn capabilities(&self) -> ReentrantCapabilities {
        ReentrantCapabilities::new(OwnerScope::Backend, self.caps().max_depth)
    }

    async fn enter(&self, owner: &OwnerId, request: &AcquireRequest) -> Result<Acquisition> {
        self.acquire_for(Claimant::Owner(*owner), "enter", request).await
    }

    async fn renew(&self, ttl: Ttl, holds: &[ReentrantHold]) -> Vec<Result<Renewed>> {
        self.renew_each(holds, move |turn, ReentrantHold { name, owner, fence, .. }| {
            decide(turn, name, |rule| Ok(rule.renew_hold(Claimant::Owner(*owner), *fence, ttl.get())))
        })
        .await
    }

    async fn exit(&self, hold: &ReentrantEntry) -> Result<Exited> {
        let (owner, token) = (Claimant::Owner(hold.owner), hold.token);
        self.call("exit", &hold.name, move |rule| rule.exit(owner, &token)).await
    }

    async fn abandon(&self, hold: &ReentrantEntry) -> Result<()> {
        let (owner, token) = (Claimant::Owner(hold.owner), hold.token);
        self.call("abandon", &hold.name, move |rule| rule.abandon(owner, &token)).await
    }
}
