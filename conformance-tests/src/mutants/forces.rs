//! Mutants of forced releases.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use tenure_core::driver::{ForceReleased, Hold, Renewed, Ttl};
use tenure_core::{FencingToken, LockName, Result};

use super::maker::{Mutant, mutant};
use super::twist::{Inner, Twist};

pub(super) const MUTANTS: &[Mutant] = &[
    mutant!(
        "force/does-nothing",
        "a forced release is confirmed and not done",
        || Arc::new(ForceNothing),
        ["fence/grows-after-force", "force/free-lock-says-not-held"]
    ),
    mutant!(
        "force/says-released",
        "a forced release says that it freed something",
        || Arc::new(ForceSays),
        ["force/free-lock-says-not-held"]
    ),
    mutant!(
        "force/any-fence",
        "a forced release does not compare the fence",
        || Arc::new(ForceAny),
        ["force/spares-the-next-holder", "reentrant/force-ends-every-entry"]
    ),
    mutant!(
        "force/never-the-fence",
        "a forced release with a fence finds another hold, always",
        || Arc::new(ForceNever),
        ["force/spares-the-next-holder", "reentrant/force-ends-every-entry"]
    ),
    mutant!(
        "force/spares-the-token",
        "the old holder may take it back by renewing",
        || Arc::new(Spares::default()),
        ["force/frees-and-tells-the-holder", "force/old-token-is-powerless"]
    ),
];

struct ForceNothing;

#[async_trait]
impl Twist for ForceNothing {
    async fn force_release(&self, _: &Inner, _: &LockName, _: Option<FencingToken>) -> Result<ForceReleased> {
        Ok(ForceReleased::Released)
    }
}

struct ForceSays;

#[async_trait]
impl Twist for ForceSays {
    async fn force_release(
        &self,
        inner: &Inner,
        name: &LockName,
        expected: Option<FencingToken>,
    ) -> Result<ForceReleased> {
        inner.locks().force_release(name, expected).await.map(|_| ForceReleased::Released)
    }
}

struct ForceAny;

#[async_trait]
impl Twist for ForceAny {
    async fn force_release(&self, inner: &Inner, name: &LockName, _: Option<FencingToken>) -> Result<ForceReleased> {
        inner.locks().force_release(name, None).await
    }
}

struct ForceNever;

#[async_trait]
impl Twist for ForceNever {
    async fn force_release(
        &self,
        inner: &Inner,
        name: &LockName,
        fence: Option<FencingToken>,
    ) -> Result<ForceReleased> {
        match fence {
            Some(_) => Ok(ForceReleased::Changed),
            None => inner.locks().force_release(name, None).await,
        }
    }
}

/// After a forced release, whoever renews has the lock.
#[derive(Default)]
struct Spares(AtomicBool);

#[async_trait]
impl Twist for Spares {
    async fn force_release(
        &self,
        inner: &Inner,
        name: &LockName,
        expected: Option<FencingToken>,
    ) -> Result<ForceReleased> {
        self.0.store(true, Ordering::SeqCst);
        inner.locks().force_release(name, expected).await
    }

    async fn renew(&self, inner: &Inner, ttl: Ttl, holds: &[Hold]) -> Vec<Result<Renewed>> {
        let answers = inner.locks().renew(ttl, holds).await;
        let spared = self.0.load(Ordering::SeqCst);
        let lie = |answer| match answer {
            Ok(Renewed::Lost) if spared => Ok(Renewed::Extended { ttl: ttl.get() }),
            answer => answer,
        };
        answers.into_iter().map(lie).collect()
    }
}
