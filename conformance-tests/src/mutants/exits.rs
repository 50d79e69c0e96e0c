//! Mutants of how entries end.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tenure_core::driver::{
    AcquireRequest, Acquisition, Exited, OwnerScope, ReentrantCapabilities, ReentrantEntry, ReentrantHold, Renewed, Ttl,
};
use tenure_core::{LockName, OwnerId, OwnerToken, Result};

use super::entries::granting;
use super::maker::{Mutant, mutant};
use super::twist::{Inner, Twist};

pub(super) const MUTANTS: &[Mutant] = &[
    mutant!(
        "exit/frees-at-once",
        "the first exit frees the lock",
        || Arc::new(FreesAtOnce),
        ["reentrant/dropped-entries-free-it", "reentrant/n-entries-need-n-exits"]
    ),
    mutant!(
        "exit/never-frees",
        "the last exit keeps the lock",
        || Arc::new(NeverFrees),
        ["reentrant/another-owner-is-busy", "reentrant/entries-share-the-fence"]
    ),
    mutant!(
        "exit/counts-by-number",
        "an exit undoes some entry, not its own",
        || Arc::new(ByNumber::default()),
        ["reentrant/exit-of-no-entry-changes-nothing", "reentrant/stale-entry-cannot-exit-a-new-hold"]
    ),
    mutant!(
        "exit/anyones",
        "an exit of no entry frees the lock",
        || Arc::new(Anyones),
        ["reentrant/exit-of-no-entry-changes-nothing", "reentrant/stale-entry-cannot-exit-a-new-hold"]
    ),
    mutant!(
        "exit/never-answers",
        "an exit is done and not answered",
        || Arc::new(ExitHangs),
        ["reentrant/another-owner-is-busy", "reentrant/entries-share-the-fence"]
    ),
    mutant!(
        "exit/given-up-counts-as-done",
        "an exit whose caller gave it up is not done, and its entry cannot be undone any more",
        || Arc::new(GivenUp::default()),
        ["reentrant/exit-at-every-poll"]
    ),
    mutant!(
        "entries/abandon-does-nothing",
        "abandonment is confirmed and not done",
        || Arc::new(Forgets),
        ["reentrant/abandoned-entry-is-refused", "reentrant/late-entry-takes-nothing"]
    ),
    mutant!(
        "entries/abandon-undoes-all",
        "abandoning an entry undoes them all",
        || Arc::new(UndoesAll),
        ["reentrant/abandoned-entry-is-refused", "reentrant/lost-reply-is-undone"]
    ),
    mutant!(
        "entries/abandon-leaves-no-memory",
        "an abandoned entry may enter",
        || Arc::new(JustExits),
        ["reentrant/abandoned-entry-is-refused", "reentrant/enter-at-every-poll", "reentrant/late-entry-takes-nothing"]
    ),
    mutant!(
        "entries/renewal-does-nothing",
        "renewals are confirmed and not done",
        || Arc::new(RenewNothing),
        ["reentrant/force-ends-every-entry", "reentrant/renewal-by-a-stranger-changes-nothing"]
    ),
];

struct FreesAtOnce;

#[async_trait]
impl Twist for FreesAtOnce {
    async fn exit(&self, inner: &Inner, hold: &ReentrantEntry) -> Result<Exited> {
        let exited = inner.reentrant()?.exit(hold).await?;
        if matches!(exited, Exited::Inside { .. }) {
            inner.locks().force_release(&hold.name, None).await?;
        }
        Ok(exited)
    }
}

struct NeverFrees;

#[async_trait]
impl Twist for NeverFrees {
    async fn exit(&self, inner: &Inner, hold: &ReentrantEntry) -> Result<Exited> {
        let holder = inner.locks().inspect(&hold.name).await?.holder;
        if holder.is_some_and(|holder| holder.depth == 1) {
            return Ok(Exited::Released);
        }
        inner.reentrant()?.exit(hold).await
    }
}

#[derive(Default)]
struct ByNumber(Mutex<HashMap<(LockName, OwnerId), Vec<OwnerToken>>>);

#[async_trait]
impl Twist for ByNumber {
    async fn enter(&self, inner: &Inner, owner: &OwnerId, request: &AcquireRequest) -> Result<Acquisition> {
        granting(inner, owner, request, |grant| {
            let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            entries.entry((request.name.clone(), *owner)).or_default().push(request.token);
            grant
        })
        .await
    }

    async fn exit(&self, inner: &Inner, hold: &ReentrantEntry) -> Result<Exited> {
        let last = {
            let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            entries.get_mut(&(hold.name.clone(), hold.owner)).and_then(Vec::pop)
        };
        inner.reentrant()?.exit(&hold.clone().with_token(last.unwrap_or(hold.token))).await
    }
}

struct Anyones;

#[async_trait]
impl Twist for Anyones {
    async fn exit(&self, inner: &Inner, hold: &ReentrantEntry) -> Result<Exited> {
        let exited = inner.reentrant()?.exit(hold).await?;
        if exited == Exited::NotHeld {
            inner.locks().force_release(&hold.name, None).await?;
        }
        Ok(exited)
    }
}

struct ExitHangs;

#[async_trait]
impl Twist for ExitHangs {
    async fn exit(&self, inner: &Inner, hold: &ReentrantEntry) -> Result<Exited> {
        let _answer = inner.reentrant()?.exit(hold).await;
        std::future::pending().await
    }
}

/// The entries whose exits were given up.
#[derive(Default)]
struct GivenUp(Mutex<HashSet<OwnerToken>>);

impl GivenUp {
    fn all(&self) -> MutexGuard<'_, HashSet<OwnerToken>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Twist for GivenUp {
    async fn exit(&self, inner: &Inner, hold: &ReentrantEntry) -> Result<Exited> {
        let was_given_up = !self.all().insert(hold.token); // unless this goes on after the pause
        tokio::task::yield_now().await;
        if was_given_up {
            return Ok(Exited::NotHeld);
        }
        self.all().remove(&hold.token);
        inner.reentrant()?.exit(hold).await
    }

    async fn abandon_entry(&self, inner: &Inner, hold: &ReentrantEntry) -> Result<()> {
        let was_given_up = self.all().contains(&hold.token);
        if was_given_up { Ok(()) } else { inner.reentrant()?.abandon(hold).await }
    }
}

struct Forgets;

#[async_trait]
impl Twist for Forgets {
    async fn abandon_entry(&self, _inner: &Inner, _hold: &ReentrantEntry) -> Result<()> {
        Ok(())
    }
}

struct UndoesAll;

#[async_trait]
impl Twist for UndoesAll {
    async fn abandon_entry(&self, inner: &Inner, hold: &ReentrantEntry) -> Result<()> {
        inner.reentrant()?.abandon(hold).await?;
        inner.locks().force_release(&hold.name, None).await.map(drop)
    }
}

/// Abandonment is an exit: a request that arrives later enters.
#[derive(Default)]
struct JustExits;

#[async_trait]
impl Twist for JustExits {
    async fn abandon_entry(&self, inner: &Inner, hold: &ReentrantEntry) -> Result<()> {
        inner.reentrant()?.exit(hold).await.map(drop)
    }
}

struct RenewNothing;

#[async_trait]
impl Twist for RenewNothing {
    async fn renew_entries(&self, _inner: &Inner, ttl: Ttl, holds: &[ReentrantHold]) -> Vec<Result<Renewed>> {
        holds.iter().map(|_| Ok(Renewed::Extended { ttl: ttl.get() })).collect()
    }
}

/// Re-entrant locks that nobody declared.
pub(super) struct Appears;

impl Twist for Appears {
    fn reentrant_capabilities(&self, _inner: &Inner) -> Option<ReentrantCapabilities> {
        Some(ReentrantCapabilities::new(OwnerScope::Process, 1))
    }
}
