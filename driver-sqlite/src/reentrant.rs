//! Re-entrant locks: requests to decisions, decisions to answers.

use async_trait::async_trait;
use tenure_core::driver::{
    AcquireRequest, Acquisition, Exited, OwnerScope, ReentrantCapabilities, ReentrantEntry, ReentrantHold,
    ReentrantLock, Renewed, Ttl,
};
use tenure_core::{OwnerId, Result};

use crate::driver::SqliteDriver;

#[async_trait]
impl ReentrantLock for SqliteDriver {
    fn capabilities(&self) -> ReentrantCapabilities {
        ReentrantCapabilities::new(OwnerScope::Backend, self.caps().max_depth)
    }

    async fn enter(&self, owner: &OwnerId, request: &AcquireRequest) -> Result<Acquisition> {
        let (owner, asked) = (*owner, request.clone());
        self.call("enter", &request.name, move |turn, _| turn.acquire(Some(owner), &asked)).await
    }

    async fn renew(&self, ttl: Ttl, holds: &[ReentrantHold]) -> Vec<Result<Renewed>> {
        self.renew_each(holds, move |turn, ReentrantHold { name, owner, fence, .. }| {
            turn.renew_hold(name, *owner, *fence, ttl.get())
        })
        .await
    }

    async fn exit(&self, hold: &ReentrantEntry) -> Result<Exited> {
        let (owner, token) = (hold.owner, hold.token);
        self.call("exit", &hold.name, move |turn, name| turn.exit(Some(owner), name, &token)).await
    }

    async fn abandon(&self, hold: &ReentrantEntry) -> Result<()> {
        let (owner, token) = (hold.owner, hold.token);
        self.call("abandon", &hold.name, move |turn, name| turn.abandon(Some(owner), name, &token)).await
    }
}
