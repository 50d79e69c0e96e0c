//! Mutants of the line of permits, and of changes of weight.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::driver::{
    Acquisition, Begun, Busy, Grant, PermitHold, PermitRequest, Queueing, Released, Signal, WakeHandle, Watch,
};
use tenure_core::{Error, ErrorKind, LockName, OwnerToken, Result};

use super::maker::{Mutant, mutant};
use super::twist::{Inner, Shared, Twist, flaw, regranted, silent};

#[rustfmt::skip]
pub(super) const MUTANTS: &[Mutant] = &[
    mutant!("permit-turns/no-line", "no waiter has a place",
        flaw!(take_permits(inner, request) => {
            let lock = request.lock.clone().with_queue(Queueing::None);
            inner.permits()?.acquire(&request.clone().with_lock(lock)).await
        }),
        ["permits/full-line-refuses", "permits/heavy-head-is-not-overtaken",
         "rw/readers-are-not-starved", "rw/readers-behind-a-waiting-writer-wait", "rw/readers-enter-together",
         "rw/writer-is-not-starved"]),
    mutant!("permit-turns/tries-pass-the-line", "a request that does not wait is granted beside the line",
        flaw!(
            take_permits(inner, request) => {
                let (permits, name) = (inner.permits()?, &request.lock.name);
                let used = permits.inspect(request.family, name, 0).await?.used;
                let fits = used + u64::from(request.share.weight) <= u64::from(request.share.capacity);
                if request.lock.queue == Queueing::None && fits {
                    let beside = request.lock.clone().with_name(beside(name)?);
                    return permits.acquire(&request.clone().with_lock(beside)).await;
                }
                permits.acquire(request).await
            },
            release_permits(inner, hold) => {
                match inner.permits()?.release(hold).await? {
                    Released::NotHeld => {
                        inner.permits()?.release(&hold.clone().with_name(beside(&hold.name)?)).await
                    }
                    released => Ok(released),
                }
            },
        ),
        ["permits/growing-waits-before-the-line", "permits/heavy-head-is-not-overtaken",
         "permits/notified-waiter-keeps-its-room", "rw/readers-behind-a-waiting-writer-wait",
         "rw/upgrade-before-the-line"]),
    mutant!("permit-turns/never-wakes", "no waiter is notified",
        flaw!(watch_permits(inner, hold) => inner.permits()?.watch(hold).await.map(silent)),
        ["permits/notified-waiter-keeps-its-room", "permits/one-release-serves-several",
         "permits/raised-limit-serves-in-the-same-step", "permits/shrink-frees-at-once",
         "rw/downgrade-serves-in-the-same-step", "rw/waiting-writer-is-woken"]),
    mutant!("permit-turns/one-a-release", "a release notifies one waiter, however many fit",
        OneARelease::default(), ["permits/one-release-serves-several", "permits/raised-limit-serves-in-the-same-step", "rw/readers-enter-together"]),
    mutant!("permit-turns/lightest-first", "a release wakes all waiters, the lightest first, and no waiter has a place",
        LightestFirst::default(), ["permits/fifo-over-weights", "permits/heavy-head-is-not-overtaken"]),
    mutant!("permit-turns/only-woken-are-served", "a waiter that asks again is never granted",
        flaw!(asked: Shared<HashSet<OwnerToken>>; take_permits(inner, request) => {
            if request.lock.queue != Queueing::None && !asked.lock().insert(request.lock.token) {
                return Ok(Acquisition::Busy(Busy::default()));
            }
            inner.permits()?.acquire(request).await
        }),
        ["permits/lost-wake-ups-only-delay", "permits/one-release-serves-several",
         "permits/unpolled-waiter-delays-by-the-claim", "rw/waiting-writer-is-woken"]),
    mutant!("permit-turns/grants-unasked", "a release grants a full lease to a waiter that does not ask",
        flaw!(known: Shared<HashMap<OwnerToken, PermitRequest>>;
            take_permits(inner, request) => {
                let answer = inner.permits()?.acquire(request).await?;
                if request.lock.queue != Queueing::None && matches!(answer, Acquisition::Busy(_)) {
                    known.lock().insert(request.lock.token, request.clone());
                }
                Ok(answer)
            },
            release_permits(inner, hold) => {
                let released = inner.permits()?.release(hold).await?;
                let waiters: Vec<_> = known.lock().values().cloned().collect();
                for waiter in waiters.into_iter().filter(|waiter| waiter.lock.name == hold.name) {
                    drop(inner.permits()?.acquire(&waiter).await);
                }
                Ok(released)
            },
        ), ["permits/dead-waiter-lapses", "permits/unpolled-waiter-delays-by-the-claim"]),
    mutant!("permit-turns/waiters-never-lapse", "a waiter that stops asking keeps its place, and a hold its wait for more",
        flaw!(
            take_permits(inner, request) => {
                let queue = match request.lock.queue {
                    Queueing::Join { accepts, .. } => Queueing::Join { presence: HOUR, accepts },
                    queue => queue,
                };
                inner.permits()?.acquire(&request.clone().with_lock(request.lock.clone().with_queue(queue))).await
            },
            resize(inner, change) => {
                let presence = change.presence.map(|_| HOUR);
                inner.permits()?.resize(&change.clone().with_presence(presence)).await
            },
        ), ["permits/dead-waiter-lapses", "permits/growing-waits-before-the-line"]),
    mutant!("permit-turns/full-line-is-busy", "a full line answers with busy, without a place",
        flaw!(take_permits(inner, request) => {
            match inner.permits()?.acquire(request).await {
                Err(error) if error.kind() == ErrorKind::LimitReached => Ok(Acquisition::Busy(Busy::default())),
                answer => answer,
            }
        }), ["permits/full-line-refuses"]),
    mutant!("permit-turns/line-of-ten", "no more than ten clients may wait",
        flaw!(waiting: Shared<HashSet<OwnerToken>>; take_permits(inner, request) => {
            let answer = inner.permits()?.acquire(request).await?;
            if request.lock.queue != Queueing::None && matches!(answer, Acquisition::Busy(_)) {
                let mut waiting = waiting.lock();
                waiting.insert(request.lock.token);
                if waiting.len() > 10 {
                    return Err(Error::new(ErrorKind::LimitReached, "ten wait"));
                }
            }
            Ok(answer)
        }), ["permits/thousand-waiters"]),
    mutant!("resize/less-does-nothing", "a change to less is confirmed and not done",
        flaw!(resize(inner, change) => {
            let name = &change.hold.name;
            let seen = inner.permits()?.inspect(change.hold.family, name, 1).await?.holders.pop();
            match seen.and_then(|held| held.holder.fence.filter(|_| change.to.weight < held.share.weight)) {
                Some(fence) => Ok(Acquisition::Granted(Grant::new(fence, HOUR))),
                None => inner.permits()?.resize(change).await,
            }
        }),
        ["permits/late-change-has-no-effect", "permits/lost-answer-of-a-shrink", "permits/shrink-frees-at-once",
         "rw/downgrade-keeps-the-fence", "rw/downgrade-serves-in-the-same-step", "rw/lost-answer-of-a-downgrade",
         "rw/lost-answer-of-an-upgrade"]),
    mutant!("resize/late-counts", "a change that arrives late takes effect",
        flaw!(steps: Shared<HashMap<OwnerToken, u32>>; resize(inner, change) => {
            let step = {
                let mut steps = steps.lock();
                let step = steps.entry(change.hold.token).or_insert(0);
                *step = change.step.max(*step + 1);
                *step
            };
            inner.permits()?.resize(&change.clone().with_step(step)).await
        }), ["permits/late-change-has-no-effect", "rw/late-upgrade-has-no-effect"]),
    mutant!("resize/renews", "a change of weight renews the lease",
        flaw!(resize(inner, change) => {
            let answer = inner.permits()?.resize(change).await?;
            let ttl = Ttl::new(HOUR)?;
            drop(inner.permits()?.renew(ttl, std::slice::from_ref(&change.hold)).await);
            Ok(answer)
        }), ["permits/change-keeps-the-lease"]),
    mutant!("resize/waits-without-a-place", "a hold that waits to weigh more lets others in",
        flaw!(resize(inner, change) => inner.permits()?.resize(&change.clone().with_presence(None)).await),
        ["permits/growing-waits-before-the-line", "rw/upgrade-before-the-line"]),
    mutant!("resize/keeps-the-fence", "a change to more keeps the fence",
        flaw!(fences: Shared<HashMap<OwnerToken, FencingToken>>;
            take_permits(inner, request) => {
                let answer = inner.permits()?.acquire(request).await?;
                if let Acquisition::Granted(grant) = &answer {
                    fences.lock().insert(request.lock.token, grant.fence);
                }
                Ok(answer)
            },
            resize(inner, change) => {
                let answer = inner.permits()?.resize(change).await?;
                let first = fences.lock().get(&change.hold.token).copied();
                Ok(regranted(answer, |grant| grant.with_fence(first.unwrap_or(grant.fence))))
            },
        ),
        ["permits/late-change-has-no-effect", "rw/lost-answer-of-an-upgrade", "rw/upgrade-has-a-greater-fence"]),
    mutant!("resize/repeated-ends-the-hold", "a change to the weight that a hold has ends the hold",
        flaw!(resize(inner, change) => {
            let answer = inner.permits()?.resize(change).await?;
            if matches!(&answer, Acquisition::Granted(grant) if grant.begun == Begun::Earlier) {
                inner.permits()?.release(&change.hold).await?;
            }
            Ok(answer)
        }),
        ["permits/duplicated-requests-change-nothing", "permits/lost-answer-of-a-shrink",
         "rw/lost-answer-of-an-upgrade", "rw/upgrade-in-vain-keeps-the-hold"]),
];

const HOUR: Duration = Duration::from_secs(3_600);

/// Another name, for what is granted beside the line.
fn beside(name: &LockName) -> Result<LockName> {
    LockName::new([name.as_bytes(), b"~"].concat())
}

/// After a release, one notification of any waiter passes.
#[derive(Default)]
struct OneARelease(Arc<AtomicBool>);

#[async_trait]
impl Twist for OneARelease {
    async fn release_permits(&self, inner: &Inner, hold: &PermitHold) -> Result<Released> {
        self.0.store(true, Ordering::Release);
        inner.permits()?.release(hold).await
    }

    async fn watch_permits(&self, inner: &Inner, hold: &PermitHold) -> Result<Watch> {
        let (mut real, passes) = (inner.permits()?.watch(hold).await?, Arc::clone(&self.0));
        let (handle, watch) = Watch::channel();
        let task = tokio::spawn(async move {
            loop {
                let signal = real.next().await;
                if passes.swap(false, Ordering::AcqRel) {
                    match signal {
                        Signal::Handed(handed) => handle.hand(handed),
                        _ => handle.wake(),
                    }
                }
            }
        });
        Ok(watch.on_drop(move || task.abort()))
    }
}

/// Waiters without places, by their tokens.
#[derive(Default)]
struct LightestFirst(Shared<HashMap<OwnerToken, Listener>>);

struct Listener {
    name: LockName,
    weight: u32,
    /// `None` once it was granted.
    handle: Option<WakeHandle>,
}

#[async_trait]
impl Twist for LightestFirst {
    async fn take_permits(&self, inner: &Inner, request: &PermitRequest) -> Result<Acquisition> {
        let lock = request.lock.clone().with_queue(Queueing::None);
        let answer = inner.permits()?.acquire(&request.clone().with_lock(lock)).await?;
        match (&answer, self.0.lock().get_mut(&request.lock.token)) {
            (Acquisition::Busy(_), Some(listener)) => listener.weight = request.share.weight,
            (Acquisition::Granted(_), Some(listener)) => listener.handle = None,
            (_, None) => {}
        }
        Ok(answer)
    }

    async fn release_permits(&self, inner: &Inner, hold: &PermitHold) -> Result<Released> {
        let released = inner.permits()?.release(hold).await?;
        let waiters = self.0.lock();
        let mut waiters: Vec<_> = waiters.values().filter(|waiter| waiter.name == hold.name).collect();
        waiters.sort_by_key(|waiter| waiter.weight);
        waiters.iter().filter_map(|waiter| waiter.handle.as_ref()).for_each(WakeHandle::wake);
        Ok(released)
    }

    async fn watch_permits(&self, inner: &Inner, hold: &PermitHold) -> Result<Watch> {
        let real = inner.permits()?.watch(hold).await?;
        let (handle, watch) = Watch::channel();
        self.0.lock().insert(hold.token, Listener { name: hold.name.clone(), weight: 0, handle: Some(handle) });
        Ok(watch.on_drop(move || drop(real)))
    }
}
