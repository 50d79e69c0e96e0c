//! Mutants of a waiter's turn: leases that are handed over.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use tenure_core::driver::{AcquireRequest, Acquisition, Handed, Signal, Watch};
use tenure_core::{FencingToken, LockName, OwnerToken, Result};

use super::maker::{Mutant, mutant};
use super::twist::{Inner, Shared, Twist};

#[rustfmt::skip]
pub(super) const MUTANTS: &[Mutant] = &[
    mutant!("turn/longer-than-kept", "a waiter receives a longer lease than the one that was handed over",
        Told(|handed| handed.with_ttl(handed.ttl * 4)), ["window/turn-ends-before-the-next-grant"]),
    mutant!("turn/old-fence", "a waiter receives the fence of the hold before its own",
        Told(|handed| handed.with_fence(before(handed.fence))), ["fence/grows-with-every-turn"]),
    mutant!("turn/cannot-be-made-to-last",
        "a request for a lock that was handed over does not lengthen its lease",
        NotLengthened::default(), ["runtime/turn-outlasts-blocking-work"]),
];

/// The leases that were handed over, and how long they last without renewal.
#[derive(Clone, Default)]
struct NotLengthened(Arc<Shared<HashMap<OwnerToken, Handed>>>);

#[async_trait]
impl Twist for NotLengthened {
    async fn watch(&self, inner: &Inner, name: &LockName, token: &OwnerToken) -> Result<Watch> {
        let (seen, token) = (Arc::clone(&self.0), *token);
        Ok(reported(inner.locks().watch(name, &token).await?, move |handed| {
            seen.lock().insert(token, handed);
            handed
        }))
    }

    async fn acquire(&self, inner: &Inner, request: &AcquireRequest) -> Result<Acquisition> {
        let handed = self.0.lock().remove(&request.token);
        Ok(match (inner.locks().acquire(request).await?, handed) {
            (Acquisition::Granted(grant), Some(Handed { ttl, .. })) => Acquisition::Granted(grant.with_ttl(ttl)),
            (answer, _) => answer,
        })
    }
}

fn before(fence: FencingToken) -> FencingToken {
    FencingToken::new(fence.get() - 1).unwrap_or(fence)
}

/// Handed-over leases are reported differently.
struct Told(fn(Handed) -> Handed);

#[async_trait]
impl Twist for Told {
    async fn watch(&self, inner: &Inner, name: &LockName, token: &OwnerToken) -> Result<Watch> {
        Ok(reported(inner.locks().watch(name, token).await?, self.0))
    }
}

/// The watch, except that its reports of handed-over leases pass through `twist`.
pub(super) fn reported(mut real: Watch, twist: impl Fn(Handed) -> Handed + Send + 'static) -> Watch {
    let (handle, watch) = Watch::channel();
    let task = tokio::spawn(async move {
        loop {
            match real.next().await {
                Signal::Handed(handed) => handle.hand(twist(handed)),
                _ => handle.wake(),
            }
        }
    });
    watch.on_drop(move || task.abort())
}
