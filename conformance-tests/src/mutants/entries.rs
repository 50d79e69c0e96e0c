//! Mutants of re-entrant locks.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::driver::{AcquireRequest, Acquisition, Begun, Busy, Exited, Grant, ReentrantEntry};
use tenure_core::{ErrorKind, FencingToken, LockName, OwnerId, Result};

use super::leases::fabricated;
use super::maker::{Mutant, mutant};
use super::twist::{Inner, Shared, Twist, flaw, regranted};

#[rustfmt::skip]
pub(super) const MUTANTS: &[Mutant] = &[
    mutant!("entry/any-owner", "any owner may enter",
        flaw!(enter(inner, owner, request) => {
            match enter(inner, owner, request).await? {
                Acquisition::Busy(_) => Ok(fabricated(request, 1 << 60)),
                granted => Ok(granted),
            }
        }),
        ["reentrant/another-owner-is-busy", "reentrant/plain-and-re-entrant-exclude-each-other",
         "reentrant/waits-for-another-owner"]),
    mutant!("entry/owner-is-the-client", "the owner is the connection",
        flaw!(
            enter(inner, _, request) => enter(inner, &of_client(inner), request).await,
            exit(inner, hold) => inner.reentrant()?.exit(&hold.clone().with_owner(of_client(inner))).await,
        ), ["reentrant/another-owner-is-busy", "reentrant/renewal-by-a-stranger-changes-nothing"]),
    mutant!("entry/counted-by-each-client", "an owner is another one through a second client",
        CountedApart::default(), ["reentrant/owner-is-a-value-not-a-client"]),
    mutant!("entry/not-re-entrant", "the owner is busy with itself",
        flaw!(enter(inner, owner, request) => {
            let answer = enter(inner, owner, request).await?;
            if matches!(answer, Acquisition::Granted(Grant { depth: 2.., begun: Begun::Now, .. })) {
                let hold = ReentrantEntry::new(request.name.clone(), *owner, request.token);
                inner.reentrant()?.exit(&hold).await?;
                return Ok(Acquisition::Busy(Busy::default()));
            }
            Ok(answer)
        }), ["reentrant/entries-share-the-fence"]),
    mutant!("entry/apart-from-plain", "re-entrant locks have names of their own",
        flaw!(
            enter(inner, owner, request) => enter(inner, owner, &request.clone().with_name(apart(&request.name))).await,
            exit(inner, hold) => inner.reentrant()?.exit(&hold.clone().with_name(apart(&hold.name))).await,
        ), ["reentrant/entry-never-shortens", "reentrant/renewal-by-a-stranger-changes-nothing"]),
    mutant!("entry/queues-behind-itself", "re-entry waits behind others",
        flaw!(enter(inner, owner, request) => {
            let seen = inner.locks().inspect(&request.name).await?;
            if seen.waiters > 0 && seen.holder.is_some() {
                return Ok(Acquisition::Busy(Busy::default()));
            }
            enter(inner, owner, request).await
        }), ["reentrant/passes-the-queue"]),
    mutant!("entry/takes-a-new-fence", "re-entry takes a new fence",
        flaw!(enter(inner, owner, request) => {
            granting(inner, owner, request, |grant| {
                let number = grant.fence.get() + u64::from(grant.depth) - 1;
                grant.with_fence(FencingToken::new(number).unwrap_or(grant.fence))
            })
            .await
        }), ["reentrant/entries-share-the-fence", "reentrant/owner-is-a-value-not-a-client"]),
    mutant!("entry/depth-off-by-one", "entries are counted from zero",
        flaw!(enter(inner, owner, request) => {
            granting(inner, owner, request, |grant| grant.with_depth(grant.depth - 1)).await
        }), ["reentrant/exits-in-any-order", "reentrant/same-owner-enters-again"]),
    mutant!("entry/depth-unlimited", "the greatest depth is ignored",
        flaw!(enter(inner, owner, request) => {
            match enter(inner, owner, request).await {
                Err(error) if error.kind() == ErrorKind::LimitReached => Ok(fabricated(request, 1)),
                answer => answer,
            }
        }), ["reentrant/depth-is-limited"]),
    mutant!("entry/duplicates-count", "an entry that is asked for twice counts twice",
        flaw!(enter(inner, owner, request) => {
            let answer = enter(inner, owner, request).await?;
            if matches!(answer, Acquisition::Granted(Grant { begun: Begun::Earlier, .. })) {
                return enter(inner, owner, &request.clone().with_token(OwnerToken::random())).await;
            }
            Ok(answer)
        }), ["reentrant/asking-again-is-the-same-entry", "reentrant/duplicated-frames-do-not-count"]),
    mutant!("entry/shortens", "a re-entry sets the ttl, also a shorter one",
        Shortens, ["reentrant/entry-never-shortens", "reentrant/renewed-as-a-whole"]),
    mutant!("entry/keeps-the-ttl", "a re-entry does not lengthen the lease",
        flaw!(enter(inner, owner, request) => {
            let held = inner.locks().inspect(&request.name).await?.holder.is_some();
            let ttl = if held { Ttl::new(Ttl::MIN).unwrap_or(request.ttl) } else { request.ttl };
            enter(inner, owner, &request.clone().with_ttl(ttl)).await
        }), ["reentrant/entry-may-lengthen"]),
    mutant!("entry/count-survives-loss", "after a loss the count continues",
        Survives::default(), ["reentrant/lost-as-a-whole", "reentrant/stale-entry-cannot-exit-a-new-hold"]),
    mutant!("entry/late", "an entry is answered after its ttl",
        flaw!(enter(inner, owner, request) => {
            let answer = enter(inner, owner, request).await;
            tokio::time::sleep(Duration::from_millis(1_500)).await;
            answer
        }), ["reentrant/another-owner-is-busy", "reentrant/entries-share-the-fence"]),
];

async fn enter(inner: &Inner, owner: &OwnerId, request: &AcquireRequest) -> Result<Acquisition> {
    inner.reentrant()?.enter(owner, request).await
}

/// Enters, and changes the grant.
pub(super) async fn granting(
    inner: &Inner,
    owner: &OwnerId,
    request: &AcquireRequest,
    change: impl FnOnce(Grant) -> Grant + Send,
) -> Result<Acquisition> {
    enter(inner, owner, request).await.map(|answer| regranted(answer, change))
}

fn of_client(inner: &Inner) -> OwnerId {
    OwnerId::from_bytes((inner.client() as u128).to_be_bytes())
}

/// Which client each owner was seen through first.
#[derive(Default)]
struct CountedApart(Shared<HashMap<OwnerId, usize>>);

impl CountedApart {
    fn of(&self, inner: &Inner, owner: OwnerId) -> OwnerId {
        let mut seen = self.0.lock();
        if *seen.entry(owner).or_insert(inner.client()) == inner.client() { owner } else { of_client(inner) }
    }
}

#[async_trait]
impl Twist for CountedApart {
    async fn enter(&self, inner: &Inner, owner: &OwnerId, request: &AcquireRequest) -> Result<Acquisition> {
        enter(inner, &self.of(inner, *owner), request).await
    }

    async fn exit(&self, inner: &Inner, hold: &ReentrantEntry) -> Result<Exited> {
        inner.reentrant()?.exit(&hold.clone().with_owner(self.of(inner, hold.owner))).await
    }
}

fn apart(name: &LockName) -> LockName {
    LockName::new([name.as_bytes(), b"#re"].concat()).unwrap_or_else(|_| name.clone())
}

/// The lease of a re-entered lock ends with the ttl of its last entry.
struct Shortens;

#[async_trait]
impl Twist for Shortens {
    async fn enter(&self, inner: &Inner, owner: &OwnerId, request: &AcquireRequest) -> Result<Acquisition> {
        let answer = enter(inner, owner, request).await?;
        if let Acquisition::Granted(Grant { depth: 2.., fence, .. }) = answer {
            let (inner, name, ttl) = (inner.clone(), request.name.clone(), request.ttl.get());
            tokio::spawn(async move {
                tokio::time::sleep(ttl).await;
                let holder = inner.locks().inspect(&name).await.ok().and_then(|seen| seen.holder);
                if holder.is_some_and(|holder| holder.fence == Some(fence)) {
                    let _forced = inner.locks().force_release(&name, None).await;
                }
            });
        }
        Ok(answer)
    }
}

/// What an owner had last: its fence, and how many entries it did not exit.
#[derive(Default)]
struct Survives(Shared<HashMap<(LockName, OwnerId), (FencingToken, u32)>>);

#[async_trait]
impl Twist for Survives {
    async fn enter(&self, inner: &Inner, owner: &OwnerId, request: &AcquireRequest) -> Result<Acquisition> {
        granting(inner, owner, request, |grant| {
            let mut last = self.0.lock();
            let (fence, depth) = last.entry((request.name.clone(), *owner)).or_insert((grant.fence, 0));
            *depth += u32::from(grant.begun == Begun::Now);
            if *depth == 1 {
                *fence = grant.fence;
            }
            grant.with_fence(*fence).with_depth(*depth)
        })
        .await
    }

    async fn exit(&self, inner: &Inner, hold: &ReentrantEntry) -> Result<Exited> {
        let exited = inner.reentrant()?.exit(hold).await?;
        if exited != Exited::NotHeld
            && let Some((_, depth)) = self.0.lock().get_mut(&(hold.name.clone(), hold.owner))
        {
            *depth = depth.saturating_sub(1);
        }
        Ok(exited)
    }
}
