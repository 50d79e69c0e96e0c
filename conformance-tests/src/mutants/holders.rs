//! Mutants of holders: releases, tokens, abandonment, exclusion.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::driver::{AcquireRequest, Acquisition, Begun, Busy, Grant, Hold, Released};
use tenure_core::{Error, ErrorKind, LockName, OwnerToken, Result};

use super::leases::{fabricated, made_up};
use super::maker::{Mutant, mutant};
use super::twist::{Inner, Shared, Twist, flaw, regranted};

#[rustfmt::skip]
pub(super) const MUTANTS: &[Mutant] = &[
    mutant!("exclusion/none", "a busy lock is granted all the same",
        flaw!(granted: AtomicU64; acquire(inner, request) => {
            match inner.locks().acquire(request).await? {
                Acquisition::Busy(_) => Ok(fabricated(request, (1 << 60) + granted.fetch_add(1, Ordering::Relaxed))),
                granted => Ok(granted),
            }
        }),
        ["lock/held-is-busy-for-another-client", "lock/held-is-busy-for-the-same-client",
         "meta/clients-share-the-backend", "name/odd-bytes-are-names", "queue/lock-by-value",
         "server/cut-notifications-only-delay", "server/muted-notifications-only-delay",
         "server/waiter-survives-a-pause", "wait/acquire-waits-for-the-release", "wait/survives-an-outage",
         "wait/try-leaves-no-waiter", "wait/within-is-granted-in-time"]),
    mutant!("busy/is-unavailable", "contention is reported as an outage",
        flaw!(acquire(inner, request) => {
            match inner.locks().acquire(request).await? {
                Acquisition::Busy(_) => Err(made_up(ErrorKind::Unavailable)),
                granted => Ok(granted),
            }
        }), ["lock/held-is-busy-for-another-client", "lock/held-is-busy-for-the-same-client"]),
    mutant!("busy/errors-are-busy", "whatever goes wrong is reported as contention",
        flaw!(acquire(inner, request) => {
            Ok(inner.locks().acquire(request).await.unwrap_or(Acquisition::Busy(Busy::default())))
        }), ["driver/abandoned-token-is-refused", "fifo/abandoned-place-is-free"]),
    mutant!("acquire/slow", "every request to take a lock takes 950 ms",
        flaw!(acquire(inner, request) => {
            tokio::time::sleep(Duration::from_millis(950)).await;
            inner.locks().acquire(request).await
        }),
        ["lock/no-renewal-after-release", "wait/lost-wake-ups-only-delay", "wait/try-does-not-wait",
         "wait/zero-is-one-attempt"]),
    mutant!("release/anyones-lock", "a release frees the lock of any holder",
        flaw!(release(inner, hold) => {
            match inner.locks().force_release(&hold.name, None).await? {
                ForceReleased::Released => Ok(Released::Released),
                ForceReleased::NotHeld | ForceReleased::Changed => Ok(Released::NotHeld),
            }
        }), ["driver/release-by-another-token-changes-nothing", "lock/late-release-is-harmless"]),
    mutant!("release/says-released", "a release says that it freed something, always",
        flaw!(release(inner, hold) => inner.locks().release(hold).await.map(|_| Released::Released)),
        ["driver/release-by-another-token-changes-nothing", "driver/second-release-says-not-held",
         "lock/release-says-that-it-was-lost"]),
    mutant!("release/says-not-held", "a release says that nothing was held, always",
        flaw!(release(inner, hold) => inner.locks().release(hold).await.map(|_| Released::NotHeld)),
        ["driver/second-release-says-not-held"]),
    mutant!("release/does-nothing", "a release is confirmed and not done",
        flaw!(release(_, _) => Ok(Released::Released)),
        ["all/busy-one-takes-none", "cancel/run-at-every-poll", "hygiene/guard-dropped-outside-a-runtime",
         "hygiene/many-names-leave-nothing", "lock/dropped-guard-frees", "lock/failed-release-is-carried-on",
         "lock/released-is-free", "queue/turn-needs-a-receiver"]),
    mutant!("release/never-answers", "releases are done and not answered",
        flaw!(release(inner, hold) => {
            let _answer = inner.locks().release(hold).await;
            std::future::pending().await
        }), ["close/gives-back-what-is-held", "meta/capabilities-are-constant"]),
    mutant!("release/not-held-fails", "a release of a lock that is not held fails",
        flaw!(release(inner, hold) => {
            match inner.locks().release(hold).await? {
                Released::NotHeld => Err(made_up(ErrorKind::Protocol)),
                released => Ok(released),
            }
        }), ["driver/second-release-says-not-held", "ping/shows-whether-it-answers"]),
    mutant!("release/adds-a-permit", "a second release of the same token lets one more in, as a semaphore does",
        Permits::default(), ["lock/duplicated-release-is-harmless"]),
    mutant!("release/fails-twice", "a token that was released once fails to release",
        flaw!(released: Shared<std::collections::HashSet<OwnerToken>>; release(inner, hold) => {
            if !released.lock().insert(hold.token) {
                return Err(made_up(ErrorKind::Protocol));
            }
            inner.locks().release(hold).await
        }),
        ["cancel/release-at-every-poll", "driver/second-release-says-not-held",
         "lock/release-with-lost-reply-ends-free"]),
    mutant!("token/asked-again-is-busy", "a holder that asks again is busy with itself",
        flaw!(acquire(inner, request) => {
            match inner.locks().acquire(request).await? {
                Acquisition::Granted(Grant { begun: Begun::Earlier, .. }) => Ok(Acquisition::Busy(Busy::default())),
                answer => Ok(answer),
            }
        }), ["driver/abandon-of-another-changes-nothing", "lock/resent-requests-change-nothing"]),
    mutant!("token/asked-again-lengthens", "asking again renews the lease",
        flaw!(acquire(inner, request) => {
            let answer = inner.locks().acquire(request).await?;
            if matches!(answer, Acquisition::Granted(Grant { begun: Begun::Earlier, .. })) {
                let hold = Hold::new(request.name.clone(), request.token);
                let _renewed = inner.locks().renew(request.ttl, &[hold]).await;
            }
            Ok(answer)
        }), ["driver/asking-again-does-not-lengthen"]),
    mutant!("token/asked-again-begins-now", "a repeated grant claims to begin now",
        flaw!(acquire(inner, request) => inner.locks().acquire(request).await.map(|answer| begun(answer, Begun::Now))),
        ["driver/asking-again-is-the-same-grant", "fence/renewal-keeps-it"]),
    mutant!("token/first-begins-earlier", "a new grant claims to have begun earlier",
        flaw!(acquire(inner, request) => {
            inner.locks().acquire(request).await.map(|answer| begun(answer, Begun::Earlier))
        }), ["driver/grants-what-was-asked", "fifo/served-through-expiries"]),
    mutant!("label/long-is-refused", "a label of more than a hundred bytes is refused",
        flaw!(acquire(inner, request) => {
            if request.label.as_ref().is_some_and(|label| label.as_str().len() > 100) {
                return Err(Error::new(ErrorKind::InvalidArgument, "the label is too long"));
            }
            inner.locks().acquire(request).await
        }), ["label/any-text-is-taken"]),
    mutant!("token/ignored", "the token of an acquisition is replaced by one for its name",
        flaw!(
            acquire(inner, request) => {
                inner.locks().acquire(&request.clone().with_token(token_of(&request.name))).await
            },
            release(inner, hold) => inner.locks().release(&on_name(hold)).await,
            renew(inner, ttl, holds) => {
                inner.locks().renew(ttl, &holds.iter().map(on_name).collect::<Vec<_>>()).await
            },
            abandon(inner, hold) => inner.locks().release(&on_name(hold)).await.map(drop),
            watch(inner, name, _) => inner.locks().watch(name, &token_of(name)).await,
        ),
        ["lock/held-is-busy-for-another-client", "lock/held-is-busy-for-the-same-client"]),
];

#[derive(Default)]
struct Permits(Shared<std::collections::HashMap<LockName, u64>>);

#[async_trait]
impl Twist for Permits {
    async fn acquire(&self, inner: &Inner, request: &AcquireRequest) -> Result<Acquisition> {
        let answer = inner.locks().acquire(request).await?;
        let mut permits = self.0.lock();
        match (answer, permits.get_mut(&request.name)) {
            (Acquisition::Busy(_), Some(left)) if *left > 0 => {
                *left -= 1;
                Ok(fabricated(request, (1 << 60) + *left))
            }
            (answer, _) => Ok(answer),
        }
    }

    async fn release(&self, inner: &Inner, hold: &Hold) -> Result<Released> {
        let released = inner.locks().release(hold).await?;
        if released == Released::NotHeld {
            *self.0.lock().entry(hold.name.clone()).or_default() += 1;
        }
        Ok(released)
    }
}

fn begun(answer: Acquisition, begun: Begun) -> Acquisition {
    regranted(answer, |grant| grant.with_begun(begun))
}

fn token_of(name: &LockName) -> OwnerToken {
    let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdef";
    let sum = name.as_bytes().iter().fold(7_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
    let digit = |shift: usize| letters[(sum >> (shift % 12 * 5)) as usize % 32] as char;
    let text: String = (0..21).map(digit).chain(['A']).collect();
    OwnerToken::parse(&text).expect("21 letters and a final A are a token")
}

fn on_name(hold: &Hold) -> Hold {
    Hold::new(hold.name.clone(), token_of(&hold.name))
}
