//! Re-entrant locks over any executor.

use async_trait::async_trait;
use tenure_core::driver::{
    AcquireRequest, Acquisition, Exited, OwnerScope, ReentrantCapabilities, ReentrantEntry, ReentrantHold,
    ReentrantLock, Renewed, Ttl,
};
use tenure_core::{OwnerId, Result};

use crate::call;
use crate::call::MAX_DEPTH;
use crate::lock::RedisLocks;
use crate::remote::RedisExecutor;

#[async_trait]
impl<E: RedisExecutor> ReentrantLock for RedisLocks<E> {
    fn capabilities(&self) -> ReentrantCapabilities {
        ReentrantCapabilities::new(OwnerScope::Backend, MAX_DEPTH)
    }

    async fn enter(&self, owner: &OwnerId, request: &AcquireRequest) -> Result<Acquisition> {
        self.check().await?;
        let reply = self.run("enter", &request.name, self.calls().enter(owner, request)).await?;
        call::acquisition(&reply, request.ttl.get(), &self.calls().settings)
            .map_err(|error| error.during(self.executor().driver(), "enter", &request.name))
    }

    async fn renew(&self, ttl: Ttl, holds: &[ReentrantHold]) -> Vec<Result<Renewed>> {
        self.run_batch(holds, |part| self.calls().renew_hold(ttl, part)).await
    }

    async fn exit(&self, hold: &ReentrantEntry) -> Result<Exited> {
        let answer = self.free("exit", &hold.name, self.calls().exit(hold)).await?;
        call::exited(answer).map_err(|error| error.during(self.executor().driver(), "exit", &hold.name))
    }

    async fn abandon(&self, hold: &ReentrantEntry) -> Result<()> {
        self.free("abandon", &hold.name, self.calls().abandon_entry(hold)).await.map(drop)
    }
}
