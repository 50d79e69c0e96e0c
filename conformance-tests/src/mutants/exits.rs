//! Mutants of the end of entries.

use std::collections::{HashMap, HashSet};

use async_trait::async_trait;
use tenure_core::driver::{Exited, OwnerScope, ReentrantCapabilities, ReentrantEntry};
use tenure_core::{OwnerToken, Result};

use super::entries::granting;
use super::maker::{Mutant, mutant};
use super::twist::{Inner, Shared, Twist, flaw};

#[rustfmt::skip]
pub(super) const MUTANTS: &[Mutant] = &[
    mutant!("exit/frees-at-once", "the first exit frees the lock",
        flaw!(exit(inner, hold) => {
            let exited = inner.reentrant()?.exit(hold).await?;
            if matches!(exited, Exited::Inside { .. }) {
                inner.locks().force_release(&hold.name, None).await?;
            }
            Ok(exited)
        }), ["reentrant/dropped-entries-free-it", "reentrant/n-entries-need-n-exits"]),
    mutant!("exit/never-frees", "the last exit keeps the lock",
        flaw!(exit(inner, hold) => {
            let holder = inner.locks().inspect(&hold.name).await?.holder;
            if holder.is_some_and(|holder| holder.depth == 1) {
                return Ok(Exited::Released);
            }
            inner.reentrant()?.exit(hold).await
        }), ["reentrant/another-owner-is-busy", "reentrant/entries-share-the-fence"]),
    mutant!("exit/counts-by-number", "an exit undoes some entry, not its own",
        flaw!(entries: Shared<HashMap<(LockName, OwnerId), Vec<OwnerToken>>>;
            enter(inner, owner, request) => {
                granting(inner, owner, request, |grant| {
                    let mut entries = entries.lock();
                    entries.entry((request.name.clone(), *owner)).or_default().push(request.token);
                    grant
                })
                .await
            },
            exit(inner, hold) => {
                let last = {
                    let mut entries = entries.lock();
                    entries.get_mut(&(hold.name.clone(), hold.owner)).and_then(Vec::pop)
                };
                inner.reentrant()?.exit(&hold.clone().with_token(last.unwrap_or(hold.token))).await
            },
        ),
        ["reentrant/exit-of-no-entry-changes-nothing", "reentrant/stale-entry-cannot-exit-a-new-hold"]),
    mutant!("exit/anyones", "an exit of no entry frees the lock",
        flaw!(exit(inner, hold) => {
            let exited = inner.reentrant()?.exit(hold).await?;
            if exited == Exited::NotHeld {
                inner.locks().force_release(&hold.name, None).await?;
            }
            Ok(exited)
        }), ["reentrant/exit-of-no-entry-changes-nothing", "reentrant/stale-entry-cannot-exit-a-new-hold"]),
    mutant!("exit/never-answers", "an exit is done and not answered",
        flaw!(exit(inner, hold) => {
            let _answer = inner.reentrant()?.exit(hold).await;
            std::future::pending().await
        }), ["reentrant/another-owner-is-busy", "reentrant/entries-share-the-fence"]),
    mutant!("exit/given-up-counts-as-done",
        "an exit whose caller gave it up is not done, and its entry cannot be undone any more",
        GivenUp::default(), ["reentrant/exit-at-every-poll"]),
    mutant!("entries/abandon-does-nothing", "abandonment is confirmed and not done",
        flaw!(abandon_entry(_, _) => Ok(())),
        ["reentrant/abandoned-entry-is-refused", "reentrant/late-entry-takes-nothing"]),
    mutant!("entries/abandon-undoes-all", "abandoning an entry undoes them all",
        flaw!(abandon_entry(inner, hold) => {
            inner.reentrant()?.abandon(hold).await?;
            inner.locks().force_release(&hold.name, None).await.map(drop)
        }), ["reentrant/abandoned-entry-is-refused", "reentrant/lost-reply-is-undone"]),
    mutant!("entries/abandon-leaves-no-memory", "an abandoned entry may enter",
        flaw!(abandon_entry(inner, hold) => inner.reentrant()?.exit(hold).await.map(drop)),
        ["reentrant/abandoned-entry-is-refused", "reentrant/enter-at-every-poll",
         "reentrant/late-entry-takes-nothing"]),
    mutant!("entries/renewal-does-nothing", "renewals are confirmed and not done",
        flaw!(
            renew_entries(_, ttl, holds) => holds.iter().map(|_| Ok(Renewed::Extended { ttl: ttl.get() })).collect(),
        ), ["reentrant/force-ends-every-entry", "reentrant/renewal-by-a-stranger-changes-nothing"]),
];

/// The entries whose exits were given up.
#[derive(Default)]
struct GivenUp(Shared<HashSet<OwnerToken>>);

#[async_trait]
impl Twist for GivenUp {
    async fn exit(&self, inner: &Inner, hold: &ReentrantEntry) -> Result<Exited> {
        let was_given_up = !self.0.lock().insert(hold.token); // unless this goes on after the pause
        tokio::task::yield_now().await;
        if was_given_up {
            return Ok(Exited::NotHeld);
        }
        self.0.lock().remove(&hold.token);
        inner.reentrant()?.exit(hold).await
    }

    async fn abandon_entry(&self, inner: &Inner, hold: &ReentrantEntry) -> Result<()> {
        let was_given_up = self.0.lock().contains(&hold.token);
        if was_given_up { Ok(()) } else { inner.reentrant()?.abandon(hold).await }
    }
}

/// Re-entrant locks that were not declared.
pub(super) struct Appears;

impl Twist for Appears {
    fn reentrant_capabilities(&self, _inner: &Inner) -> Option<ReentrantCapabilities> {
        Some(ReentrantCapabilities::new(OwnerScope::Process, 1))
    }
}
