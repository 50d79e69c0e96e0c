//! Mutants of the turn that comes to a waiter: leases that are handed over.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use tenure_core::driver::{AcquireRequest, Acquisition, Handed, Signal, Watch};
use tenure_core::{FencingToken, LockName, OwnerToken, Result};

use super::maker::{Mutant, mutant};
use super::twist::{Inner, Twist};

pub(super) const MUTANTS: &[Mutant] = &[
    mutant!(
        "turn/longer-than-kept",
        "a waiter is told of a lease that is longer than the one it was handed",
        || Arc::new(Told(|handed| handed.with_ttl(handed.ttl * 4))),
        ["window/turn-ends-before-the-next-grant"]
    ),
    mutant!(
        "turn/old-fence",
        "a waiter is told the fence of the hold before its own",
        || Arc::new(Told(|handed| handed.with_fence(before(handed.fence)))),
        ["fence/grows-with-every-turn"]
    ),
    mutant!(
        "turn/cannot-be-made-to-last",
        "who asks for a lock that it was handed is granted it again for no longer than it has it",
        || Arc::new(NotLengthened::default()),
        ["runtime/turn-outlasts-blocking-work"]
    ),
];

/// The leases that were handed over, and how long they last without renewal.
#[derive(Clone, Default)]
struct NotLengthened(Arc<Mutex<HashMap<OwnerToken, Handed>>>);

#[async_trait]
impl Twist for NotLengthened {
    async fn watch(&self, inner: &Inner, name: &LockName, token: &OwnerToken) -> Result<Watch> {
        let (seen, token) = (Arc::clone(&self.0), *token);
        Ok(told(inner.locks().watch(name, &token).await?, move |handed| {
            seen.lock().expect("no panic under it").insert(token, handed);
            handed
        }))
    }

    async fn acquire(&self, inner: &Inner, request: &AcquireRequest) -> Result<Acquisition> {
        let handed = self.0.lock().expect("no panic under it").remove(&request.token);
        Ok(match (inner.locks().acquire(request).await?, handed) {
            (Acquisition::Granted(grant), Some(Handed { ttl, .. })) => Acquisition::Granted(grant.with_ttl(ttl)),
            (answer, _) => answer,
        })
    }
}

fn before(fence: FencingToken) -> FencingToken {
    FencingToken::new(fence.get() - 1).unwrap_or(fence)
}

/// What is handed over is told differently.
struct Told(fn(Handed) -> Handed);

#[async_trait]
impl Twist for Told {
    async fn watch(&self, inner: &Inner, name: &LockName, token: &OwnerToken) -> Result<Watch> {
        Ok(told(inner.locks().watch(name, token).await?, self.0))
    }
}

/// The watch, but for what it tells of leases that are handed over.
pub(super) fn told(mut real: Watch, twist: impl Fn(Handed) -> Handed + Send + 'static) -> Watch {
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
