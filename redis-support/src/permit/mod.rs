//! Semaphores and read-write locks.

mod call;

use async_trait::async_trait;
use tenure_core::driver::{
    Acquisition, ErrorExt as _, Family, ForceReleased, PermitCapabilities, PermitChange, PermitHold, PermitInspection,
    PermitRequest, Permits, Released, Renewed, Ttl, Waiting, Watch,
};
use tenure_core::{FencingToken, LockName, Result};

use self::call::Decided;
use crate::link::Dialer;
use crate::lock::{Driver, RENEW_BATCH, TTLS};
use crate::script::ScriptCall;

/// The most holders of one name: the number in `scripts/permit/part/record.lua`.
const MAX_HOLDERS: u32 = 1024;

/// A request is one script. It is sent again if more leases had ended than one script removes, and others follow if more
/// waiters fit now than one notifies.
#[async_trait]
impl<D: Dialer> Permits for Driver<D> {
    fn capabilities(&self) -> PermitCapabilities {
        let (exclusion, fencing) = self.promises();
        PermitCapabilities::new(exclusion, fencing, Waiting::Fifo, TTLS)
            .with_max_holders(MAX_HOLDERS)
            .with_max_waiters(Some(self.calls().settings.max_waiters))
            .with_renew_batch(RENEW_BATCH)
    }

    async fn acquire(&self, request: &PermitRequest) -> Result<Acquisition> {
        self.check().await?;
        let (name, calls) = (&request.lock.name, self.calls());
        let decided = self.decide("acquire", request.family, name, || calls.permit_acquire(request)).await?;
        decided
            .acquisition(request.lock.ttl.get(), request.share, &calls.settings)
            .map_err(|error| error.during(D::DRIVER, "acquire", name))
    }

    async fn resize(&self, change: &PermitChange) -> Result<Acquisition> {
        let PermitChange { hold, to, .. } = change;
        let calls = self.calls();
        let decided = self.decide("resize", hold.family, &hold.name, || calls.permit_resize(change)).await?;
        decided
            .acquisition(Ttl::MAX, *to, &calls.settings)
            .map_err(|error| error.during(D::DRIVER, "resize", &hold.name))
    }

    async fn renew(&self, ttl: Ttl, holds: &[PermitHold]) -> Vec<Result<Renewed>> {
        self.run_batch(holds, |hold| &hold.name, |part| self.calls().permit_renew(ttl, part)).await
    }

    async fn release(&self, hold: &PermitHold) -> Result<Released> {
        let call = || self.calls().permit_release(hold);
        let released = self.decide("release", hold.family, &hold.name, call).await?.is_done()?;
        Ok(if released { Released::Released } else { Released::NotHeld })
    }

    async fn abandon(&self, hold: &PermitHold) -> Result<()> {
        self.decide("abandon", hold.family, &hold.name, || self.calls().permit_abandon(hold)).await.map(drop)
    }

    async fn watch(&self, hold: &PermitHold) -> Result<Watch> {
        Ok(self.0.wake.router().register(hold.token))
    }

    async fn inspect(&self, family: Family, name: &LockName, most: usize) -> Result<PermitInspection> {
        let reply = self.run("inspect", name, self.calls().permit_inspect(family, name, most)).await?;
        call::inspection(&reply).map_err(|error| error.during(D::DRIVER, "inspect", name))
    }

    async fn evict(&self, family: Family, name: &LockName, fence: FencingToken) -> Result<ForceReleased> {
        let call = || self.calls().permit_evict(family, name, fence);
        let released = self.decide("evict", family, name, call).await?.is_done()?;
        Ok(if released { ForceReleased::Released } else { ForceReleased::NotHeld })
    }
}

impl<D: Dialer> Driver<D> {
    /// Runs a script until it has decided, and notifies the waiters that it left. An error of the latter is not returned:
    /// those waiters ask by themselves after a while.
    async fn decide(
        &self,
        operation: &'static str,
        family: Family,
        name: &LockName,
        call: impl Fn() -> ScriptCall + Send,
    ) -> Result<Decided> {
        let decided = loop {
            let reply = self.run(operation, name, call()).await?;
            if let Some(decided) = Decided::of(reply) {
                break decided;
            }
        };
        let mut more = decided.leaves_waiters();
        while more {
            let passed = self.run(operation, name, self.calls().permit_pass(family, name)).await;
            more = passed.is_ok_and(|reply| Decided::of(reply).is_none_or(|decided| decided.leaves_waiters()));
        }
        Ok(decided)
    }
}
