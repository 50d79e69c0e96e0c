//! Plain locks: requests to decisions, decisions to answers.

use std::time::Duration;

use async_trait::async_trait;
use tenure_core::driver::{
    AcquireRequest, Acquisition, DistributedLock, Exclusion, Fencing, ForceReleased, Hold, Inspection,
    LockCapabilities, Released, Renewed, Ttl, TtlRange, Waiting, Watch,
};
use tenure_core::rules::locks::{Claimant, MOST_FENCES};
use tenure_core::{FencingToken, LockName, OwnerToken, Result};

use crate::driver::{DRIVER, MemoryDriver};
use crate::link::Operation;
use crate::store::Store;

/// How many holds one renewal may carry. There is no frame to fill; the number bounds how long the store is busy.
pub(crate) const RENEW_BATCH: usize = 1000;

#[async_trait]
impl DistributedLock for MemoryDriver {
    fn driver(&self) -> &'static str {
        DRIVER
    }

    fn capabilities(&self) -> LockCapabilities {
        LockCapabilities::new(
            Exclusion::Process,
            Fencing::Strict,
            Waiting::Fifo,
            TtlRange { min: Ttl::MIN, max: Ttl::MAX, granularity: Duration::from_millis(1) },
        )
        .with_max_waiters(Some(self.caps().locks.waiters))
        .with_renew_batch(RENEW_BATCH)
        .with_max_fences(MOST_FENCES)
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquisition> {
        let asked = request.clone();
        let apply = move |store: &Store, _: &LockName| acquire(store, Claimant::Plain, &asked);
        self.call(Operation::Acquire, &request.name, apply).await
    }

    async fn renew(&self, ttl: Ttl, holds: &[Hold]) -> Vec<Result<Renewed>> {
        self.renew_each(holds, move |store, hold| {
            store.with_entry(&hold.name, |entry| entry.rule().renew(&hold.token, ttl.get()))
        })
        .await
    }

    async fn release(&self, hold: &Hold) -> Result<Released> {
        let token = hold.token;
        self.call(Operation::Release, &hold.name, move |store, name| {
            let Ok(released) = store.with_entry(name, |entry| entry.rule().release(&token));
            Ok(released)
        })
        .await
    }

    async fn abandon(&self, hold: &Hold) -> Result<()> {
        let token = hold.token;
        self.call(Operation::Abandon, &hold.name, move |store, name| {
            abandon(store, Claimant::Plain, name, token);
            Ok(())
        })
        .await
    }

    async fn watch(&self, name: &LockName, token: &OwnerToken) -> Result<Watch> {
        let (link, token) = (self.link(), *token);
        self.call(Operation::Watch, name, move |_, _| Ok(link.watch(token))).await
    }

    async fn inspect(&self, name: &LockName) -> Result<Inspection> {
        self.call(Operation::Inspect, name, |store, name| {
            let Ok(seen) = store.with_entry(name, |entry| entry.rule().inspect());
            Ok(seen)
        })
        .await
    }

    async fn force_release(&self, name: &LockName, expected: Option<FencingToken>) -> Result<ForceReleased> {
        self.call(Operation::ForceRelease, name, move |store, name| Ok(store.force_release(name, expected))).await
    }

    async fn close(&self) {
        self.close_connection();
    }
}

impl MemoryDriver {
    /// Renews one after the other; a failure on the way is the answer to all.
    pub(crate) async fn renew_each<R: Clone + Send + 'static>(
        &self,
        holds: &[R],
        renew: impl Fn(&Store, &R) -> Renewed + Send + 'static,
    ) -> Vec<Result<Renewed>> {
        let asked = holds.to_vec();
        let apply = move |store: &Store| asked.iter().map(|hold| renew(store, hold)).collect::<Vec<_>>();
        match self.carry(Operation::Renew, apply).await {
            Ok(answers) => answers.into_iter().map(Ok).collect(),
            Err(failure) => holds.iter().map(|_| Err(failure.error())).collect(),
        }
    }
}

/// Takes or enters a lock, unless the token was abandoned.
pub(crate) fn acquire(store: &Store, claimant: Claimant, request: &AcquireRequest) -> Result<Acquisition> {
    let Ok(answer) = store.with_entry(&request.name, |entry| entry.rule().acquire(claimant, request, store.caps.locks));
    Ok(answer?)
}

/// Undoes whatever the token asked for, and remembers that it was abandoned.
pub(crate) fn abandon(store: &Store, claimant: Claimant, name: &LockName, token: OwnerToken) {
    let Ok(()) = store.with_entry(name, |entry| entry.rule().abandon(claimant, &token));
}
