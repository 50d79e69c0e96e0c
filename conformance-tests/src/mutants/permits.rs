//! Mutants of semaphores and read-write locks: what they grant, how long, and to which token.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tenure_core::driver::{Acquisition, PermitHold, PermitRequest, Share};
use tenure_core::{Error, ErrorKind, FencingToken};
use tokio::time::Instant;

use super::maker::{Mutant, mutant};
use super::turns::reported;
use super::twist::{Shared, flaw, regranted};

#[rustfmt::skip]
pub(super) const MUTANTS: &[Mutant] = &[
    mutant!("permits/one-too-many", "a capacity counts as one more",
        flaw!(take_permits(inner, request) => {
            inner.permits()?.acquire(&asked(request, |to| Share { capacity: to.capacity + 1, ..to })).await
        }),
        ["permits/all-or-nothing", "permits/never-more-than-the-capacity", "permits/shrink-to-nothing-is-refused",
         "permits/two-capacities-side-by-side"]),
    mutant!("permits/takes-a-part", "a request that does not fit takes one permit",
        flaw!(take_permits(inner, request) => {
            match inner.permits()?.acquire(request).await? {
                Acquisition::Busy(_) => {
                    inner.permits()?.acquire(&asked(request, |to| Share { weight: 1, ..to })).await
                }
                granted @ Acquisition::Granted(_) => Ok(granted),
            }
        }), ["permits/all-or-nothing", "rw/writer-alone"]),
    mutant!("permits/whole-is-refused", "the whole capacity is refused as too much",
        flaw!(take_permits(inner, request) => {
            if request.share.weight == request.share.capacity && request.share.weight > 1 {
                return Err(Error::new(ErrorKind::InvalidArgument, "too much"));
            }
            inner.permits()?.acquire(request).await
        }), ["permits/fifo-over-weights", "permits/more-than-the-capacity-is-refused-unsent"]),
    mutant!("permits/first-capacity-stays", "the capacity of a name's first request counts for all later ones",
        flaw!(first: Shared<HashMap<(Family, LockName), u32>>; take_permits(inner, request) => {
            let key = (request.family, request.lock.name.clone());
            let capacity = *first.lock().entry(key).or_insert(request.share.capacity);
            inner.permits()?.acquire(&asked(request, |to| Share { capacity, ..to })).await
        }),
        ["permits/raised-limit-serves-in-the-same-step", "permits/two-capacities-side-by-side"]),
    mutant!("permits/families-share-names", "a semaphore and a read-write lock of one name are the same",
        flaw!(take_permits(inner, request) => {
            inner.permits()?.acquire(&request.clone().with_family(Family::Semaphore)).await
        }), ["permits/names-of-families-are-apart"]),
    mutant!("permits/constant-fence", "every grant has the same fence",
        flaw!(
            take_permits(inner, request) => inner.permits()?.acquire(request).await.map(first_fence),
            resize(inner, change) => inner.permits()?.resize(change).await.map(first_fence),
            watch_permits(inner, hold) => {
                Ok(reported(inner.permits()?.watch(hold).await?, |handed| handed.with_fence(FIRST)))
            },
        ),
        ["permits/fences-in-the-order-of-grants", "permits/never-more-than-the-capacity",
         "permits/no-two-share-a-fence", "rw/history-is-clean", "rw/readers-together",
         "rw/stale-reader-after-a-writer-is-refused", "rw/stale-writer-is-refused",
         "rw/upgrade-has-a-greater-fence"]),
    mutant!("permits/renewal-does-nothing", "renewals are confirmed and not done",
        flaw!(renew_permits(_, ttl, holds) => {
            holds.iter().map(|_| Ok(Renewed::Extended { ttl: ttl.get() })).collect()
        }),
        ["permits/held-beyond-the-ttl", "permits/nothing-is-renewed-after-the-end",
         "permits/renewal-of-one-touches-no-other", "rw/downgrade-keeps-the-fence",
         "rw/last-share-gives-back", "rw/readers-together", "rw/upgrade-has-a-greater-fence",
         "rw/upgrade-in-vain-keeps-the-hold"]),
    mutant!("permits/renewal-keeps-all", "a renewal of one hold renews all of the name",
        flaw!(known: Shared<Vec<PermitHold>>;
            take_permits(inner, request) => {
                let answer = inner.permits()?.acquire(request).await?;
                if let Acquisition::Granted(_) = answer {
                    known.lock().push(hold_of(request));
                }
                Ok(answer)
            },
            renew_permits(inner, ttl, holds) => {
                let all = known.lock().clone();
                let Ok(permits) = inner.permits() else { return Vec::new() };
                drop(permits.renew(ttl, &all).await);
                permits.renew(ttl, holds).await
            },
        ), ["permits/renewal-of-one-touches-no-other"]),
    mutant!("permits/renewal-revives", "a renewal takes permits again whose lease has ended",
        flaw!(known: Shared<HashMap<OwnerToken, PermitRequest>>;
            take_permits(inner, request) => {
                known.lock().insert(request.lock.token, request.clone());
                inner.permits()?.acquire(request).await
            },
            renew_permits(inner, ttl, holds) => {
                let Ok(permits) = inner.permits() else { return Vec::new() };
                let mut answers = permits.renew(ttl, holds).await;
                for (answer, hold) in answers.iter_mut().zip(holds) {
                    let again = known.lock().get(&hold.token).cloned();
                    if let (Ok(Renewed::Lost), Some(again)) = (&answer, again)
                        && let Ok(Acquisition::Granted(grant)) = permits.acquire(&again).await
                    {
                        *answer = Ok(Renewed::Extended { ttl: grant.ttl });
                    }
                }
                answers
            },
        ), ["permits/renewal-never-revives"]),
    mutant!("permits/ends-together", "the end of one lease ends all of the name",
        flaw!(ends: Shared<Vec<(Instant, PermitHold)>>;
            take_permits(inner, request) => {
                let mut ended = Vec::new();
                {
                    let mut ends = ends.lock();
                    let of_name = |held: &PermitHold| held.name == request.lock.name;
                    if ends.iter().any(|(end, held)| *end <= Instant::now() && of_name(held)) {
                        ended = ends.extract_if(.., |(_, held)| of_name(held)).collect();
                    }
                }
                for (_, hold) in ended {
                    inner.permits()?.release(&hold).await?;
                }
                let answer = inner.permits()?.acquire(request).await?;
                if let Acquisition::Granted(grant) = &answer {
                    ends.lock().push((Instant::now() + grant.ttl, hold_of(request)));
                }
                Ok(answer)
            },
            release_permits(inner, hold) => {
                ends.lock().retain(|(_, held)| held != hold);
                inner.permits()?.release(hold).await
            },
        ), ["permits/one-end-touches-no-other"]),
    mutant!("permits/leases-never-end", "the lease of a dead holder does not end",
        flaw!(take_permits(inner, request) => {
            let ttl = request.lock.ttl;
            let long = request.clone().with_lock(request.lock.clone().with_ttl(Ttl::new(HOUR)?));
            Ok(regranted(inner.permits()?.acquire(&long).await?, |grant| grant.with_ttl(ttl.get())))
        }),
        ["permits/asking-again-is-the-same-grant", "permits/change-keeps-the-lease",
         "permits/dead-holders-permits-come-back", "permits/expired-holder-cannot-release",
         "permits/one-end-touches-no-other", "permits/renewal-never-revives"]),
    mutant!("permits/releases-anothers", "a release of no hold frees another of the name",
        flaw!(known: Shared<Vec<PermitHold>>;
            take_permits(inner, request) => {
                let answer = inner.permits()?.acquire(request).await?;
                if let Acquisition::Granted(_) = answer {
                    known.lock().push(hold_of(request));
                }
                Ok(answer)
            },
            release_permits(inner, hold) => {
                let released = inner.permits()?.release(hold).await?;
                let last = known.lock().iter().rev().find(|other| other.name == hold.name).cloned();
                if let (Released::NotHeld, Some(last)) = (released, last) {
                    inner.permits()?.release(&last).await?;
                }
                Ok(released)
            },
        ), ["permits/expired-holder-cannot-release"]),
    mutant!("permits/release-does-nothing", "releases are confirmed and not done",
        flaw!(release_permits(_, _) => Ok(Released::Released)),
        ["permits/cancel-at-every-poll", "permits/hygiene-leaves-no-key-without-an-end",
         "rw/dropped-upgrade-gives-back", "rw/last-share-gives-back", "rw/share-costs-no-request"]),
    mutant!("permits/asked-again-counts-twice", "a repeated request takes its share again",
        flaw!(known: Shared<HashSet<OwnerToken>>; take_permits(inner, request) => {
            let answer = inner.permits()?.acquire(request).await?;
            if matches!(answer, Acquisition::Granted(_)) && !known.lock().insert(request.lock.token) {
                let another = request.lock.clone().with_token(OwnerToken::random());
                let again = asked(request, |to| Share { capacity: u32::MAX, ..to });
                drop(inner.permits()?.acquire(&again.with_lock(another)).await);
            }
            Ok(answer)
        }), ["permits/asking-again-is-the-same-grant", "permits/duplicated-requests-change-nothing"]),
    mutant!("permits/abandon-forgets", "an abandoned token may take permits later",
        flaw!(abandon_permits(inner, hold) => inner.permits()?.release(hold).await.map(drop)),
        ["permits/abandoned-token-is-refused", "permits/late-acquire-takes-nothing"]),
    mutant!("permits/abandon-does-nothing", "abandonment is confirmed and not done",
        flaw!(abandon_permits(_, _) => Ok(())),
        ["permits/cancel-at-every-poll", "permits/lost-grant-is-undone", "permits/timed-out-waiter-leaves"]),
    mutant!("permits/inspect-leaves-out-the-last", "an inspection leaves out the last holder",
        flaw!(inspect_permits(inner, family, name, most) => {
            let mut seen = inner.permits()?.inspect(family, name, most).await?;
            seen.holders.pop();
            Ok(seen)
        }), ["permits/inspect-lists-holders"]),
    mutant!("permits/evicts-the-first", "an eviction ends the first hold, whatever its fence",
        flaw!(evict(inner, family, name, fence) => {
            let seen = inner.permits()?.inspect(family, name, 1).await?;
            let first = seen.holders.first().and_then(|held| held.holder.fence);
            inner.permits()?.evict(family, name, first.unwrap_or(fence)).await
        }), ["permits/evict-hits-one-and-spares-the-next"]),
    mutant!(Undeclared "permits/offered", "permits are offered that are not declared",
        flaw!(close(inner) => inner.locks().close().await), ["meta/declared-matches-driver", "refusal/permits"]),
    mutant!("rw/readers-alone", "a reader takes all of the lock",
        flaw!(take_permits(inner, request) => {
            let alone = |to| if to == Share::READER { Share::WRITER } else { to };
            inner.permits()?.acquire(&asked(request, alone)).await
        }), ["rw/one-upgradable-beside-readers", "rw/readers-enter-together", "rw/readers-together"]),
    mutant!("rw/writer-beside-readers", "a writer takes as much as a reader",
        flaw!(take_permits(inner, request) => {
            let beside = |to| if to == Share::WRITER { Share::READER } else { to };
            inner.permits()?.acquire(&asked(request, beside)).await
        }),
        ["rw/history-is-clean", "rw/writer-alone"]),
    mutant!("rw/two-upgradables", "an upgradable reader takes as much as a reader",
        flaw!(take_permits(inner, request) => {
            let light = |to| if to == Share::UPGRADABLE { Share::READER } else { to };
            inner.permits()?.acquire(&asked(request, light)).await
        }), ["rw/one-upgradable-beside-readers", "rw/upgrade-in-vain-keeps-the-hold"]),
];

/// A fence that is smaller than those of any driver.
const FIRST: FencingToken = match FencingToken::new(1) {
    Some(fence) => fence,
    None => unreachable!(),
};

const HOUR: Duration = Duration::from_secs(3_600);

fn first_fence(answer: Acquisition) -> Acquisition {
    regranted(answer, |grant| grant.with_fence(FIRST))
}

/// The request, for another share.
pub(super) fn asked(request: &PermitRequest, change: impl FnOnce(Share) -> Share) -> PermitRequest {
    request.clone().with_share(change(request.share))
}

pub(super) fn hold_of(request: &PermitRequest) -> PermitHold {
    PermitHold::new(request.family, request.lock.name.clone(), request.lock.token)
}
