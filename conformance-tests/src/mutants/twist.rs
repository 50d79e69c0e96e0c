//! A driver with one defect, over any other.

use std::fmt::Debug;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::driver::{
    AcquireRequest, Acquisition, Backend, Census, CensusCapabilities, CensusPlace, DistributedLock, Exited, Family,
    ForceReleased, Grant, HeldPage, Hold, Inspection, LockCapabilities, PermitCapabilities, PermitChange, PermitHold,
    PermitInspection, PermitRequest, Permits, QueueAdmin, ReentrantCapabilities, ReentrantEntry, ReentrantHold,
    ReentrantLock, Released, Renewed, Ttl, Watch,
};
use tenure_core::{Error, ErrorKind, FencingToken, LockName, OwnerId, OwnerToken, Result};

use crate::harness::{Administration, Fault};

/// A defect. Methods that are not overridden call the driver below directly. One twist serves all clients of a
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

    /// The delay queues, with their defect.
    fn queue(&self, honest: Option<Arc<dyn QueueAdmin>>) -> Option<Arc<dyn QueueAdmin>> {
        honest
    }

    /// Whether the operations on stored messages remain.
    fn administration(&self) -> Administration {
        Administration::Full
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

    fn permit_capabilities(&self, inner: &Inner) -> Option<PermitCapabilities> {
        inner.0.permits().map(|driver| driver.capabilities())
    }

    async fn take_permits(&self, inner: &Inner, request: &PermitRequest) -> Result<Acquisition> {
        inner.permits()?.acquire(request).await
    }

    async fn resize(&self, inner: &Inner, change: &PermitChange) -> Result<Acquisition> {
        inner.permits()?.resize(change).await
    }

    async fn renew_permits(&self, inner: &Inner, ttl: Ttl, holds: &[PermitHold]) -> Vec<Result<Renewed>> {
        match inner.permits() {
            Ok(driver) => driver.renew(ttl, holds).await,
            Err(_) => holds.iter().map(|_| inner.permits().map(|_| Renewed::Lost)).collect(),
        }
    }

    async fn release_permits(&self, inner: &Inner, hold: &PermitHold) -> Result<Released> {
        inner.permits()?.release(hold).await
    }

    async fn abandon_permits(&self, inner: &Inner, hold: &PermitHold) -> Result<()> {
        inner.permits()?.abandon(hold).await
    }

    async fn watch_permits(&self, inner: &Inner, hold: &PermitHold) -> Result<Watch> {
        inner.permits()?.watch(hold).await
    }

    async fn inspect_permits(
        &self,
        inner: &Inner,
        family: Family,
        name: &LockName,
        most: usize,
    ) -> Result<PermitInspection> {
        inner.permits()?.inspect(family, name, most).await
    }

    async fn evict(
        &self,
        inner: &Inner,
        family: Family,
        name: &LockName,
        fence: FencingToken,
    ) -> Result<ForceReleased> {
        inner.permits()?.evict(family, name, fence).await
    }
}

/// A twist whose methods are in the table: `flaw!(release(inner, hold) => …, abandon(_, _) => Ok(()))`. What the
/// clients of a case share is named before them: `flaw!(seen: Shared<HashSet<OwnerToken>>; release(inner, hold) => …)`.
#[rustfmt::skip]
macro_rules! flaw {
    ($($method:ident($($arg:tt),*) => $body:expr),+ $(,)?) => {
        flaw!(@ [_none: ()] {} $($method($($arg),*) => $body,)+)
    };
    ($shared:ident: $type:ty; $($method:ident($($arg:tt),*) => $body:expr),+ $(,)?) => {
        flaw!(@ [$shared: $type] {} $($method($($arg),*) => $body,)+)
    };
    (@ [$s:ident: $type:ty] {$($m:tt)*} acquire($i:tt, $r:tt) => $e:expr, $($more:tt)*) => {
        flaw!(@ [$s: $type] {
            $($m)*
            async fn acquire(&self, $i: &Inner, $r: &AcquireRequest) -> Result<Acquisition> { let $s = &self.0; $e }
        } $($more)*)
    };
    (@ [$s:ident: $type:ty] {$($m:tt)*} renew($i:tt, $t:tt, $h:tt) => $e:expr, $($more:tt)*) => {
        flaw!(@ [$s: $type] {
            $($m)*
            async fn renew(&self, $i: &Inner, $t: Ttl, $h: &[Hold]) -> Vec<Result<Renewed>> { let $s = &self.0; $e }
        } $($more)*)
    };
    (@ [$s:ident: $type:ty] {$($m:tt)*} release($i:tt, $h:tt) => $e:expr, $($more:tt)*) => {
        flaw!(@ [$s: $type] {
            $($m)*
            async fn release(&self, $i: &Inner, $h: &Hold) -> Result<Released> { let $s = &self.0; $e }
        } $($more)*)
    };
    (@ [$s:ident: $type:ty] {$($m:tt)*} abandon($i:tt, $h:tt) => $e:expr, $($more:tt)*) => {
        flaw!(@ [$s: $type] {
            $($m)*
            async fn abandon(&self, $i: &Inner, $h: &Hold) -> Result<()> { let $s = &self.0; $e }
        } $($more)*)
    };
    (@ [$s:ident: $type:ty] {$($m:tt)*} watch($i:tt, $n:tt, $t:tt) => $e:expr, $($more:tt)*) => {
        flaw!(@ [$s: $type] {
            $($m)*
            async fn watch(&self, $i: &Inner, $n: &LockName, $t: &OwnerToken) -> Result<Watch> { let $s = &self.0; $e }
        } $($more)*)
    };
    (@ [$s:ident: $type:ty] {$($m:tt)*} inspect($i:tt, $n:tt) => $e:expr, $($more:tt)*) => {
        flaw!(@ [$s: $type] {
            $($m)*
            async fn inspect(&self, $i: &Inner, $n: &LockName) -> Result<Inspection> { let $s = &self.0; $e }
        } $($more)*)
    };
    (@ [$s:ident: $type:ty] {$($m:tt)*} force_release($i:tt, $n:tt, $f:tt) => $e:expr, $($more:tt)*) => {
        flaw!(@ [$s: $type] {
            $($m)*
            async fn force_release(
                &self, $i: &Inner, $n: &LockName, $f: Option<FencingToken>,
            ) -> Result<ForceReleased> {
                let $s = &self.0;
                $e
            }
        } $($more)*)
    };
    (@ [$s:ident: $type:ty] {$($m:tt)*} close($i:tt) => $e:expr, $($more:tt)*) => {
        flaw!(@ [$s: $type] {$($m)* async fn close(&self, $i: &Inner) { let $s = &self.0; $e }} $($more)*)
    };
    (@ [$s:ident: $type:ty] {$($m:tt)*} enter($i:tt, $o:tt, $r:tt) => $e:expr, $($more:tt)*) => {
        flaw!(@ [$s: $type] {
            $($m)*
            async fn enter(&self, $i: &Inner, $o: &OwnerId, $r: &AcquireRequest) -> Result<Acquisition> {
                let $s = &self.0;
                $e
            }
        } $($more)*)
    };
    (@ [$s:ident: $type:ty] {$($m:tt)*} renew_entries($i:tt, $t:tt, $h:tt) => $e:expr, $($more:tt)*) => {
        flaw!(@ [$s: $type] {
            $($m)*
            async fn renew_entries(&self, $i: &Inner, $t: Ttl, $h: &[ReentrantHold]) -> Vec<Result<Renewed>> {
                let $s = &self.0;
                $e
            }
        } $($more)*)
    };
    (@ [$s:ident: $type:ty] {$($m:tt)*} exit($i:tt, $h:tt) => $e:expr, $($more:tt)*) => {
        flaw!(@ [$s: $type] {
            $($m)*
            async fn exit(&self, $i: &Inner, $h: &ReentrantEntry) -> Result<Exited> { let $s = &self.0; $e }
        } $($more)*)
    };
    (@ [$s:ident: $type:ty] {$($m:tt)*} abandon_entry($i:tt, $h:tt) => $e:expr, $($more:tt)*) => {
        flaw!(@ [$s: $type] {
            $($m)*
            async fn abandon_entry(&self, $i: &Inner, $h: &ReentrantEntry) -> Result<()> { let $s = &self.0; $e }
        } $($more)*)
    };
    (@ [$s:ident: $type:ty] {$($m:tt)*} take_permits($i:tt, $r:tt) => $e:expr, $($more:tt)*) => {
        flaw!(@ [$s: $type] {
            $($m)*
            async fn take_permits(&self, $i: &Inner, $r: &PermitRequest) -> Result<Acquisition> { let $s = &self.0; $e }
        } $($more)*)
    };
    (@ [$s:ident: $type:ty] {$($m:tt)*} resize($i:tt, $c:tt) => $e:expr, $($more:tt)*) => {
        flaw!(@ [$s: $type] {
            $($m)*
            async fn resize(&self, $i: &Inner, $c: &PermitChange) -> Result<Acquisition> { let $s = &self.0; $e }
        } $($more)*)
    };
    (@ [$s:ident: $type:ty] {$($m:tt)*} renew_permits($i:tt, $t:tt, $h:tt) => $e:expr, $($more:tt)*) => {
        flaw!(@ [$s: $type] {
            $($m)*
            async fn renew_permits(&self, $i: &Inner, $t: Ttl, $h: &[PermitHold]) -> Vec<Result<Renewed>> { let $s = &self.0; $e }
        } $($more)*)
    };
    (@ [$s:ident: $type:ty] {$($m:tt)*} release_permits($i:tt, $h:tt) => $e:expr, $($more:tt)*) => {
        flaw!(@ [$s: $type] {
            $($m)*
            async fn release_permits(&self, $i: &Inner, $h: &PermitHold) -> Result<Released> { let $s = &self.0; $e }
        } $($more)*)
    };
    (@ [$s:ident: $type:ty] {$($m:tt)*} abandon_permits($i:tt, $h:tt) => $e:expr, $($more:tt)*) => {
        flaw!(@ [$s: $type] {
            $($m)*
            async fn abandon_permits(&self, $i: &Inner, $h: &PermitHold) -> Result<()> { let $s = &self.0; $e }
        } $($more)*)
    };
    (@ [$s:ident: $type:ty] {$($m:tt)*} watch_permits($i:tt, $h:tt) => $e:expr, $($more:tt)*) => {
        flaw!(@ [$s: $type] {
            $($m)*
            async fn watch_permits(&self, $i: &Inner, $h: &PermitHold) -> Result<Watch> { let $s = &self.0; $e }
        } $($more)*)
    };
    (@ [$s:ident: $type:ty] {$($m:tt)*} inspect_permits($i:tt, $f:tt, $n:tt, $o:tt) => $e:expr, $($more:tt)*) => {
        flaw!(@ [$s: $type] {
            $($m)*
            async fn inspect_permits(
                &self, $i: &Inner, $f: Family, $n: &LockName, $o: usize,
            ) -> Result<PermitInspection> {
                let $s = &self.0;
                $e
            }
        } $($more)*)
    };
    (@ [$s:ident: $type:ty] {$($m:tt)*} evict($i:tt, $f:tt, $n:tt, $t:tt) => $e:expr, $($more:tt)*) => {
        flaw!(@ [$s: $type] {
            $($m)*
            async fn evict(
                &self, $i: &Inner, $f: Family, $n: &LockName, $t: FencingToken,
            ) -> Result<ForceReleased> {
                let $s = &self.0;
                $e
            }
        } $($more)*)
    };
    (@ [$s:ident: $type:ty] {$($m:tt)*}) => {{
        #[allow(unused_imports, clippy::wildcard_imports, reason = "each method needs some of the types")]
        use $crate::mutants::twist::{Inner, Twist, signatures::*};
        struct Twisted($type);
        #[async_trait::async_trait]
        impl Twist for Twisted { $($m)* }
        Twisted(<$type>::default())
    }};
}
pub(super) use flaw;

/// The types that [`flaw!`] writes.
pub(super) mod signatures {
    pub(in crate::mutants) use tenure_core::driver::{
        AcquireRequest, Acquisition, Exited, Family, ForceReleased, Hold, Inspection, PermitChange, PermitHold,
        PermitInspection, PermitRequest, ReentrantEntry, ReentrantHold, Released, Renewed, Ttl, Watch,
    };
    pub(in crate::mutants) use tenure_core::{FencingToken, LockName, OwnerId, OwnerToken, Result};
}

/// The answer; if it is a grant, a changed one.
pub(super) fn regranted(answer: Acquisition, change: impl FnOnce(Grant) -> Grant) -> Acquisition {
    match answer {
        Acquisition::Granted(grant) => Acquisition::Granted(change(grant)),
        busy => busy,
    }
}

/// A watch that keeps the real one and never fires.
pub(super) fn silent(real: Watch) -> Watch {
    let (_never, watch) = Watch::channel();
    watch.on_drop(move || drop(real))
}

/// A watch that keeps the real one and fires every 20 ms.
pub(super) fn restless(real: Watch) -> Watch {
    let (handle, watch) = Watch::channel();
    let task = tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(20)).await;
            handle.wake();
        }
    });
    watch.on_drop(move || {
        task.abort();
        drop(real);
    })
}

/// What the clients of a case share.
#[derive(Default)]
pub(super) struct Shared<T>(Mutex<T>);

impl<T> Shared<T> {
    pub(super) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
    pub(super) fn permits(&self) -> Result<&dyn Permits> {
        let none = || Error::new(ErrorKind::Unsupported, "the driver has no semaphores and read-write locks");
        self.0.permits().map(|driver| &**driver).ok_or_else(none)
    }

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
    let backend = match (twisted.twist.queue(twisted.inner.0.queue_admin().cloned()), twisted.twist.administration()) {
        (Some(queue), Administration::Full) => backend.with_queue(queue.clone()).with_queue_admin(queue),
        (Some(queue), Administration::None) => backend.with_queue(queue),
        (None, _) => backend,
    };
    let backend = match twisted.twist.census_capabilities(&twisted.inner) {
        Some(_) => backend.with_census(Arc::clone(&twisted) as Arc<dyn Census>),
        None => backend,
    };
    let backend = match twisted.twist.permit_capabilities(&twisted.inner) {
        Some(_) => backend.with_permits(Arc::clone(&twisted) as Arc<dyn Permits>),
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
impl Permits for Twisted {
    fn capabilities(&self) -> PermitCapabilities {
        let declared = self.twist.permit_capabilities(&self.inner);
        declared.expect("permits are offered only where they are declared")
    }

    async fn acquire(&self, request: &PermitRequest) -> Result<Acquisition> {
        self.twist.take_permits(&self.inner, request).await
    }

    async fn resize(&self, change: &PermitChange) -> Result<Acquisition> {
        self.twist.resize(&self.inner, change).await
    }

    async fn renew(&self, ttl: Ttl, holds: &[PermitHold]) -> Vec<Result<Renewed>> {
        self.twist.renew_permits(&self.inner, ttl, holds).await
    }

    async fn release(&self, hold: &PermitHold) -> Result<Released> {
        self.twist.release_permits(&self.inner, hold).await
    }

    async fn abandon(&self, hold: &PermitHold) -> Result<()> {
        self.twist.abandon_permits(&self.inner, hold).await
    }

    async fn watch(&self, hold: &PermitHold) -> Result<Watch> {
        self.twist.watch_permits(&self.inner, hold).await
    }

    async fn inspect(&self, family: Family, name: &LockName, most: usize) -> Result<PermitInspection> {
        self.twist.inspect_permits(&self.inner, family, name, most).await
    }

    async fn evict(&self, family: Family, name: &LockName, fence: FencingToken) -> Result<ForceReleased> {
        self.twist.evict(&self.inner, family, name, fence).await
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
