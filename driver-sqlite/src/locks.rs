//! Plain locks: turns requests into decisions, and decisions into answers.

use std::time::Duration;

use async_trait::async_trait;
use tenure_core::driver::{
    AcquireRequest, Acquisition, DistributedLock, ErrorExt as _, Exclusion, Fencing, ForceReleased, Hold, Inspection,
    LockCapabilities, Released, Renewed, Ttl, TtlRange, Waiting, Watch,
};
use tenure_core::rules::locks::{self, Claimant, MOST_FENCES};
use tenure_core::{Error, FencingToken, LockName, OwnerToken, Result};

use crate::decide::{LockRule, decide};
use crate::driver::{DRIVER, SqliteDriver};
use crate::error::{Done, Failed};
use crate::store::Turn;

/// How many holds one renewal may carry. The number bounds how long a transaction keeps others waiting.
pub(crate) const RENEW_BATCH: usize = 500;

#[async_trait]
impl DistributedLock for SqliteDriver {
    fn driver(&self) -> &'static str {
        DRIVER
    }

    fn capabilities(&self) -> LockCapabilities {
        LockCapabilities::new(
            Exclusion::SingleNode,
            Fencing::ClockSeeded,
            Waiting::Fifo,
            TtlRange { min: Ttl::MIN, max: Ttl::MAX, granularity: Duration::from_millis(1) },
        )
        .with_max_waiters(Some(self.caps().max_waiters))
        .with_renew_batch(RENEW_BATCH)
        .with_max_fences(MOST_FENCES)
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquisition> {
        self.acquire_for(Claimant::Plain, "acquire", request).await
    }

    async fn renew(&self, ttl: Ttl, holds: &[Hold]) -> Vec<Result<Renewed>> {
        self.renew_each(holds, move |turn, hold| {
            decide(turn, &hold.name, |rule| Ok(rule.renew(&hold.token, ttl.get())))
        })
        .await
    }

    async fn release(&self, hold: &Hold) -> Result<Released> {
        let token = hold.token;
        self.call("release", &hold.name, move |rule| rule.release(&token)).await
    }

    async fn abandon(&self, hold: &Hold) -> Result<()> {
        let token = hold.token;
        self.call("abandon", &hold.name, move |rule| rule.abandon(Claimant::Plain, &token)).await
    }

    async fn watch(&self, name: &LockName, token: &OwnerToken) -> Result<Watch> {
        let bell = self.worker().bell().map_err(|error| error.during(DRIVER, "watch", name))?;
        Ok(bell.locks.register(*token))
    }

    async fn inspect(&self, name: &LockName) -> Result<Inspection> {
        self.call("inspect", name, |rule| rule.inspect()).await
    }

    async fn force_release(&self, name: &LockName, expected: Option<FencingToken>) -> Result<ForceReleased> {
        self.call("force_release", name, move |rule| rule.force_release(expected)).await
    }

    async fn close(&self) {
        self.worker().close().await;
    }
}

impl SqliteDriver {
    /// Takes or enters a lock.
    pub(crate) async fn acquire_for(
        &self,
        claimant: Claimant,
        operation: &'static str,
        request: &AcquireRequest,
    ) -> Result<Acquisition> {
        let asked = request.clone();
        let caps = locks::Caps { waiters: self.caps().max_waiters, depth: self.caps().max_depth };
        let refused = |refusal| Failed::from(Error::from(refusal));
        let acquire = move |rule: &mut LockRule<'_, '_>| rule.acquire(claimant, &asked, caps)?.map_err(refused);
        self.call(operation, &request.name, acquire).await
    }

    /// Renews one after the other in one transaction; a failure on the way is the answer to all.
    pub(crate) async fn renew_each<R: Clone + Send + 'static>(
        &self,
        holds: &[R],
        renew: impl Fn(&mut Turn<'_>, &R) -> Done<Renewed> + Send + 'static,
    ) -> Vec<Result<Renewed>> {
        let asked = holds.to_vec();
        let each = move |turn: &mut Turn<'_>| {
            let one = |hold: &R| match renew(turn, hold).map_err(Error::from) {
                // A hold that cannot be read keeps no other from being renewed.
                Err(error) if error.kind() != tenure_core::ErrorKind::Damaged => Err(error),
                answer => Ok(answer),
            };
            Ok(asked.iter().map(one).collect::<Result<Vec<_>>>()?)
        };
        match self.worker().ask(each).await {
            Ok(answers) => answers,
            Err(error) => holds.iter().map(|_| Err(error.again())).collect(),
        }
    }
}
