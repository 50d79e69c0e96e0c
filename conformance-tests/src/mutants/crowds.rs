//! Mutants that break under many requests, or when a runtime ends.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::driver::{AcquireRequest, Acquisition, Hold, Released};
use tenure_core::{Error, ErrorKind, OwnerId, Result};

use super::maker::{Mutant, mutant};
use super::twist::{Inner, Twist};

#[rustfmt::skip]
pub(super) const MUTANTS: &[Mutant] = &[
    mutant!("crowd/requests-get-lost",
        "of more than a hundred requests on their way at once, the further ones get no answer",
        Crowded { most: 100, ..Crowded::default() }, ["burst/thousand-locks-at-once"]),
    mutant!("crowd/waiters-are-refused", "more than twenty requests on their way at once are refused",
        Crowded { most: 20, refuses: true, ..Crowded::default() },
        ["burst/hundred-clients", "burst/thousand-waiters-of-one-lock"]),
    mutant!("runtime/dies-with-the-first", "nothing works any more when the runtime of the first request has ended",
        Mortal::default(), ["runtime/client-outlives-its-first"]),
];

#[derive(Default)]
struct Crowded {
    most: usize,
    refuses: bool,
    on_their_way: AtomicUsize,
}

struct OnItsWay<'a>(&'a AtomicUsize);

impl Drop for OnItsWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Crowded {
    async fn carry<T>(&self, request: impl Future<Output = Result<T>>) -> Result<T> {
        let others = self.on_their_way.fetch_add(1, Ordering::AcqRel);
        let _on_its_way = OnItsWay(&self.on_their_way);
        tokio::time::sleep(Duration::from_millis(1)).await;
        match (others >= self.most, self.refuses) {
            (false, _) => request.await,
            (true, false) => std::future::pending().await,
            (true, true) => Err(Error::new(ErrorKind::Protocol, "too many at once")),
        }
    }
}

#[async_trait]
impl Twist for Crowded {
    async fn acquire(&self, inner: &Inner, request: &AcquireRequest) -> Result<Acquisition> {
        self.carry(inner.locks().acquire(request)).await
    }

    async fn enter(&self, inner: &Inner, owner: &OwnerId, request: &AcquireRequest) -> Result<Acquisition> {
        self.carry(async { inner.reentrant()?.enter(owner, request).await }).await
    }
}

/// Whether the runtime of the first request has ended.
#[derive(Default)]
struct Mortal(OnceLock<Arc<AtomicBool>>);

struct RaiseOnDrop(Arc<AtomicBool>);

impl Drop for RaiseOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

impl Mortal {
    fn ensure_alive(&self) -> Result<()> {
        let dead = self.0.get_or_init(|| {
            let dead = Arc::<AtomicBool>::default();
            let last_word = RaiseOnDrop(Arc::clone(&dead));
            tokio::spawn(async move {
                let _last_word = last_word;
                std::future::pending::<()>().await;
            });
            dead
        });
        match dead.load(Ordering::Acquire) {
            true => Err(Error::new(ErrorKind::Unavailable, "the runtime has ended")),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl Twist for Mortal {
    async fn acquire(&self, inner: &Inner, request: &AcquireRequest) -> Result<Acquisition> {
        self.ensure_alive()?;
        inner.locks().acquire(request).await
    }

    async fn release(&self, inner: &Inner, hold: &Hold) -> Result<Released> {
        self.ensure_alive()?;
        inner.locks().release(hold).await
    }
}
