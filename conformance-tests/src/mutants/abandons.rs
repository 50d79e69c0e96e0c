//! Mutants of abandonment.

use std::collections::HashMap;

use async_trait::async_trait;
use tenure_core::driver::{AcquireRequest, Acquisition, Hold, Released, Renewed, Ttl};
use tenure_core::{ErrorKind, OwnerToken, Result};

use super::leases::made_up;
use super::maker::{Mutant, mutant};
use super::twist::{Inner, Shared, Twist, flaw};

#[rustfmt::skip]
pub(super) const MUTANTS: &[Mutant] = &[
    mutant!("abandon/does-nothing", "abandonment is confirmed and not done",
        flaw!(abandon(_, _) => Ok(())),
        ["all/unknown-one-takes-none", "cancel/a-thousand-against-a-paused-server", "driver/abandon-frees-the-lease",
         "lock/lost-grant-is-undone"]),
    mutant!("abandon/is-a-release", "abandonment frees the lease, and forgets the queue",
        flaw!(abandon(inner, hold) => inner.locks().release(hold).await.map(drop)),
        ["cancel/a-thousand-against-a-silent-backend", "fifo/cancelled-head-passes-its-turn"]),
    mutant!("abandon/leaves-no-memory", "an abandoned token may take the lock",
        NoMemory::default(),
        ["all/cancelled-at-every-poll", "cancel/a-thousand-against-a-silent-backend",
         "cancel/try-acquire-at-every-poll", "lock/late-acquire-takes-nothing"]),
    mutant!("abandon/anyones-lock", "abandonment frees the lock of any holder",
        flaw!(abandon(inner, hold) => {
            inner.locks().abandon(hold).await?;
            inner.locks().force_release(&hold.name, None).await.map(drop)
        }),
        ["all/busy-one-takes-none", "cancel/acquire-within-at-every-poll", "cancel/waiting-acquire-at-every-poll",
         "driver/abandon-of-another-changes-nothing"]),
    mutant!("abandon/fails", "abandonment never works",
        flaw!(abandon(_, _) => Err(made_up(ErrorKind::Unavailable))), ["error/busy-is-not-an-outage"]),
];

/// Gives an abandoned token another one below, which the driver does not remember.
#[derive(Default)]
struct NoMemory(Shared<HashMap<OwnerToken, OwnerToken>>);

impl NoMemory {
    fn below(&self, token: OwnerToken) -> OwnerToken {
        self.0.lock().get(&token).copied().unwrap_or(token)
    }

    fn hold(&self, hold: &Hold) -> Hold {
        Hold::new(hold.name.clone(), self.below(hold.token))
    }
}

#[async_trait]
impl Twist for NoMemory {
    async fn acquire(&self, inner: &Inner, request: &AcquireRequest) -> Result<Acquisition> {
        inner.locks().acquire(&request.clone().with_token(self.below(request.token))).await
    }

    async fn release(&self, inner: &Inner, hold: &Hold) -> Result<Released> {
        inner.locks().release(&self.hold(hold)).await
    }

    async fn renew(&self, inner: &Inner, ttl: Ttl, holds: &[Hold]) -> Vec<Result<Renewed>> {
        let all: Vec<Hold> = holds.iter().map(|hold| self.hold(hold)).collect();
        inner.locks().renew(ttl, &all).await
    }

    async fn abandon(&self, inner: &Inner, hold: &Hold) -> Result<()> {
        inner.locks().abandon(&self.hold(hold)).await?;
        self.0.lock().insert(hold.token, OwnerToken::random());
        Ok(())
    }
}
