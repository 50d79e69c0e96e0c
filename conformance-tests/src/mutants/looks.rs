//! Mutants of what operators see, and of the driver as a whole.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::driver::{
    AcquireRequest, Acquisition, ForceReleased, Hold, Inspection, LockCapabilities, Released, Renewed, Ttl, TtlRange,
    Watch,
};
use tenure_core::{ErrorKind, FencingToken, LockName, OwnerId, OwnerToken, Result};

use super::leases::made_up;
use super::maker::{Mutant, mutant};
use super::twist::{Inner, Twist};

pub(super) const MUTANTS: &[Mutant] = &[
    mutant!(
        "inspect/sees-nothing",
        "a held lock looks free",
        || Arc::new(Looks(|_| Inspection::default())),
        ["inspect/free-lock-has-no-holder", "inspect/until-free", "reentrant/inspection-tells-the-depth"]
    ),
    mutant!(
        "inspect/no-label",
        "the label is lost",
        || Arc::new(Looks(no_label)),
        ["election/observers-follow-the-terms", "inspect/tells-the-holder", "reentrant/inspection-tells-the-depth"]
    ),
    mutant!(
        "inspect/wrong-unit",
        "what remains is told in the wrong unit",
        || Arc::new(Looks(wrong_unit)),
        ["inspect/tells-the-holder"]
    ),
    mutant!(
        "inspect/no-waiters",
        "waiters are not counted",
        || Arc::new(Looks(no_waiters)),
        ["inspect/counts-the-waiters"]
    ),
    mutant!(
        "inspect/depth-of-one",
        "the depth is not told",
        || Arc::new(Looks(depth_of_one)),
        ["reentrant/inspection-tells-the-depth"]
    ),
    mutant!(
        "inspect/no-owner",
        "the owner is not told",
        || Arc::new(Looks(no_owner)),
        ["reentrant/inspection-tells-the-owner"]
    ),
    mutant!(
        "inspect/somebody-elses",
        "every hold is told to be an owner's, and always the same one's",
        || Arc::new(Looks(somebody_elses)),
        ["reentrant/inspection-tells-the-owner"]
    ),
    mutant!(
        "inspect/stale-holder",
        "whoever held last is shown",
        || Arc::new(StaleHolder::default()),
        [
            "election/observers-follow-the-terms",
            "inspect/free-lock-has-no-holder",
            "inspect/until-free",
            "reentrant/inspection-tells-the-depth"
        ]
    ),
    mutant!(
        "inspect/first-term-for-ever",
        "a hold that follows another at once is told with the fence of that one",
        || Arc::new(FirstTerm::default()),
        ["election/observers-follow-the-terms"]
    ),
    mutant!(
        "inspect/outage-looks-free",
        "a lock that cannot be looked at looks free",
        || Arc::new(OutageLooksFree),
        ["election/an-outage-is-not-nobody"]
    ),
    mutant!(
        "inspect/takes-the-lease",
        "looking ends the lease",
        || Arc::new(LookingForces),
        ["inspect/changes-nothing", "reentrant/inspection-tells-the-depth"]
    ),
    mutant!(
        "inspect/never-answers",
        "looking gets no answer",
        || Arc::new(LookingHangs),
        ["inspect/free-lock-has-no-holder"]
    ),
    mutant!(
        "close/does-nothing",
        "a closed driver goes on",
        || Arc::new(NotClosed),
        ["close/driver-refuses-afterwards"]
    ),
    mutant!(
        "close/closes-all",
        "closing one connection closes every one",
        || Arc::new(ClosesAll::default()),
        ["close/leaves-other-clients-alone"]
    ),
    mutant!("close/never-ends", "closing does not end", || Arc::new(CloseHangs), ["close/is-bounded"]),
    mutant!(
        "caps/wider-ttl",
        "the driver declares more ttls than its maker",
        || Arc::new(WiderTtl),
        ["meta/declared-matches-driver"]
    ),
    mutant!(
        "caps/change",
        "the capabilities change with use",
        || Arc::new(Changing::default()),
        ["meta/capabilities-are-constant"]
    ),
    mutant!(
        "link/dies-for-good",
        "after one failure every request fails",
        || Arc::new(Dies::default()),
        ["server/pause-within-the-ttl-is-survived"]
    ),
    mutant!(reduced "refusal/watches-all-the-same", "undeclared wake-ups are given", || Arc::new(Allows), ["refusal/force", "refusal/inspect"]),
    mutant!(reduced "refusal/inspects-all-the-same", "undeclared introspection is given", || Arc::new(Allows), ["refusal/force", "refusal/inspect"]),
    mutant!(reduced "refusal/forces-all-the-same", "undeclared revocation is given", || Arc::new(Allows), ["refusal/force", "refusal/inspect", "refusal/watch"]),
    mutant!(reduced "refusal/declares-wider-ttl", "ttls that are not kept are declared", || Arc::new(WiderTtl), ["refusal/ttl", "ttl/bad-is-refused-unsent"]),
    mutant!(reduced "refusal/has-entries", "undeclared re-entrancy is there", || Arc::new(super::exits::Appears), ["meta/declared-matches-driver", "refusal/re-entrant"]),
];

struct Looks(fn(Inspection) -> Inspection);

fn no_label(mut seen: Inspection) -> Inspection {
    if let Some(holder) = &mut seen.holder {
        holder.label = None;
    }
    seen
}

fn wrong_unit(mut seen: Inspection) -> Inspection {
    if let Some(holder) = &mut seen.holder {
        holder.remaining = holder.remaining.map(|left| left * 1_000);
    }
    seen
}

fn no_waiters(seen: Inspection) -> Inspection {
    seen.with_waiters(0)
}

fn depth_of_one(mut seen: Inspection) -> Inspection {
    if let Some(holder) = &mut seen.holder {
        holder.depth = 1;
    }
    seen
}

fn no_owner(mut seen: Inspection) -> Inspection {
    if let Some(holder) = &mut seen.holder {
        holder.owner = None;
    }
    seen
}

fn somebody_elses(mut seen: Inspection) -> Inspection {
    if let Some(holder) = &mut seen.holder {
        holder.owner = Some(OwnerId::from_bytes([7; 16]));
    }
    seen
}

#[async_trait]
impl Twist for Looks {
    async fn inspect(&self, inner: &Inner, name: &LockName) -> Result<Inspection> {
        inner.locks().inspect(name).await.map(self.0)
    }
}

#[derive(Default)]
struct StaleHolder(std::sync::Mutex<Option<Inspection>>);

#[async_trait]
impl Twist for StaleHolder {
    async fn inspect(&self, inner: &Inner, name: &LockName) -> Result<Inspection> {
        let seen = inner.locks().inspect(name).await?;
        let mut last = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if seen.holder.is_some() || last.is_none() {
            *last = Some(seen);
        }
        Ok(last.clone().unwrap_or_default())
    }
}

/// The fence of the last hold that was seen before the lock was seen free.
#[derive(Default)]
struct FirstTerm(std::sync::Mutex<Option<FencingToken>>);

#[async_trait]
impl Twist for FirstTerm {
    async fn inspect(&self, inner: &Inner, name: &LockName) -> Result<Inspection> {
        let mut seen = inner.locks().inspect(name).await?;
        let mut first = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match &mut seen.holder {
            Some(holder) => holder.fence = first.or(holder.fence),
            None => *first = None,
        }
        *first = seen.holder.as_ref().and_then(|holder| holder.fence);
        Ok(seen)
    }
}

struct OutageLooksFree;

#[async_trait]
impl Twist for OutageLooksFree {
    async fn inspect(&self, inner: &Inner, name: &LockName) -> Result<Inspection> {
        let looked = tokio::time::timeout(ms(500), inner.locks().inspect(name)).await;
        Ok(looked.unwrap_or_else(|_| Ok(Inspection::default())).unwrap_or_default())
    }
}

struct LookingForces;

#[async_trait]
impl Twist for LookingForces {
    async fn inspect(&self, inner: &Inner, name: &LockName) -> Result<Inspection> {
        let seen = inner.locks().inspect(name).await;
        inner.locks().force_release(name, None).await?;
        seen
    }
}

struct LookingHangs;

#[async_trait]
impl Twist for LookingHangs {
    async fn inspect(&self, _inner: &Inner, _name: &LockName) -> Result<Inspection> {
        std::future::pending().await
    }
}

struct NotClosed;

#[async_trait]
impl Twist for NotClosed {
    async fn close(&self, _inner: &Inner) {}
}

#[derive(Default)]
struct ClosesAll(AtomicBool);

#[async_trait]
impl Twist for ClosesAll {
    async fn close(&self, inner: &Inner) {
        self.0.store(true, Ordering::SeqCst);
        inner.locks().close().await;
    }

    async fn renew(&self, inner: &Inner, ttl: Ttl, holds: &[Hold]) -> Vec<Result<Renewed>> {
        if self.0.load(Ordering::SeqCst) {
            return holds.iter().map(|_| Err(made_up(ErrorKind::Closed))).collect();
        }
        inner.locks().renew(ttl, holds).await
    }
}

struct CloseHangs;

#[async_trait]
impl Twist for CloseHangs {
    async fn close(&self, _inner: &Inner) {
        std::future::pending().await
    }
}

struct WiderTtl;

impl Twist for WiderTtl {
    fn capabilities(&self, inner: &Inner) -> LockCapabilities {
        let locks = inner.locks().capabilities();
        let widest = TtlRange { min: Ttl::MIN, max: Ttl::MAX, granularity: ms(1) };
        // One wider still where there is nothing to widen: a range that no ttl reaches.
        let ttl = if locks.ttl == widest { TtlRange { max: widest.max + ms(1), ..widest } } else { widest };
        locks.with_ttl(ttl)
    }
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[derive(Default)]
struct Changing(AtomicU32);

#[async_trait]
impl Twist for Changing {
    fn capabilities(&self, inner: &Inner) -> LockCapabilities {
        let locks = inner.locks().capabilities();
        locks.with_renew_batch(locks.renew_batch + self.0.load(Ordering::SeqCst) as usize)
    }

    async fn release(&self, inner: &Inner, hold: &Hold) -> Result<Released> {
        self.0.fetch_add(1, Ordering::SeqCst);
        inner.locks().release(hold).await
    }
}

#[derive(Default)]
struct Dies(AtomicBool);

#[async_trait]
impl Twist for Dies {
    async fn acquire(&self, inner: &Inner, request: &AcquireRequest) -> Result<Acquisition> {
        if self.0.load(Ordering::SeqCst) {
            return Err(made_up(ErrorKind::Unavailable));
        }
        let limit = Duration::from_millis(500);
        let answer = tokio::time::timeout(limit, inner.locks().acquire(request)).await;
        let answer = answer.unwrap_or_else(|_| Err(made_up(ErrorKind::Indeterminate)));
        let broken = answer.as_ref().is_err_and(|error| error.is_transient());
        self.0.fetch_or(broken, Ordering::SeqCst);
        answer
    }

    async fn renew(&self, inner: &Inner, ttl: Ttl, holds: &[Hold]) -> Vec<Result<Renewed>> {
        let dead = || holds.iter().map(|_| Err(made_up(ErrorKind::Unavailable))).collect();
        if self.0.load(Ordering::SeqCst) {
            return dead();
        }
        let answers = tokio::time::timeout(Duration::from_millis(500), inner.locks().renew(ttl, holds)).await;
        let answers = answers.unwrap_or_else(|_| dead());
        let broken = answers.iter().any(|answer| answer.as_ref().is_err_and(|error| error.is_transient()));
        self.0.fetch_or(broken, Ordering::SeqCst);
        answers
    }
}

/// Gives what the driver below refuses.
struct Allows;

#[async_trait]
impl Twist for Allows {
    async fn watch(&self, _inner: &Inner, _name: &LockName, _token: &OwnerToken) -> Result<Watch> {
        Ok(Watch::channel().1)
    }

    async fn inspect(&self, _inner: &Inner, _name: &LockName) -> Result<Inspection> {
        Ok(Inspection::default())
    }

    async fn force_release(&self, _: &Inner, _: &LockName, _: Option<FencingToken>) -> Result<ForceReleased> {
        Ok(ForceReleased::Released)
    }
}
