//! Mutants of re-entrant locks.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::driver::{AcquireRequest, Acquisition, Begun, Busy, Exited, Grant, ReentrantEntry, Ttl};
use tenure_core::{ErrorKind, FencingToken, LockName, OwnerId, OwnerToken, Result};

use super::leases::fabricated;
use super::maker::{Mutant, mutant};
use super::twist::{Inner, Twist};

pub(super) const MUTANTS: &[Mutant] = &[
    mutant!(
        "entry/any-owner",
        "whoever asks may enter",
        || Arc::new(AnyOwner),
        [
            "reentrant/another-owner-is-busy",
            "reentrant/plain-and-re-entrant-exclude-each-other",
            "reentrant/waits-for-another-owner"
        ]
    ),
    mutant!(
        "entry/owner-is-the-client",
        "the owner is the connection",
        || Arc::new(OwnerIsClient),
        ["reentrant/another-owner-is-busy", "reentrant/renewal-by-a-stranger-changes-nothing"]
    ),
    mutant!(
        "entry/counted-by-each-client",
        "an owner is another one through a second client",
        || Arc::new(CountedApart::default()),
        ["reentrant/owner-is-a-value-not-a-client"]
    ),
    mutant!(
        "entry/not-re-entrant",
        "the owner is busy with itself",
        || Arc::new(NotReentrant),
        ["reentrant/entries-share-the-fence"]
    ),
    mutant!(
        "entry/apart-from-plain",
        "re-entrant locks have names of their own",
        || Arc::new(Apart),
        ["reentrant/entry-never-shortens", "reentrant/renewal-by-a-stranger-changes-nothing"]
    ),
    mutant!(
        "entry/queues-behind-itself",
        "re-entry waits behind others",
        || Arc::new(QueuesBehind),
        ["reentrant/passes-the-queue"]
    ),
    mutant!(
        "entry/takes-a-new-fence",
        "re-entry takes a new fence",
        || Arc::new(NewFence),
        ["reentrant/entries-share-the-fence", "reentrant/owner-is-a-value-not-a-client"]
    ),
    mutant!(
        "entry/depth-off-by-one",
        "entries are counted from zero",
        || Arc::new(DepthOff),
        ["reentrant/exits-in-any-order", "reentrant/same-owner-enters-again"]
    ),
    mutant!(
        "entry/depth-unlimited",
        "the greatest depth is ignored",
        || Arc::new(Unlimited),
        ["reentrant/depth-is-limited"]
    ),
    mutant!(
        "entry/duplicates-count",
        "an entry that is asked for twice counts twice",
        || Arc::new(Counts),
        ["reentrant/asking-again-is-the-same-entry", "reentrant/duplicated-frames-do-not-count"]
    ),
    mutant!(
        "entry/shortens",
        "a re-entry sets the ttl, also a shorter one",
        || Arc::new(Shortens),
        ["reentrant/entry-never-shortens", "reentrant/renewed-as-a-whole"]
    ),
    mutant!(
        "entry/keeps-the-ttl",
        "a re-entry does not lengthen the lease",
        || Arc::new(KeepsTtl),
        ["reentrant/entry-may-lengthen"]
    ),
    mutant!(
        "entry/count-survives-loss",
        "after a loss the count goes on",
        || Arc::new(Survives::default()),
        ["reentrant/lost-as-a-whole", "reentrant/stale-entry-cannot-exit-a-new-hold"]
    ),
    mutant!(
        "entry/late",
        "an entry is answered after its ttl",
        || Arc::new(Late),
        ["reentrant/another-owner-is-busy", "reentrant/entries-share-the-fence"]
    ),
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
    Ok(match enter(inner, owner, request).await? {
        Acquisition::Granted(grant) => Acquisition::Granted(change(grant)),
        busy => busy,
    })
}

struct AnyOwner;

#[async_trait]
impl Twist for AnyOwner {
    async fn enter(&self, inner: &Inner, owner: &OwnerId, request: &AcquireRequest) -> Result<Acquisition> {
        match enter(inner, owner, request).await? {
            Acquisition::Busy(_) => Ok(fabricated(request, 1 << 60)),
            granted => Ok(granted),
        }
    }
}

struct OwnerIsClient;

fn of_client(inner: &Inner) -> OwnerId {
    OwnerId::from_bytes((inner.client() as u128).to_be_bytes())
}

#[async_trait]
impl Twist for OwnerIsClient {
    async fn enter(&self, inner: &Inner, _owner: &OwnerId, request: &AcquireRequest) -> Result<Acquisition> {
        enter(inner, &of_client(inner), request).await
    }

    async fn exit(&self, inner: &Inner, hold: &ReentrantEntry) -> Result<Exited> {
        inner.reentrant()?.exit(&hold.clone().with_owner(of_client(inner))).await
    }
}

/// Which client each owner was seen through first.
#[derive(Default)]
struct CountedApart(Mutex<HashMap<OwnerId, usize>>);

impl CountedApart {
    fn of(&self, inner: &Inner, owner: OwnerId) -> OwnerId {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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

struct NotReentrant;

#[async_trait]
impl Twist for NotReentrant {
    async fn enter(&self, inner: &Inner, owner: &OwnerId, request: &AcquireRequest) -> Result<Acquisition> {
        let answer = enter(inner, owner, request).await?;
        if matches!(answer, Acquisition::Granted(Grant { depth: 2.., begun: Begun::Now, .. })) {
            let hold = ReentrantEntry::new(request.name.clone(), *owner, request.token);
            inner.reentrant()?.exit(&hold).await?;
            return Ok(Acquisition::Busy(Busy::default()));
        }
        Ok(answer)
    }
}

struct Apart;

fn apart(name: &LockName) -> LockName {
    LockName::new([name.as_bytes(), b"#re"].concat()).unwrap_or_else(|_| name.clone())
}

#[async_trait]
impl Twist for Apart {
    async fn enter(&self, inner: &Inner, owner: &OwnerId, request: &AcquireRequest) -> Result<Acquisition> {
        enter(inner, owner, &request.clone().with_name(apart(&request.name))).await
    }

    async fn exit(&self, inner: &Inner, hold: &ReentrantEntry) -> Result<Exited> {
        inner.reentrant()?.exit(&hold.clone().with_name(apart(&hold.name))).await
    }
}

struct QueuesBehind;

#[async_trait]
impl Twist for QueuesBehind {
    async fn enter(&self, inner: &Inner, owner: &OwnerId, request: &AcquireRequest) -> Result<Acquisition> {
        let seen = inner.locks().inspect(&request.name).await?;
        if seen.waiters > 0 && seen.holder.is_some() {
            return Ok(Acquisition::Busy(Busy::default()));
        }
        enter(inner, owner, request).await
    }
}

struct NewFence;

#[async_trait]
impl Twist for NewFence {
    async fn enter(&self, inner: &Inner, owner: &OwnerId, request: &AcquireRequest) -> Result<Acquisition> {
        granting(inner, owner, request, |grant| {
            let number = grant.fence.get() + u64::from(grant.depth) - 1;
            grant.with_fence(FencingToken::new(number).unwrap_or(grant.fence))
        })
        .await
    }
}

struct DepthOff;

#[async_trait]
impl Twist for DepthOff {
    async fn enter(&self, inner: &Inner, owner: &OwnerId, request: &AcquireRequest) -> Result<Acquisition> {
        granting(inner, owner, request, |grant| grant.with_depth(grant.depth - 1)).await
    }
}

struct Unlimited;

#[async_trait]
impl Twist for Unlimited {
    async fn enter(&self, inner: &Inner, owner: &OwnerId, request: &AcquireRequest) -> Result<Acquisition> {
        match enter(inner, owner, request).await {
            Err(error) if error.kind() == ErrorKind::LimitReached => Ok(fabricated(request, 1)),
            answer => answer,
        }
    }
}

struct Counts;

#[async_trait]
impl Twist for Counts {
    async fn enter(&self, inner: &Inner, owner: &OwnerId, request: &AcquireRequest) -> Result<Acquisition> {
        let answer = enter(inner, owner, request).await?;
        if matches!(answer, Acquisition::Granted(Grant { begun: Begun::Earlier, .. })) {
            return enter(inner, owner, &request.clone().with_token(OwnerToken::random())).await;
        }
        Ok(answer)
    }
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

struct KeepsTtl;

#[async_trait]
impl Twist for KeepsTtl {
    async fn enter(&self, inner: &Inner, owner: &OwnerId, request: &AcquireRequest) -> Result<Acquisition> {
        let held = inner.locks().inspect(&request.name).await?.holder.is_some();
        let ttl = if held { Ttl::new(Ttl::MIN).unwrap_or(request.ttl) } else { request.ttl };
        enter(inner, owner, &request.clone().with_ttl(ttl)).await
    }
}

/// What an owner had last: its fence, and how many entries it did not exit.
#[derive(Default)]
struct Survives(Mutex<HashMap<(LockName, OwnerId), (FencingToken, u32)>>);

impl Survives {
    fn last(&self) -> MutexGuard<'_, HashMap<(LockName, OwnerId), (FencingToken, u32)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Twist for Survives {
    async fn enter(&self, inner: &Inner, owner: &OwnerId, request: &AcquireRequest) -> Result<Acquisition> {
        granting(inner, owner, request, |grant| {
            let mut last = self.last();
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
            && let Some((_, depth)) = self.last().get_mut(&(hold.name.clone(), hold.owner))
        {
            *depth = depth.saturating_sub(1);
        }
        Ok(exited)
    }
}

struct Late;

#[async_trait]
impl Twist for Late {
    async fn enter(&self, inner: &Inner, owner: &OwnerId, request: &AcquireRequest) -> Result<Acquisition> {
        let answer = enter(inner, owner, request).await;
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        answer
    }
}
