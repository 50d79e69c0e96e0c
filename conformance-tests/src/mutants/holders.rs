//! Mutants of who holds what: releases, tokens, abandonment, exclusion.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::driver::{
    AcquireRequest, Acquisition, Begun, Busy, ForceReleased, Grant, Hold, Released, Renewed, Ttl, Watch,
};
use tenure_core::{Error, ErrorKind, LockName, OwnerToken, Result};

use super::leases::{fabricated, made_up};
use super::maker::{Mutant, mutant};
use super::twist::{Inner, Twist};

pub(super) const MUTANTS: &[Mutant] = &[
    mutant!(
        "exclusion/none",
        "a busy lock is granted all the same",
        || Arc::new(NoExclusion::default()),
        [
            "lock/held-is-busy-for-another-client",
            "lock/held-is-busy-for-the-same-client",
            "meta/clients-share-the-backend",
            "name/odd-bytes-are-names",
            "queue/lock-by-value",
            "server/cut-notifications-only-delay",
            "server/muted-notifications-only-delay",
            "server/waiter-survives-a-pause",
            "wait/acquire-waits-for-the-release",
            "wait/survives-an-outage",
            "wait/try-leaves-no-waiter",
            "wait/within-is-granted-in-time"
        ]
    ),
    mutant!(
        "busy/is-unavailable",
        "contention is reported as an outage",
        || Arc::new(BusyFails),
        ["lock/held-is-busy-for-another-client", "lock/held-is-busy-for-the-same-client"]
    ),
    mutant!(
        "busy/errors-are-busy",
        "whatever goes wrong is reported as contention",
        || Arc::new(FailsBusy),
        ["driver/abandoned-token-is-refused", "fifo/abandoned-place-is-free"]
    ),
    mutant!(
        "acquire/slow",
        "every request to take a lock takes 950 ms",
        || Arc::new(Slow),
        [
            "lock/no-renewal-after-release",
            "wait/lost-wake-ups-only-delay",
            "wait/try-does-not-wait",
            "wait/zero-is-one-attempt"
        ]
    ),
    mutant!(
        "release/anyones-lock",
        "a release frees the lock, whoever holds it",
        || Arc::new(AnyonesLock),
        ["driver/release-by-another-token-changes-nothing", "lock/late-release-harms-nobody"]
    ),
    mutant!(
        "release/says-released",
        "a release says that it freed something, always",
        || Arc::new(SaysReleased),
        [
            "driver/release-by-another-token-changes-nothing",
            "driver/second-release-says-not-held",
            "lock/release-says-that-it-was-lost"
        ]
    ),
    mutant!(
        "release/says-not-held",
        "a release says that nothing was held, always",
        || Arc::new(SaysNotHeld),
        ["driver/second-release-says-not-held"]
    ),
    mutant!(
        "release/does-nothing",
        "a release is confirmed and not done",
        || Arc::new(KeepsIt),
        [
            "all/busy-one-takes-none",
            "cancel/run-at-every-poll",
            "hygiene/guard-dropped-outside-a-runtime",
            "hygiene/many-names-leave-nothing",
            "lock/dropped-guard-frees",
            "lock/failed-release-is-carried-on",
            "lock/released-is-free",
            "queue/turn-needs-a-receiver"
        ]
    ),
    mutant!(
        "release/never-answers",
        "releases are done and not answered",
        || Arc::new(Mute),
        ["close/gives-back-what-is-held", "meta/capabilities-are-constant"]
    ),
    mutant!(
        "release/not-held-fails",
        "a release of what is not held fails",
        || Arc::new(NotHeldFails),
        ["driver/second-release-says-not-held", "ping/tells-whether-it-answers"]
    ),
    mutant!(
        "release/adds-a-permit",
        "a second release of the same token lets one more in, as a semaphore does",
        || Arc::new(Permits::default()),
        ["lock/duplicated-release-harms-nobody"]
    ),
    mutant!(
        "release/fails-twice",
        "a token that was released once fails to release",
        || Arc::new(Once::default()),
        [
            "cancel/release-at-every-poll",
            "driver/second-release-says-not-held",
            "lock/release-with-lost-reply-ends-free"
        ]
    ),
    mutant!(
        "token/asked-again-is-busy",
        "a holder that asks again is busy with itself",
        || Arc::new(BusyWithItself),
        ["driver/abandon-of-another-changes-nothing", "lock/resent-requests-change-nothing"]
    ),
    mutant!(
        "token/asked-again-lengthens",
        "asking again renews the lease",
        || Arc::new(Lengthens),
        ["driver/asking-again-does-not-lengthen"]
    ),
    mutant!(
        "token/asked-again-begins-now",
        "a repeated grant claims to begin now",
        || Arc::new(BeginsNow),
        ["driver/asking-again-is-the-same-grant", "fence/renewal-keeps-it"]
    ),
    mutant!(
        "token/first-begins-earlier",
        "a new grant claims to have begun earlier",
        || Arc::new(BeganEarlier),
        ["driver/grants-what-was-asked", "fifo/served-through-expiries"]
    ),
    mutant!(
        "label/long-is-refused",
        "a label of more than a hundred bytes is refused",
        || Arc::new(ShortLabels),
        ["label/any-text-is-taken"]
    ),
    mutant!(
        "token/ignored",
        "the token of an acquisition is replaced by one for its name",
        || Arc::new(OneToken),
        ["lock/held-is-busy-for-another-client", "lock/held-is-busy-for-the-same-client"]
    ),
];

#[derive(Default)]
struct NoExclusion(AtomicU64);

#[async_trait]
impl Twist for NoExclusion {
    async fn acquire(&self, inner: &Inner, request: &AcquireRequest) -> Result<Acquisition> {
        match inner.locks().acquire(request).await? {
            Acquisition::Busy(_) => Ok(fabricated(request, (1 << 60) + self.0.fetch_add(1, Ordering::Relaxed))),
            granted => Ok(granted),
        }
    }
}

/// Labels are copied into something short.
struct ShortLabels;

#[async_trait]
impl Twist for ShortLabels {
    async fn acquire(&self, inner: &Inner, request: &AcquireRequest) -> Result<Acquisition> {
        if request.label.as_ref().is_some_and(|label| label.as_str().len() > 100) {
            return Err(Error::new(ErrorKind::InvalidArgument, "the label is too long"));
        }
        inner.locks().acquire(request).await
    }
}

struct BusyFails;

#[async_trait]
impl Twist for BusyFails {
    async fn acquire(&self, inner: &Inner, request: &AcquireRequest) -> Result<Acquisition> {
        match inner.locks().acquire(request).await? {
            Acquisition::Busy(_) => Err(made_up(ErrorKind::Unavailable)),
            granted => Ok(granted),
        }
    }
}

struct FailsBusy;

#[async_trait]
impl Twist for FailsBusy {
    async fn acquire(&self, inner: &Inner, request: &AcquireRequest) -> Result<Acquisition> {
        Ok(inner.locks().acquire(request).await.unwrap_or(Acquisition::Busy(Busy::default())))
    }
}

struct Slow;

#[async_trait]
impl Twist for Slow {
    async fn acquire(&self, inner: &Inner, request: &AcquireRequest) -> Result<Acquisition> {
        tokio::time::sleep(Duration::from_millis(950)).await;
        inner.locks().acquire(request).await
    }
}

struct AnyonesLock;

#[async_trait]
impl Twist for AnyonesLock {
    async fn release(&self, inner: &Inner, hold: &Hold) -> Result<Released> {
        match inner.locks().force_release(&hold.name, None).await? {
            ForceReleased::Released => Ok(Released::Released),
            ForceReleased::NotHeld | ForceReleased::Changed => Ok(Released::NotHeld),
        }
    }
}

struct SaysReleased;

#[async_trait]
impl Twist for SaysReleased {
    async fn release(&self, inner: &Inner, hold: &Hold) -> Result<Released> {
        inner.locks().release(hold).await.map(|_| Released::Released)
    }
}

struct SaysNotHeld;

#[async_trait]
impl Twist for SaysNotHeld {
    async fn release(&self, inner: &Inner, hold: &Hold) -> Result<Released> {
        inner.locks().release(hold).await.map(|_| Released::NotHeld)
    }
}

struct KeepsIt;

#[async_trait]
impl Twist for KeepsIt {
    async fn release(&self, _inner: &Inner, _hold: &Hold) -> Result<Released> {
        Ok(Released::Released)
    }
}

struct Mute;

#[async_trait]
impl Twist for Mute {
    async fn release(&self, inner: &Inner, hold: &Hold) -> Result<Released> {
        let _answer = inner.locks().release(hold).await;
        std::future::pending().await
    }
}

struct NotHeldFails;

#[async_trait]
impl Twist for NotHeldFails {
    async fn release(&self, inner: &Inner, hold: &Hold) -> Result<Released> {
        match inner.locks().release(hold).await? {
            Released::NotHeld => Err(made_up(ErrorKind::Protocol)),
            released => Ok(released),
        }
    }
}

#[derive(Default)]
struct Permits(Mutex<std::collections::HashMap<LockName, u64>>);

#[async_trait]
impl Twist for Permits {
    async fn acquire(&self, inner: &Inner, request: &AcquireRequest) -> Result<Acquisition> {
        let answer = inner.locks().acquire(request).await?;
        let mut permits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
            *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(hold.name.clone()).or_default() += 1;
        }
        Ok(released)
    }
}

#[derive(Default)]
struct Once(Mutex<std::collections::HashSet<OwnerToken>>);

#[async_trait]
impl Twist for Once {
    async fn release(&self, inner: &Inner, hold: &Hold) -> Result<Released> {
        if !self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(hold.token) {
            return Err(made_up(ErrorKind::Protocol));
        }
        inner.locks().release(hold).await
    }
}

struct BusyWithItself;

#[async_trait]
impl Twist for BusyWithItself {
    async fn acquire(&self, inner: &Inner, request: &AcquireRequest) -> Result<Acquisition> {
        match inner.locks().acquire(request).await? {
            Acquisition::Granted(Grant { begun: Begun::Earlier, .. }) => Ok(Acquisition::Busy(Busy::default())),
            answer => Ok(answer),
        }
    }
}

struct Lengthens;

#[async_trait]
impl Twist for Lengthens {
    async fn acquire(&self, inner: &Inner, request: &AcquireRequest) -> Result<Acquisition> {
        let answer = inner.locks().acquire(request).await?;
        if matches!(answer, Acquisition::Granted(Grant { begun: Begun::Earlier, .. })) {
            let hold = Hold::new(request.name.clone(), request.token);
            let _renewed = inner.locks().renew(request.ttl, &[hold]).await;
        }
        Ok(answer)
    }
}

fn begun(answer: Acquisition, begun: Begun) -> Acquisition {
    match answer {
        Acquisition::Granted(grant) => Acquisition::Granted(grant.with_begun(begun)),
        busy => busy,
    }
}

struct BeginsNow;

#[async_trait]
impl Twist for BeginsNow {
    async fn acquire(&self, inner: &Inner, request: &AcquireRequest) -> Result<Acquisition> {
        inner.locks().acquire(request).await.map(|answer| begun(answer, Begun::Now))
    }
}

struct BeganEarlier;

#[async_trait]
impl Twist for BeganEarlier {
    async fn acquire(&self, inner: &Inner, request: &AcquireRequest) -> Result<Acquisition> {
        inner.locks().acquire(request).await.map(|answer| begun(answer, Begun::Earlier))
    }
}

/// One token for each name: what a lock object with an identity of its own, or a fixed value, comes to.
struct OneToken;

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

#[async_trait]
impl Twist for OneToken {
    async fn acquire(&self, inner: &Inner, request: &AcquireRequest) -> Result<Acquisition> {
        inner.locks().acquire(&request.clone().with_token(token_of(&request.name))).await
    }

    async fn release(&self, inner: &Inner, hold: &Hold) -> Result<Released> {
        inner.locks().release(&on_name(hold)).await
    }

    async fn renew(&self, inner: &Inner, ttl: Ttl, holds: &[Hold]) -> Vec<Result<Renewed>> {
        let all: Vec<Hold> = holds.iter().map(on_name).collect();
        inner.locks().renew(ttl, &all).await
    }

    async fn abandon(&self, inner: &Inner, hold: &Hold) -> Result<()> {
        inner.locks().release(&on_name(hold)).await.map(drop)
    }

    async fn watch(&self, inner: &Inner, name: &LockName, _token: &OwnerToken) -> Result<Watch> {
        inner.locks().watch(name, &token_of(name)).await
    }
}
