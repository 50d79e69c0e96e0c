//! Mutants of the operators' view, and of the driver as a whole.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::driver::{
    AcquireRequest, Acquisition, ForceReleased, Hold, Holder, Inspection, LockCapabilities, Released, Renewed, Ttl,
    TtlRange, Watch,
};
use tenure_core::{ErrorKind, FencingToken, LockName, OwnerId, OwnerToken, Result};

use super::leases::made_up;
use super::maker::{Mutant, mutant};
use super::twist::{Inner, Shared, Twist, flaw};

#[rustfmt::skip]
pub(super) const MUTANTS: &[Mutant] = &[
    mutant!("inspect/sees-nothing", "a held lock looks free",
        Looks(|_| Inspection::default()),
        ["inspect/free-lock-has-no-holder", "inspect/until-free", "reentrant/inspection-shows-the-depth"]),
    mutant!("inspect/no-label", "the label is lost",
        Shows(|holder| holder.label = None),
        ["election/observers-follow-the-terms", "inspect/shows-the-holder", "reentrant/inspection-shows-the-depth"]),
    mutant!("inspect/wrong-unit", "the rest of the lease has the wrong unit",
        Shows(|holder| holder.remaining = holder.remaining.map(|left| left * 1_000)), ["inspect/shows-the-holder"]),
    mutant!("inspect/no-waiters", "waiters are not counted",
        Looks(|seen| seen.with_waiters(0)), ["inspect/counts-the-waiters"]),
    mutant!("inspect/depth-of-one", "the depth is missing",
        Shows(|holder| holder.depth = 1), ["reentrant/inspection-shows-the-depth"]),
    mutant!("inspect/no-owner", "the owner is missing",
        Shows(|holder| holder.owner = None), ["reentrant/inspection-shows-the-owner"]),
    mutant!("inspect/another-clients-lock", "every hold is reported as an owner's, and always the same one's",
        Shows(|holder| holder.owner = Some(OwnerId::from_bytes([7; 16]))), ["reentrant/inspection-shows-the-owner"]),
    mutant!("inspect/stale-holder", "the last holder is shown",
        flaw!(last: Shared<Option<Inspection>>; inspect(inner, name) => {
            let seen = inner.locks().inspect(name).await?;
            let mut last = last.lock();
            if seen.holder.is_some() || last.is_none() {
                *last = Some(seen);
            }
            Ok(last.clone().unwrap_or_default())
        }),
        ["election/observers-follow-the-terms", "inspect/free-lock-has-no-holder", "inspect/until-free",
         "reentrant/inspection-shows-the-depth"]),
    mutant!("inspect/first-term-for-ever", "a hold that follows another at once is shown with the fence of that one",
        flaw!(first: Shared<Option<FencingToken>>; inspect(inner, name) => {
            let mut seen = inner.locks().inspect(name).await?;
            let mut first = first.lock();
            match &mut seen.holder {
                Some(holder) => holder.fence = first.or(holder.fence),
                None => *first = None,
            }
            *first = seen.holder.as_ref().and_then(|holder| holder.fence);
            Ok(seen)
        }), ["election/observers-follow-the-terms"]),
    mutant!("inspect/outage-looks-free", "a lock that cannot be looked at looks free",
        flaw!(inspect(inner, name) => {
            let looked = tokio::time::timeout(ms(500), inner.locks().inspect(name)).await;
            Ok(looked.unwrap_or_else(|_| Ok(Inspection::default())).unwrap_or_default())
        }), ["election/an-outage-is-no-vacancy"]),
    mutant!("inspect/takes-the-lease", "looking ends the lease",
        flaw!(inspect(inner, name) => {
            let seen = inner.locks().inspect(name).await;
            inner.locks().force_release(name, None).await?;
            seen
        }), ["inspect/changes-nothing", "reentrant/inspection-shows-the-depth"]),
    mutant!("inspect/never-answers", "looking gets no answer",
        flaw!(inspect(_, _) => std::future::pending().await), ["inspect/free-lock-has-no-holder"]),
    mutant!("close/does-nothing", "a closed driver continues",
        flaw!(close(_) => ()), ["close/driver-refuses-afterwards"]),
    mutant!("close/closes-all", "closing one connection closes every one",
        flaw!(closed: AtomicBool;
            close(inner) => {
                closed.store(true, Ordering::SeqCst);
                inner.locks().close().await;
            },
            renew(inner, ttl, holds) => {
                if closed.load(Ordering::SeqCst) {
                    return holds.iter().map(|_| Err(made_up(ErrorKind::Closed))).collect();
                }
                inner.locks().renew(ttl, holds).await
            },
        ), ["close/leaves-other-clients-alone"]),
    mutant!("close/never-ends", "closing does not end",
        flaw!(close(_) => std::future::pending().await), ["close/is-bounded"]),
    mutant!("caps/wider-ttl", "the driver declares more ttls than its maker",
        WiderTtl, ["meta/declared-matches-driver"]),
    mutant!("caps/change", "the capabilities change with use",
        Changing::default(), ["meta/capabilities-are-constant"]),
    mutant!("link/dies-for-good", "after one failure every request fails",
        Dies::default(), ["server/pause-within-the-ttl-is-survived"]),
    mutant!(Reduced "refusal/watches-all-the-same", "undeclared wake-ups are given",
        Allows, ["refusal/force", "refusal/inspect"]),
    mutant!(Reduced "refusal/inspects-all-the-same", "undeclared introspection is given",
        Allows, ["refusal/force", "refusal/inspect"]),
    mutant!(Reduced "refusal/forces-all-the-same", "undeclared revocation is given",
        Allows, ["refusal/force", "refusal/inspect", "refusal/watch"]),
    mutant!(Reduced "refusal/declares-wider-ttl", "ttls that are not kept are declared",
        WiderTtl, ["refusal/ttl", "ttl/bad-is-refused-unsent"]),
    mutant!(Reduced "refusal/has-entries", "undeclared re-entrancy is there",
        super::exits::Appears, ["meta/declared-matches-driver", "refusal/re-entrant"]),
];

/// Inspections that are changed on their way.
struct Looks(fn(Inspection) -> Inspection);

#[async_trait]
impl Twist for Looks {
    async fn inspect(&self, inner: &Inner, name: &LockName) -> Result<Inspection> {
        inner.locks().inspect(name).await.map(self.0)
    }
}

/// Holders that are changed on their way.
struct Shows(fn(&mut Holder));

#[async_trait]
impl Twist for Shows {
    async fn inspect(&self, inner: &Inner, name: &LockName) -> Result<Inspection> {
        let mut seen = inner.locks().inspect(name).await?;
        seen.holder.iter_mut().for_each(self.0);
        Ok(seen)
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
