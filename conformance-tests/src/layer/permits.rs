//! Semaphores and read-write locks through the layer.

use std::sync::Arc;

use async_trait::async_trait;
use tenure_core::driver::{
    Acquisition, Family, ForceReleased, PermitCapabilities, PermitChange, PermitHold, PermitInspection, PermitRequest,
    Permits, Released, Renewed, Ttl, Watch,
};
use tenure_core::{FencingToken, LockName, Result};

use super::locks::{done, granted, pump, released, send, spread};
use super::{Answer, FaultLayer, Op};

#[derive(Debug)]
pub(super) struct LayeredPermits {
    inner: Arc<dyn Permits>,
    layer: FaultLayer,
}

impl LayeredPermits {
    pub(super) fn new(inner: Arc<dyn Permits>, layer: FaultLayer) -> Self {
        Self { inner, layer }
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Permits for LayeredPermits {
    fn capabilities(&self) -> PermitCapabilities {
        self.inner.capabilities()
    }

    async fn acquire(&self, request: &PermitRequest) -> Result<Acquisition> {
        let (name, token) = (&request.lock.name, Some(request.lock.token));
        send!(self, Op::Acquire, name, token, granted, |inner| inner.acquire(&request).await, request)
    }

    async fn resize(&self, change: &PermitChange) -> Result<Acquisition> {
        let (name, token) = (&change.hold.name, Some(change.hold.token));
        send!(self, Op::Resize, name, token, granted, |inner| inner.resize(&change).await, change)
    }

    async fn renew(&self, ttl: Ttl, holds: &[PermitHold]) -> Vec<Result<Renewed>> {
        let begin = |hold: &PermitHold| self.layer.begin(Op::Renew, &hold.name, Some(hold.token));
        let frames: Vec<usize> = holds.iter().map(begin).collect();
        let (inner, owned) = (Arc::clone(&self.inner), holds.to_vec());
        let sent = self.layer.send(Op::Renew, move || {
            let (inner, owned) = (Arc::clone(&inner), owned.clone());
            async move { Ok(inner.renew(ttl, &owned).await) }
        });
        spread(&self.layer, &frames, sent.await)
    }

    async fn release(&self, hold: &PermitHold) -> Result<Released> {
        send!(self, Op::Release, &hold.name, Some(hold.token), released, |inner| inner.release(&hold).await, hold)
    }

    async fn abandon(&self, hold: &PermitHold) -> Result<()> {
        send!(self, Op::Abandon, &hold.name, Some(hold.token), done, |inner| inner.abandon(&hold).await, hold)
    }

    async fn watch(&self, hold: &PermitHold) -> Result<Watch> {
        let answer = send!(self, Op::Watch, &hold.name, Some(hold.token), done, |inner| inner.watch(&hold).await, hold);
        answer.map(|inner| pump(self.layer.clone(), inner))
    }

    async fn inspect(&self, family: Family, name: &LockName, most: usize) -> Result<PermitInspection> {
        send!(self, Op::Inspect, name, None, done, |inner| inner.inspect(family, &name, most).await, name)
    }

    async fn evict(&self, family: Family, name: &LockName, fence: FencingToken) -> Result<ForceReleased> {
        send!(self, Op::ForceRelease, name, None, done, |inner| inner.evict(family, &name, fence).await, name)
    }
}
