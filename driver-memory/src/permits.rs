//! Semaphores and read-write locks: requests to decisions, decisions to answers.

use std::time::Duration;

use async_trait::async_trait;
use tenure_core::driver::{
    Acquisition, Exclusion, Family, Fencing, ForceReleased, PermitCapabilities, PermitChange, PermitHold,
    PermitInspection, PermitRequest, Permits, Released, Renewed, Ttl, TtlRange, Waiting, Watch,
};
use tenure_core::{FencingToken, LockName, Result};

use crate::driver::MemoryDriver;
use crate::link::Operation;
use crate::locks::RENEW_BATCH;

#[async_trait]
impl Permits for MemoryDriver {
    fn capabilities(&self) -> PermitCapabilities {
        let caps = self.caps().permits;
        PermitCapabilities::new(
            Exclusion::Process,
            Fencing::Strict,
            Waiting::Fifo,
            TtlRange { min: Ttl::MIN, max: Ttl::MAX, granularity: Duration::from_millis(1) },
        )
        .with_max_holders(caps.holders)
        .with_max_waiters(Some(caps.waiters))
        .with_renew_batch(RENEW_BATCH)
    }

    async fn acquire(&self, request: &PermitRequest) -> Result<Acquisition> {
        let asked = request.clone();
        self.call(Operation::Acquire, &request.lock.name, move |store, name| {
            let Ok(answer) = store.with_permits(asked.family, name, |rule| rule.acquire(asked.share, &asked.lock));
            Ok(answer?)
        })
        .await
    }

    async fn resize(&self, change: &PermitChange) -> Result<Acquisition> {
        let PermitChange { hold: PermitHold { family, token, .. }, to, step, presence, .. } = *change;
        self.call(Operation::Resize, &change.hold.name, move |store, name| {
            let Ok(answer) = store.with_permits(family, name, |rule| rule.resize(&token, to, step, presence));
            Ok(answer?)
        })
        .await
    }

    async fn renew(&self, ttl: Ttl, holds: &[PermitHold]) -> Vec<Result<Renewed>> {
        self.renew_each(holds, move |store, hold| store.renew_permits(hold, ttl.get())).await
    }

    async fn release(&self, hold: &PermitHold) -> Result<Released> {
        let (family, token) = (hold.family, hold.token);
        self.call(Operation::Release, &hold.name, move |store, name| {
            let Ok(released) = store.with_permits(family, name, |rule| rule.release(&token));
            Ok(released)
        })
        .await
    }

    async fn abandon(&self, hold: &PermitHold) -> Result<()> {
        let (family, token) = (hold.family, hold.token);
        self.call(Operation::Abandon, &hold.name, move |store, name| {
            let Ok(()) = store.with_permits(family, name, |rule| rule.abandon(&token));
            Ok(())
        })
        .await
    }

    async fn watch(&self, hold: &PermitHold) -> Result<Watch> {
        let (link, token) = (self.link(), hold.token);
        self.call(Operation::Watch, &hold.name, move |_, _| Ok(link.watch(token))).await
    }

    async fn inspect(&self, family: Family, name: &LockName, most: usize) -> Result<PermitInspection> {
        self.call(Operation::Inspect, name, move |store, name| Ok(store.inspect_permits(family, name, most))).await
    }

    async fn evict(&self, family: Family, name: &LockName, fence: FencingToken) -> Result<ForceReleased> {
        self.call(Operation::ForceRelease, name, move |store, name| {
            let Ok(released) = store.with_permits(family, name, |rule| rule.evict(fence));
            Ok(released)
        })
        .await
    }
}
