//! Mutants of abandonment.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use tenure_core::driver::{AcquireRequest, Acquisition, Hold, Released, Renewed, Ttl};
use tenure_core::{ErrorKind, OwnerToken, Result};

use super::leases::made_up;
use super::maker::{Mutant, mutant};
use super::twist::{Inner, Twist};

pub(super) const MUTANTS: &[Mutant] = &[
    mutant!(
        "abandon/does-nothing",
        "abandonment is confirmed and not done",
        || Arc::new(AbandonNothing),
        [
            "all/unknown-one-takes-none",
            "cancel/a-thousand-against-a-paused-server",
            "driver/abandon-frees-the-lease",
            "lock/lost-grant-is-undone"
        ]
    ),
    mutant!(
        "abandon/is-a-release",
        "abandonment frees the lease, and forgets the queue",
        || Arc::new(IsRelease),
        ["cancel/a-thousand-against-a-silent-backend", "fifo/cancelled-head-passes-its-turn"]
    ),
    mutant!(
        "abandon/leaves-no-memory",
        "an abandoned token may take the lock",
        || Arc::new(NoMemory::default()),
        [
            "all/cancelled-at-every-poll",
            "cancel/a-thousand-against-a-silent-backend",
            "cancel/try-acquire-at-every-poll",
            "lock/late-acquire-takes-nothing"
        ]
    ),
    mutant!(
        "abandon/anyones-lock",
        "abandonment frees the lock, whoever holds it",
        || Arc::new(AbandonsAll),
        [
            "all/busy-one-takes-none",
            "cancel/acquire-within-at-every-poll",
            "cancel/waiting-acquire-at-every-poll",
            "driver/abandon-of-another-changes-nothing"
        ]
    ),
    mutant!("abandon/fails", "abandonment never works", || Arc::new(AbandonFails), ["error/busy-is-not-an-outage",]),
];

struct AbandonNothing;

#[async_trait]
impl Twist for AbandonNothing {
    async fn abandon(&self, _inner: &Inner, _hold: &Hold) -> Result<()> {
        Ok(())
    }
}

struct IsRelease;

#[async_trait]
impl Twist for IsRelease {
    async fn abandon(&self, inner: &Inner, hold: &Hold) -> Result<()> {
        inner.locks().release(hold).await.map(drop)
    }
}

/// Gives an abandoned token another one below, which the driver does not remember.
#[derive(Default)]
struct NoMemory(Mutex<HashMap<OwnerToken, OwnerToken>>);

impl NoMemory {
    fn below(&self, token: OwnerToken) -> OwnerToken {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&token).copied().unwrap_or(token)
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
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(hold.token, OwnerToken::random());
        Ok(())
    }
}

struct AbandonsAll;

#[async_trait]
impl Twist for AbandonsAll {
    async fn abandon(&self, inner: &Inner, hold: &Hold) -> Result<()> {
        inner.locks().abandon(hold).await?;
        inner.locks().force_release(&hold.name, None).await.map(drop)
    }
}

struct AbandonFails;

#[async_trait]
impl Twist for AbandonFails {
    async fn abandon(&self, _inner: &Inner, _hold: &Hold) -> Result<()> {
        Err(made_up(ErrorKind::Unavailable))
    }
}
