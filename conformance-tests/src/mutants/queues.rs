//! Mutants of waiting: queues, wake-ups, caps.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::driver::{
    AcquireRequest, Acquisition, Busy, Handing, Hold, Queueing, Released, Renewed, Signal, Ttl, WakeHandle, Watch,
};
use tenure_core::{Error, ErrorKind, LockName, OwnerToken, Result};

use super::maker::{Mutant, mutant};
use super::twist::{Inner, Twist};

pub(super) const MUTANTS: &[Mutant] = &[
    mutant!(
        "queue/ignored",
        "nobody queues: whoever asks first has the lock",
        || Arc::new(Ignored::new(Wakes::All)),
        ["fifo/asking-again-keeps-the-place", "fifo/nobody-barges"]
    ),
    mutant!(
        "queue/lifo",
        "the last who came is woken first",
        || Arc::new(Ignored::new(Wakes::Last)),
        ["fifo/asking-again-keeps-the-place", "fifo/sixteen-in-order"]
    ),
    mutant!(
        "queue/try-joins",
        "an attempt that does not wait leaves a waiter",
        || Arc::new(TryJoins),
        ["wait/try-leaves-no-waiter"]
    ),
    mutant!(
        "queue/dead-stay",
        "a waiter that died keeps its place",
        || Arc::new(Presence(100.0)),
        ["fifo/dead-waiter-lapses"]
    ),
    mutant!(
        "queue/ghost",
        "a waiter that is granted the lock leaves a place behind in the queue",
        || Arc::new(Ghost::default()),
        ["fifo/vanished-client-leaves-no-ghost", "force/frees-what-a-vanished-client-left"]
    ),
    mutant!(
        "queue/lapses-early",
        "a waiter lapses before its presence has passed",
        || Arc::new(Presence(0.1)),
        ["fifo/long-wait-keeps-the-place"]
    ),
    mutant!("queue/no-cap", "a full queue takes everybody", || Arc::new(NoCap), ["fifo/full-queue-refuses"]),
    mutant!(
        "queue/asking-again-moves-back",
        "a waiter that asks again goes to the end",
        || Arc::new(MovesBack::default()),
        ["all/opposite-orders-do-not-deadlock", "lock/contended-counter-loses-nothing"]
    ),
    mutant!(
        "queue/own-client-first",
        "whoever waits in the client that releases goes before all others",
        || Arc::new(OwnFirst::default()),
        ["relay/others-get-their-turn"]
    ),
    mutant!("queue/position-off-by-one", "waiters count themselves", || Arc::new(OffByOne), ["fifo/position-is-told"]),
    mutant!(
        "wake/never",
        "nobody is woken",
        || Arc::new(NeverWakes),
        ["fifo/timed-out-waiter-leaves", "lock/contended-counter-loses-nothing", "wait/woken-by-the-release"]
    ),
    mutant!(
        "wake/everybody",
        "a release wakes all who wait",
        || Arc::new(WakesAll::default()),
        ["fifo/one-is-woken-per-release", "force/wakes-the-first-waiter"]
    ),
    mutant!(
        "wake/all-the-time",
        "waiters are woken every 20 ms",
        || Arc::new(WakesOften),
        ["wait/idle-waiting-does-not-poll", "window/grant-learned-late-counts-from-its-request"]
    ),
    mutant!(
        "wake/no-recheck",
        "waiters are not told when the lease ends, and nobody is woken",
        || Arc::new(NoRecheck),
        ["lock/expired-holder-cannot-release", "lock/stale-guard-of-the-same-handle"]
    ),
    mutant!(
        "link/cut-for-good",
        "connections that were cut are not opened again",
        || Arc::new(CutForGood::default()),
        ["server/cut-connections-are-replaced"]
    ),
];

#[derive(Clone, Copy)]
enum Wakes {
    All,
    Last,
}

/// Waiters leave no trace at the driver below; they are woken from here.
struct Ignored {
    wakes: Wakes,
    waiting: Mutex<Vec<(LockName, WakeHandle)>>,
}

impl Ignored {
    fn new(wakes: Wakes) -> Self {
        Self { wakes, waiting: Mutex::default() }
    }
}

#[async_trait]
impl Twist for Ignored {
    async fn acquire(&self, inner: &Inner, request: &AcquireRequest) -> Result<Acquisition> {
        inner.locks().acquire(&request.clone().with_queue(Queueing::None)).await
    }

    async fn watch(&self, _inner: &Inner, name: &LockName, _token: &OwnerToken) -> Result<Watch> {
        let (handle, watch) = Watch::channel();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push((name.clone(), handle));
        Ok(watch)
    }

    async fn release(&self, inner: &Inner, hold: &Hold) -> Result<Released> {
        let released = inner.locks().release(hold).await?;
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        match self.wakes {
            Wakes::All => waiting.iter().filter(|(name, _)| *name == hold.name).for_each(|(_, handle)| handle.wake()),
            Wakes::Last => {
                if let Some(at) = waiting.iter().rposition(|(name, _)| *name == hold.name) {
                    waiting.remove(at).1.wake();
                }
            }
        }
        Ok(released)
    }
}

/// Waiters leave no trace at the driver below; a release wakes those of its own client, and the others much later.
#[derive(Default)]
struct OwnFirst(Mutex<Vec<(LockName, usize, WakeHandle)>>);

#[async_trait]
impl Twist for OwnFirst {
    async fn acquire(&self, inner: &Inner, request: &AcquireRequest) -> Result<Acquisition> {
        inner.locks().acquire(&request.clone().with_queue(Queueing::None)).await
    }

    async fn watch(&self, inner: &Inner, name: &LockName, _token: &OwnerToken) -> Result<Watch> {
        let (handle, watch) = Watch::channel();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((name.clone(), inner.client(), handle));
        Ok(watch)
    }

    async fn release(&self, inner: &Inner, hold: &Hold) -> Result<Released> {
        let released = inner.locks().release(hold).await?;
        let waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, client, handle) in waiting.iter().filter(|(name, ..)| *name == hold.name) {
            if *client == inner.client() {
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

/// A cut is known by waiters that are woken though nobody released anything.
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

struct TryJoins;

#[async_trait]
impl Twist for TryJoins {
    async fn acquire(&self, inner: &Inner, request: &AcquireRequest) -> Result<Acquisition> {
        let queue = match request.queue {
            Queueing::None => Queueing::Join { presence: Duration::from_secs(20), accepts: Handing::Asked },
            join => join,
        };
        inner.locks().acquire(&request.clone().with_queue(queue)).await
    }
}

#[derive(Default)]
struct Ghost {
    waited: Mutex<Vec<OwnerToken>>,
}

#[async_trait]
impl Twist for Ghost {
    async fn acquire(&self, inner: &Inner, request: &AcquireRequest) -> Result<Acquisition> {
        let answer = inner.locks().acquire(request).await?;
        let waited = {
            let mut waited = self.waited.lock().unwrap_or_else(PoisonError::into_inner);
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

struct NoCap;

#[async_trait]
impl Twist for NoCap {
    async fn acquire(&self, inner: &Inner, request: &AcquireRequest) -> Result<Acquisition> {
        match inner.locks().acquire(request).await {
            Err(error) if error.kind() == ErrorKind::LimitReached => {
                Ok(Acquisition::Busy(Busy::default().with_position(Some(1_000))))
            }
            answer => answer,
        }
    }
}

/// A waiter that asks again is abandoned below, and comes back under another token.
#[derive(Default)]
struct MovesBack(Mutex<Vec<(OwnerToken, OwnerToken)>>);

#[async_trait]
impl Twist for MovesBack {
    async fn acquire(&self, inner: &Inner, request: &AcquireRequest) -> Result<Acquisition> {
        let alias = |fresh: Option<OwnerToken>| {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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

struct OffByOne;

#[async_trait]
impl Twist for OffByOne {
    async fn acquire(&self, inner: &Inner, request: &AcquireRequest) -> Result<Acquisition> {
        Ok(match inner.locks().acquire(request).await? {
            Acquisition::Busy(busy) => Acquisition::Busy(busy.with_position(busy.position.map(|at| at + 1))),
            granted => granted,
        })
    }
}

/// A watch that keeps the real one and never fires.
async fn silenced(inner: &Inner, name: &LockName, token: &OwnerToken) -> Result<Watch> {
    let real = inner.locks().watch(name, token).await?;
    let (_never, watch) = Watch::channel();
    Ok(watch.on_drop(move || drop(real)))
}

struct NeverWakes;

#[async_trait]
impl Twist for NeverWakes {
    async fn watch(&self, inner: &Inner, name: &LockName, token: &OwnerToken) -> Result<Watch> {
        silenced(inner, name, token).await
    }
}

#[derive(Default)]
struct WakesAll(Mutex<Vec<(LockName, WakeHandle)>>);

#[async_trait]
impl Twist for WakesAll {
    async fn watch(&self, inner: &Inner, name: &LockName, token: &OwnerToken) -> Result<Watch> {
        let real = inner.locks().watch(name, token).await?;
        let (handle, watch) = Watch::channel();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((name.clone(), handle));
        Ok(watch.on_drop(move || drop(real)))
    }

    async fn release(&self, inner: &Inner, hold: &Hold) -> Result<Released> {
        let released = inner.locks().release(hold).await?;
        let waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.iter().filter(|(name, _)| *name == hold.name).for_each(|(_, handle)| handle.wake());
        Ok(released)
    }
}

struct WakesOften;

#[async_trait]
impl Twist for WakesOften {
    async fn watch(&self, inner: &Inner, name: &LockName, token: &OwnerToken) -> Result<Watch> {
        let real = inner.locks().watch(name, token).await?;
        let (handle, watch) = Watch::channel();
        let task = tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_millis(20)).await;
                handle.wake();
            }
        });
        Ok(watch.on_drop(move || {
            task.abort();
            drop(real);
        }))
    }
}

struct NoRecheck;

#[async_trait]
impl Twist for NoRecheck {
    async fn acquire(&self, inner: &Inner, request: &AcquireRequest) -> Result<Acquisition> {
        Ok(match inner.locks().acquire(request).await? {
            Acquisition::Busy(busy) => Acquisition::Busy(busy.with_recheck_after(None)),
            granted => granted,
        })
    }

    async fn watch(&self, inner: &Inner, name: &LockName, token: &OwnerToken) -> Result<Watch> {
        silenced(inner, name, token).await
    }
}
