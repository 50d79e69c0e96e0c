//! Mutants of leases: their length, and their renewals.

use std::time::Duration;

use async_trait::async_trait;
use tenure_core::driver::{AcquireRequest, Acquisition, Grant, Hold, Released, Renewed, Ttl};
use tenure_core::{Error, ErrorKind, Result};

use super::maker::{Mutant, mutant};
use super::twist::{Inner, Twist, flaw, regranted};

#[rustfmt::skip]
pub(super) const MUTANTS: &[Mutant] = &[
    mutant!("lease/never-expires", "leases have no end",
        flaw!(acquire(inner, request) => {
            let answer = inner.locks().acquire(&with_ttl(request, Ttl::MAX)).await?;
            Ok(claiming(answer, request.ttl.get()))
        }),
        ["hygiene/runtime-gone-with-guards-alive", "lease/ends-by-itself", "queue/lock-follows-the-lease",
         "queue/turn-not-taken-up", "wait/acquire-outlasts-a-dead-holder",
         "window/renewal-counts-from-its-request"]),
    mutant!("lease/cut-short", "leases last half of the requested ttl",
        flaw!(acquire(inner, request) => {
            let answer = inner.locks().acquire(&with_ttl(request, request.ttl.get() / 2)).await?;
            Ok(claiming(answer, request.ttl.get()))
        }),
        ["driver/renewal-lengthens", "lease/belief-ends-before-the-next-grant",
         "lease/not-granted-again-before-its-end", "loss/unrenewable-is-lost-before-the-next-grant",
         "window/backend-outlasts-it"]),
    mutant!("lease/claims-longer", "grants claim twice the ttl that the backend keeps",
        Claims(2.0),
        ["lease/fixed-is-not-renewed", "loss/all-are-notified", "loss/is-final", "loss/run-drops-the-work",
         "loss/unknown-renewal-does-not-lengthen", "ttl/shortest-works-without-a-storm",
         "window/reply-after-its-end-is-no-grant"]),
    mutant!("lease/claims-shorter", "grants claim less than was asked",
        Claims(0.5), ["all/window-is-the-shortest", "ttl/longest-works"]),
    mutant!("lease/seconds-for-millis", "ttls are sent in the wrong unit",
        flaw!(acquire(inner, request) => {
            let wrong = request.ttl.get().saturating_mul(1_000).min(Ttl::MAX);
            let answer = inner.locks().acquire(&with_ttl(request, wrong)).await?;
            Ok(claiming(answer, request.ttl.get()))
        }), ["close/is-bounded", "hygiene/runtime-gone-with-guards-alive"]),
    mutant!("renew/does-nothing", "renewals are confirmed and not done",
        flaw!(renew(_, ttl, holds) => holds.iter().map(|_| Ok(Renewed::Extended { ttl: ttl.get() })).collect()),
        ["hygiene/client-dropped-with-guards-alive", "lease/renewed-outlives-its-ttl", "least/closing-leaves-it-taken",
         "least/released-lock-stays-taken", "loss/run-returns-the-output", "loss/short-outage-is-survived",
         "server/pause-beyond-the-ttl-is-a-loss", "server/restart-with-data-keeps-the-hold", "wait/turn-lasts"]),
    mutant!("renew/never-answers", "renewals get no answer",
        flaw!(renew(_, _, _) => std::future::pending().await),
        ["driver/renewal-never-shortens", "lease/max-hold-ends-it"]),
    mutant!("renew/errors-are-losses", "whatever goes wrong with a renewal counts as a loss",
        flaw!(renew(inner, ttl, holds) => {
            let limit = Duration::from_millis(50);
            let answers = tokio::time::timeout(limit, inner.locks().renew(ttl, holds)).await.unwrap_or_default();
            let mut answers = answers.into_iter();
            holds.iter().map(|_| Ok(answers.next().and_then(Result::ok).unwrap_or(Renewed::Lost))).collect()
        }), ["close/driver-refuses-afterwards", "server/pause-within-the-ttl-is-survived"]),
    mutant!("renew/shortens", "a renewal sets the ttl, also a shorter one",
        RenewSets, ["driver/renewal-never-shortens", "hygiene/no-lease-without-an-end"]),
    mutant!("renew/revives", "a renewal of a lease that has ended takes the lock again",
        flaw!(renew(inner, ttl, holds) => {
            let mut answers = inner.locks().renew(ttl, holds).await;
            for (answer, hold) in answers.iter_mut().zip(holds) {
                if matches!(answer, Ok(Renewed::Lost)) {
                    *answer = retake(inner, ttl, hold).await;
                }
            }
            answers
        }), ["driver/renewal-never-revives", "loss/early-end-is-noticed"]),
    mutant!("renew/never-lost", "a lost lease is reported as renewed",
        flaw!(renew(inner, ttl, holds) => {
            let answers = inner.locks().renew(ttl, holds).await;
            let lie = |answer: Result<Renewed>| answer.map(|_| Renewed::Extended { ttl: ttl.get() });
            answers.into_iter().map(lie).collect()
        }), ["driver/renewal-never-revives", "loss/early-end-is-noticed"]),
    mutant!("renew/anyones-lease", "a renewal takes the lock over from its holder",
        TakesOver, ["driver/renewal-by-another-token-changes-nothing", "driver/renewal-never-revives"]),
    mutant!("renew/answers-reversed", "the answers of a batch come in the wrong order",
        flaw!(renew(inner, ttl, holds) => {
            let mut answers = inner.locks().renew(ttl, holds).await;
            answers.reverse();
            answers
        }), ["driver/renewals-are-answered-in-order"]),
    mutant!("renew/all-or-nothing", "one lost lease makes the whole batch lost",
        flaw!(renew(inner, ttl, holds) => {
            let answers = inner.locks().renew(ttl, holds).await;
            let lost = answers.iter().any(|answer| matches!(answer, Ok(Renewed::Lost)));
            if lost { holds.iter().map(|_| Ok(Renewed::Lost)).collect() } else { answers }
        }), ["driver/renewals-are-answered-in-order"]),
];

fn with_ttl(request: &AcquireRequest, ttl: Duration) -> AcquireRequest {
    let whole = Duration::from_millis(ttl.as_millis() as u64).clamp(Ttl::MIN, Ttl::MAX);
    request.clone().with_ttl(Ttl::new(whole).unwrap_or(request.ttl))
}

fn claiming(answer: Acquisition, ttl: Duration) -> Acquisition {
    regranted(answer, |grant| grant.with_ttl(ttl))
}

struct Claims(f64);

#[async_trait]
impl Twist for Claims {
    async fn acquire(&self, inner: &Inner, request: &AcquireRequest) -> Result<Acquisition> {
        let answer = inner.locks().acquire(request).await?;
        Ok(claiming(answer, request.ttl.get().mul_f64(self.0)))
    }
}

/// Renews by taking the lease anew, which is the only way to shorten it at the driver below.
async fn retake(inner: &Inner, ttl: Ttl, hold: &Hold) -> Result<Renewed> {
    let Hold { name, token, .. } = hold.clone();
    let request = AcquireRequest::new(name, token, ttl);
    match inner.locks().acquire(&request).await? {
        Acquisition::Granted(_) => Ok(Renewed::Extended { ttl: ttl.get() }),
        Acquisition::Busy(_) => Ok(Renewed::Lost),
    }
}

struct RenewSets;

#[async_trait]
impl Twist for RenewSets {
    async fn renew(&self, inner: &Inner, ttl: Ttl, holds: &[Hold]) -> Vec<Result<Renewed>> {
        let mut answers = Vec::new();
        for hold in holds {
            answers.push(match inner.locks().release(hold).await {
                Ok(Released::Released) => retake(inner, ttl, hold).await,
                Ok(Released::NotHeld) => Ok(Renewed::Lost),
                Err(error) => Err(error),
            });
        }
        answers
    }
}

struct TakesOver;

#[async_trait]
impl Twist for TakesOver {
    async fn renew(&self, inner: &Inner, ttl: Ttl, holds: &[Hold]) -> Vec<Result<Renewed>> {
        let mut answers = inner.locks().renew(ttl, holds).await;
        for (answer, hold) in answers.iter_mut().zip(holds) {
            if matches!(answer, Ok(Renewed::Lost)) {
                *answer = match inner.locks().force_release(&hold.name, None).await {
                    Ok(_) => retake(inner, ttl, hold).await,
                    Err(error) => Err(error),
                };
            }
        }
        answers
    }
}

/// A failure that a mutant makes up.
pub(super) fn made_up(kind: ErrorKind) -> Error {
    Error::new(kind, "made up by a mutant")
}

/// A grant that a mutant makes up.
pub(super) fn fabricated(request: &AcquireRequest, fence: u64) -> Acquisition {
    let fence = tenure_core::FencingToken::new(fence.max(1)).expect("at least 1");
    Acquisition::Granted(Grant::new(fence, request.ttl.get()))
}
