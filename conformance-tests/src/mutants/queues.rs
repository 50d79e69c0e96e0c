//! Mutants of waiting: queues, wake-ups, caps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::driver::{
    AcquireRequest, Acquisition, Busy, Handing, Hold, Queueing, Released, Renewed, Signal, Ttl, WakeHandle, Watch,
};
use tenure_core::{Error, ErrorKind, LockName, OwnerToken, Result};

use super::maker::{Mutant, mutant};
use super::twist::{Inner, Shared, Twist, flaw, restless, silent};

#[rustfmt::skip]
pub(super) const MUTANTS: &[Mutant] = &[
    mutant!("queue/ignored", "there is no queue: the first client to ask has the lock",
        Ignored::new(Wakes::All), ["fifo/asking-again-keeps-the-place", "fifo/no-barging"]),
    mutant!("queue/lifo", "the last waiter is woken first",
        Ignored::new(Wakes::Last), ["fifo/asking-again-keeps-the-place", "fifo/sixteen-in-order"]),
    mutant!("queue/try-joins", "an attempt that does not wait leaves a waiter",
        flaw!(acquire(inner, request) => {
            let queue = match request.queue {
                Queueing::None => Queueing::Join { presence: Duration::from_secs(20), accepts: Handing::Asked },
                join => join,
            };
            inner.locks().acquire(&request.clone().with_queue(queue)).await
        }), ["wait/try-leaves-no-waiter"]),
    mutant!("queue/dead-stay", "a waiter that died keeps its place",
        Presence(100.0), ["fifo/dead-waiter-lapses"]),
    mutant!("queue/ghost", "a waiter that is granted the lock leaves a place behind in the queue",
        Ghost::default(), ["fifo/vanished-client-leaves-no-ghost", "force/frees-what-a-vanished-client-left"]),
    mutant!("queue/lapses-early", "a waiter lapses before its presence has passed",
        Presence(0.1), ["fifo/long-wait-keeps-the-place"]),
    mutant!("queue/no-cap", "a full queue takes every waiter",
        flaw!(acquire(inner, request) => {
            match inner.locks().acquire(request).await {
                Err(error) if error.kind() == ErrorKind::LimitReached => {
                    Ok(Acquisition::Busy(Busy::default().with_position(Some(1_000))))
                }
                answer => answer,
            }
        }), ["fifo/full-queue-refuses"]),
    mutant!("queue/asking-again-moves-back", "a waiter that asks again goes to the end",
        MovesBack::default(), ["all/opposite-orders-do-not-deadlock", "lock/contended-counter-loses-nothing"]),
    mutant!("queue/own-client-first", "waiters of the client that releases go before all others",
        Ignored::new(Wakes::OwnFirst), ["relay/others-get-their-turn"]),
    mutant!("queue/position-off-by-one", "waiters count themselves",
        flaw!(acquire(inner, request) => {
            Ok(match inner.locks().acquire(request).await? {
                Acquisition::Busy(busy) => Acquisition::Busy(busy.with_position(busy.position.map(|at| at + 1))),
                granted => granted,
            })
        }), ["fifo/position-is-reported"]),
    mutant!("wake/never", "no waiter is woken",
        flaw!(watch(inner, name, token) => inner.locks().watch(name, token).await.map(silent)),
        ["fifo/timed-out-waiter-leaves", "lock/contended-counter-loses-nothing", "wait/woken-by-the-release"]),
    mutant!("wake/all", "a release wakes all waiters",
        flaw!(waiting: Shared<Vec<(LockName, WakeHandle)>>;
            watch(inner, name, token) => {
                let real = inner.locks().watch(name, token).await?;
                let (handle, watch) = Watch::channel();
                waiting.lock().push((name.clone(), handle));
                Ok(watch.on_drop(move || drop(real)))
            },
            release(inner, hold) => {
                let released = inner.locks().release(hold).await?;
                let waiting = waiting.lock();
                waiting.iter().filter(|(name, _)| *name == hold.name).for_each(|(_, handle)| handle.wake());
                Ok(released)
            },
        ), ["fifo/one-is-woken-per-release", "force/wakes-the-first-waiter"]),
    mutant!("wake/all-the-time", "waiters are woken every 20 ms",
        flaw!(watch(inner, name, token) => inner.locks().watch(name, token).await.map(restless)),
        ["wait/idle-waiting-does-not-poll", "window/grant-learned-late-counts-from-its-request"]),
    mutant!("wake/no-recheck", "waiters do not learn when the lease ends, and none is woken",
        flaw!(acquire(inner, request) => {
            Ok(match inner.locks().acquire(request).await? {
                Acquisition::Busy(busy) => Acquisition::Busy(busy.with_recheck_after(None)),
                granted => granted,
            })
        }, watch(inner, name, token) => inner.locks().watch(name, token).await.map(silent)),
        ["lock/expired-holder-cannot-release", "lock/stale-guard-of-the-same-handle"]),
    mutant!("link/cut-for-good", "connections that were cut are not opened again",
        CutForGood::default(), ["server/cut-connections-are-replaced"]),
];

#[derive(Clone, Copy)]
enum Wakes {
    All,
    Last,
    /// Those of the client that releases; the others a second later.
    OwnFirst,
}

/// Waiters leave no trace at the driver below; they are woken from here.
struct Ignored {
    wakes: Wakes,
    waiting: Shared<Vec<(LockName, usize, WakeHandle)>>,
}

impl Ignored {
    fn new(wakes: Wakes) -> Self {
        Self { wakes, waiting: Shared::default() }
    }
}

#[async_trait]
impl Twist for Ignored {
    async fn acquire(&self, inner: &Inner, request: &AcquireRequest) -> Result<Acquisition> {
        inner.locks().acquire(&request.clone().with_queue(Queueing::None)).await
    }

    async fn watch(&self, inner: &Inner, name: &LockName, _token: &OwnerToken) -> Result<Watch> {
        let (handle, watch) = Watch::channel();
        self.waiting.lock().push((name.clone(), inner.client(), handle));
        Ok(watch)
    }

    async fn release(&self, inner: &Inner, hold: &Hold) -> Result<Released> {
        let released = inner.locks().release(hold).await?;
        let mut waiting = self.waiting.lock();
        if let Wakes::Last = self.wakes {
            let last = waiting.iter().rposition(|(name, ..)| *name == hold.name);
            last.into_iter().for_each(|at| waiting.remove(at).2.wake());
            return Ok(released);
        }
        for (_, client, handle) in waiting.iter().filter(|(name, ..)| *name == hold.name) {
            if matches!(self.wakes, Wakes::All) || *client == inner.client() {
                handle.wake();
            } else {
                let handle = handle.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    handle.wake();
                });
            }
        }
        Ok(released)
    }
}

/// A cut is known by waiters that are woken without a release.
#[derive(Default)]
struct CutForGood {
    released: AtomicBool,
    cut: Arc<AtomicBool>,
}

impl CutForGood {
    fn check(&self) -> Result<()> {
        let gone = || Error::new(ErrorKind::Unavailable, "the connection was cut");
        if self.cut.load(Ordering::Relaxed) { Err(gone()) } else { Ok(()) }
    }
}

#[async_trait]
impl Twist for CutForGood {
    async fn acquire(&self, inner: &Inner, request: &AcquireRequest) -> Result<Acquisition> {
        self.check()?;
        inner.locks().acquire(request).await
    }

    async fn renew(&self, inner: &Inner, ttl: Ttl, holds: &[Hold]) -> Vec<Result<Renewed>> {
        match self.check() {
            Ok(()) => inner.locks().renew(ttl, holds).await,
            Err(_) => holds.iter().map(|_| self.check().map(|()| Renewed::Lost)).collect(),
        }
    }

    async fn release(&self, inner: &Inner, hold: &Hold) -> Result<Released> {
        self.check()?;
        self.released.store(true, Ordering::Relaxed);
        inner.locks().release(hold).await
    }

    async fn watch(&self, inner: &Inner, name: &LockName, token: &OwnerToken) -> Result<Watch> {
        self.check()?;
        let mut real = inner.locks().watch(name, token).await?;
        let (handle, watch) = Watch::channel();
        let (released, cut) = (self.released.load(Ordering::Relaxed), Arc::clone(&self.cut));
        let listening = tokio::spawn(async move {
            loop {
                match real.next().await {
                    Signal::Handed(handed) => handle.hand(handed),
                    _ => {
                        cut.fetch_or(!released, Ordering::Relaxed);
                        handle.wake();
                    }
                }
            }
        });
        Ok(watch.on_drop(move || listening.abort()))
    }
}

#[derive(Default)]
struct Ghost {
    waited: Shared<Vec<OwnerToken>>,
}

#[async_trait]
impl Twist for Ghost {
    async fn acquire(&self, inner: &Inner, request: &AcquireRequest) -> Result<Acquisition> {
        let answer = inner.locks().acquire(request).await?;
        let waited = {
            let mut waited = self.waited.lock();
            match answer {
                Acquisition::Busy(_) => {
                    waited.push(request.token);
                    false
                }
                Acquisition::Granted(_) => waited.contains(&request.token),
            }
        };
        if waited {
            let queue = Queueing::Join { presence: Duration::from_secs(20), accepts: Handing::Asked };
            inner.locks().acquire(&request.clone().with_token(OwnerToken::random()).with_queue(queue)).await?;
        }
        Ok(answer)
    }
}

struct Presence(f64);

#[async_trait]
impl Twist for Presence {
    async fn acquire(&self, inner: &Inner, request: &AcquireRequest) -> Result<Acquisition> {
        let queue = match request.queue {
            Queueing::Join { presence, accepts } => Queueing::Join { presence: presence.mul_f64(self.0), accepts },
            none => none,
        };
        inner.locks().acquire(&request.clone().with_queue(queue)).await
    }
}

/// A waiter that asks again is abandoned below, and comes back under another token.
#[derive(Default)]
struct MovesBack(Shared<Vec<(OwnerToken, OwnerToken)>>);

#[async_trait]
impl Twist for MovesBack {
    async fn acquire(&self, inner: &Inner, request: &AcquireRequest) -> Result<Acquisition> {
        let alias = |fresh: Option<OwnerToken>| {
            let mut all = self.0.lock();
            let known = all.iter().rposition(|(token, _)| *token == request.token).map(|at| all[at].1);
            if let Some(fresh) = fresh {
                all.push((request.token, fresh));
            }
            known.unwrap_or(request.token)
        };
        let with = |token| request.clone().with_token(token);
        let current = alias(None);
        match inner.locks().acquire(&with(current)).await? {
            Acquisition::Busy(busy) if request.queue != Queueing::None && busy.position.is_some_and(|at| at > 0) => {
                inner.locks().abandon(&Hold::new(request.name.clone(), current)).await?;
                let fresh = OwnerToken::random();
                alias(Some(fresh));
                inner.locks().acquire(&with(fresh)).await
            }
            answer => Ok(answer),
        }
    }
}
