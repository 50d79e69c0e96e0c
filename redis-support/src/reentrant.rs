//! Re-entrant locks.

use async_trait::async_trait;
use tenure_core::driver::{
    AcquireRequest, Acquisition, ErrorExt as _, Exited, OwnerScope, ReentrantCapabilities, ReentrantEntry,
    ReentrantHold, ReentrantLock, Renewed, Ttl,
};
use tenure_core::{OwnerId, Result};

use crate::call::{self, MAX_DEPTH};
use crate::link::Dialer;
use crate::lock::Driver;

#[async_trait]
impl<D: Dialer> ReentrantLock for Driver<D> {
    fn capabilities(&self) -> ReentrantCapabilities {
        ReentrantCapabilities::new(OwnerScope::Backend, MAX_DEPTH)
    }

    async fn enter(&self, owner: &OwnerId, request: &AcquireRequest) -> Result<Acquisition> {
        self.check().await?;
        let reply = self.run("enter", &request.name, self.calls().enter(owner, request)).await?;
        call::acquisition(&reply, request.ttl.get(), &self.calls().settings)
            .map_err(|error| error.during(D::DRIVER, "enter", &request.name))
    }

    async fn renew(&self, ttl: Ttl, holds: &[ReentrantHold]) -> Vec<Result<Renewed>> {
        self.run_batch(holds, |hold| &hold.name, |part| self.calls().renew_hold(ttl, part)).await
    }

    async fn exit(&self, hold: &ReentrantEntry) -> Result<Exited> {
        let answer = self.free("exit", &hold.name, self.calls().exit(hold)).await?;
        call::exited(answer).map_err(|error| error.during(D::DRIVER, "exit", &hold.name))
    }

    async fn abandon(&self, hold: &ReentrantEntry) -> Result<()> {
        self.free("abandon", &hold.name, self.calls().abandon_entry(hold)).await.map(drop)
    }
}
