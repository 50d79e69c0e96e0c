//! A driver with one thing wrong, over any other.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use tenure_core::driver::{
    AcquireRequest, Acquisition, Backend, Census, CensusCapabilities, CensusPlace, DelayQueue, DistributedLock, Exited,
    ForceReleased, HeldPage, Hold, Inspection, LockCapabilities, ReentrantCapabilities, ReentrantEntry, ReentrantHold,
    ReentrantLock, Released, Renewed, Ttl, Watch,
};
use tenure_core::{Error, ErrorKind, FencingToken, LockName, OwnerId, OwnerToken, Result};

use crate::harness::Fault;

/// What is wrong. Whatever is not overridden goes straight to the driver below. One twist serves all clients of a
/// case, as a server would.
#[async_trait]
pub(super) trait Twist: Send + Sync + 'static {
    fn capabilities(&self, inner: &Inner) -> LockCapabilities {
        inner.locks().capabilities()
    }

    async fn acquire(&self, inner: &Inner, request: &AcquireRequest) -> Result<Acquisition> {
        inner.locks().acquire(request).await
    }

    async fn renew(&self, inner: &Inner, ttl: Ttl, holds: &[Hold]) -> Vec<Result<Renewed>> {
        inner.locks().renew(ttl, holds).await
    }

    async fn release(&self, inner: &Inner, hold: &Hold) -> Result<Released> {
        inner.locks().release(hold).await
    }

    async fn abandon(&self, inner: &Inner, hold: &Hold) -> Result<()> {
        inner.locks().abandon(hold).await
    }

    async fn watch(&self, inner: &Inner, name: &LockName, token: &OwnerToken) -> Result<Watch> {
        inner.locks().watch(name, token).await
    }

    async fn inspect(&self, inner: &Inner, name: &LockName) -> Result<Inspection> {
        inner.locks().inspect(name).await
    }

    async fn force_release(
        &self,
        inner: &Inner,
        name: &LockName,
        expected: Option<FencingToken>,
    ) -> Result<ForceReleased> {
        inner.locks().force_release(name, expected).await
    }

    fn census_capabilities(&self, inner: &Inner) -> Option<CensusCapabilities> {
        inner.0.census().map(|driver| driver.capabilities())
    }

    async fn held(&self, inner: &Inner, prefix: &[u8], from: Option<&CensusPlace>, max: usize) -> Result<HeldPage> {
        inner.census()?.held(prefix, from, max).await
    }

    /// The server suffers this now.
    fn injected(&self, _fault: &Fault) {}

    /// What is wrong with the delay queues.
    fn queue(&self, honest: Option<Arc<dyn DelayQueue>>) -> Option<Arc<dyn DelayQueue>> {
        honest
    }

    async fn close(&self, inner: &Inner) {
        inner.locks().close().await;
    }

    fn reentrant_capabilities(&self, inner: &Inner) -> Option<ReentrantCapabilities> {
        inner.0.reentrant().map(|driver| driver.capabilities())
    }

    async fn enter(&self, inner: &Inner, owner: &OwnerId, request: &AcquireRequest) -> Result<Acquisition> {
        inner.reentrant()?.enter(owner, request).await
    }

    async fn renew_entries(&self, inner: &Inner, ttl: Ttl, holds: &[ReentrantHold]) -> Vec<Result<Renewed>> {
        match inner.reentrant() {
            Ok(driver) => driver.renew(ttl, holds).await,
            Err(_) => holds.iter().map(|_| inner.reentrant().map(|_| Renewed::Lost)).collect(),
        }
    }

    async fn exit(&self, inner: &Inner, hold: &ReentrantEntry) -> Result<Exited> {
        inner.reentrant()?.exit(hold).await
    }

    async fn abandon_entry(&self, inner: &Inner, hold: &ReentrantEntry) -> Result<()> {
        inner.reentrant()?.abandon(hold).await
    }
}

/// The driver below.
#[derive(Clone, Debug)]
pub(super) struct Inner(Backend, usize);

impl Inner {
    /// Which connection this is, out of those of the process.
    pub(super) fn client(&self) -> usize {
        self.1
    }

    pub(super) fn locks(&self) -> &dyn DistributedLock {
        &**self.0.locks()
    }

    pub(super) fn reentrant(&self) -> Result<&dyn ReentrantLock> {
        let none = || Error::new(ErrorKind::Unsupported, "the driver has no re-entrant locks");
        self.0.reentrant().map(|driver| &**driver).ok_or_else(none)
    }
}

impl Inner {
    pub(super) fn census(&self) -> Result<&dyn Census> {
        let none = || Error::new(ErrorKind::Unsupported, "the driver does not list held locks");
        self.0.census().map(|driver| &**driver).ok_or_else(none)
    }
}

/// The twisted backend.
pub(super) fn twisted(inner: Backend, twist: Arc<dyn Twist>) -> Backend {
    static CLIENTS: AtomicUsize = AtomicUsize::new(1);
    let twisted = Arc::new(Twisted { inner: Inner(inner, CLIENTS.fetch_add(1, Ordering::Relaxed)), twist });
    let backend = Backend::new(Arc::clone(&twisted) as Arc<dyn DistributedLock>);
    let backend = match twisted.twist.queue(twisted.inner.0.queue().cloned()) {
        Some(queue) => backend.with_queue(queue),
        None => backend,
    };
    let backend = match twisted.twist.census_capabilities(&twisted.inner) {
        Some(_) => backend.with_census(Arc::clone(&twisted) as Arc<dyn Census>),
        None => backend,
    };
    match twisted.twist.reentrant_capabilities(&twisted.inner) {
        Some(_) => backend.with_reentrant(twisted),
        None => backend,
    }
}

struct Twisted {
    inner: Inner,
    twist: Arc<dyn Twist>,
}

impl Debug for Twisted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Twisted")
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl DistributedLock for Twisted {
    fn driver(&self) -> &'static str {
        self.inner.locks().driver()
    }

    fn capabilities(&self) -> LockCapabilities {
        self.twist.capabilities(&self.inner)
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquisition> {
        self.twist.acquire(&self.inner, request).await
    }

    async fn renew(&self, ttl: Ttl, holds: &[Hold]) -> Vec<Result<Renewed>> {
        self.twist.renew(&self.inner, ttl, holds).await
    }

    async fn release(&self, hold: &Hold) -> Result<Released> {
        self.twist.release(&self.inner, hold).await
    }

    async fn abandon(&self, hold: &Hold) -> Result<()> {
        self.twist.abandon(&self.inner, hold).await
    }

    async fn watch(&self, name: &LockName, token: &OwnerToken) -> Result<Watch> {
        self.twist.watch(&self.inner, name, token).await
    }

    async fn inspect(&self, name: &LockName) -> Result<Inspection> {
        self.twist.inspect(&self.inner, name).await
    }

    async fn force_release(&self, name: &LockName, expected: Option<FencingToken>) -> Result<ForceReleased> {
        self.twist.force_release(&self.inner, name, expected).await
    }

    async fn close(&self) {
        self.twist.close(&self.inner).await;
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl ReentrantLock for Twisted {
    fn capabilities(&self) -> ReentrantCapabilities {
        let declared = self.twist.reentrant_capabilities(&self.inner);
        declared.expect("re-entrant locks are offered only where they are declared")
    }

    async fn enter(&self, owner: &OwnerId, request: &AcquireRequest) -> Result<Acquisition> {
        self.twist.enter(&self.inner, owner, request).await
    }

    async fn renew(&self, ttl: Ttl, holds: &[ReentrantHold]) -> Vec<Result<Renewed>> {
        self.twist.renew_entries(&self.inner, ttl, holds).await
    }

    async fn exit(&self, hold: &ReentrantEntry) -> Result<Exited> {
        self.twist.exit(&self.inner, hold).await
    }

    async fn abandon(&self, hold: &ReentrantEntry) -> Result<()> {
        self.twist.abandon_entry(&self.inner, hold).await
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Census for Twisted {
    fn capabilities(&self) -> CensusCapabilities {
        let declared = self.twist.census_capabilities(&self.inner);
        declared.expect("a list of held locks is offered only where it is declared")
    }

    async fn held(&self, prefix: &[u8], from: Option<&CensusPlace>, max: usize) -> Result<HeldPage> {
        self.twist.held(&self.inner, prefix, from, max).await
    }
}
