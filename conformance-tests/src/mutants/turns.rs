//! Mutants of the turn that comes to a waiter: leases that are handed over.

use std::sync::Arc;

use async_trait::async_trait;
use tenure_core::driver::{Handed, Signal, Watch};
use tenure_core::{FencingToken, LockName, OwnerToken, Result};

use super::maker::{Mutant, mutant};
use super::twist::{Inner, Twist};

pub(super) const MUTANTS: &[Mutant] = &[
    mutant!(
        "turn/longer-than-kept",
        "a waiter is told of a lease that is longer than the one it was handed",
        || Arc::new(Told(|handed| Handed { ttl: handed.ttl * 4, ..handed })),
        ["window/turn-ends-before-the-next-grant"]
    ),
    mutant!(
        "turn/old-fence",
        "a waiter is told the fence of the hold before its own",
        || Arc::new(Told(|handed| Handed { fence: before(handed.fence), ..handed })),
        ["fence/grows-with-every-turn"]
    ),
];

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
