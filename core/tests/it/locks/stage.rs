//! A driver for tests that plays back what it is told, with both traits.

#![allow(dead_code, reason = "each test program uses some of it")]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::driver::{
    AcquireRequest, Acquisition, Backend, Begun, Busy, DistributedLock, Exclusion, Exited, Fencing, ForceReleased,
    Grant, Handing, Hold, Inspection, Introspection, LockCapabilities, OwnerScope, Queueing, ReentrantCapabilities,
    ReentrantEntry, ReentrantHold, ReentrantLock, Released, Renewed, Revocation, Ttl, TtlRange, Waiting, WakeRouter,
    Watch,
};
use tenure_core::{Client, ClientBuilder, Error, ErrorKind, FencingToken, LockName, OwnerId, OwnerToken, Result};
use tokio::time::{Instant, sleep};

pub(crate) const TTL: Duration = Duration::from_secs(30);

/// What a call does. Without a step, it succeeds at once.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Grant,
    GrantEarlier,
    Busy,
    Fail(ErrorKind),
    Slow(Duration),
    Lost,
}

/// Plays back steps for each kind of call, and notes what came.
#[derive(Debug, Default)]
pub(crate) struct Stage {
    pub(crate) acquire: Mutex<VecDeque<Step>>,
    pub(crate) renew: Mutex<VecDeque<Step>>,
    pub(crate) release: Mutex<VecDeque<Step>>,
    pub(crate) abandon: Mutex<VecDeque<Step>>,
    pub(crate) close: Mutex<VecDeque<Step>>,
    /// Names whose releases are always refused begin with this.
    pub(crate) refused: Option<&'static str>,
    /// Requests for a lock whose name begins with this never reach the backend.
    pub(crate) unreached: Option<&'static str>,
    pub(crate) frames: Mutex<Vec<(&'static str, OwnerToken)>>,
    pub(crate) wakes: WakeRouter,
    /// The tokens that take a lock without asking.
    pub(crate) direct: Mutex<Vec<OwnerToken>>,
    pub(crate) started: OnceLock<Instant>,
    /// The most fences that a grant carries; 0 is as good as 1.
    pub(crate) range: u32,
    /// So many fences a grant has beyond those that were asked for.
    pub(crate) unasked: u32,
    /// How many leases each request was to renew.
    pub(crate) batches: Mutex<Vec<usize>>,
    /// How many fences each request asked for.
    pub(crate) fences: Mutex<Vec<u32>>,
    /// Nobody is told anything: waiters have to ask.
    pub(crate) polls: bool,
    /// Whoever wants to listen for wake-ups gets no answer.
    pub(crate) deaf: bool,
    /// How often somebody wanted to.
    pub(crate) watches: Mutex<usize>,
}

pub(crate) fn steps(steps: impl IntoIterator<Item = Step>) -> Mutex<VecDeque<Step>> {
    Mutex::new(steps.into_iter().collect())
}

impl Stage {
    pub(crate) fn client(self) -> (Arc<Self>, Client) {
        self.client_with(|builder| builder)
    }

    pub(crate) fn client_with(self, set: impl FnOnce(ClientBuilder) -> ClientBuilder) -> (Arc<Self>, Client) {
        let stage = Arc::new(self);
        let backend = Backend::new(Arc::clone(&stage) as Arc<dyn DistributedLock>)
            .with_reentrant(Arc::clone(&stage) as Arc<dyn ReentrantLock>);
        (stage, set(Client::builder(backend)).build().unwrap())
    }

    pub(crate) fn sent(&self, what: &str) -> Vec<OwnerToken> {
        self.frames.lock().unwrap().iter().filter(|frame| frame.0 == what).map(|frame| frame.1).collect()
    }

    /// The backend's clock.
    pub(crate) fn time(&self) -> Duration {
        Duration::from_secs(1_000) + self.started.get_or_init(Instant::now).elapsed()
    }

    async fn play(&self, what: &'static str, token: &OwnerToken, script: &Mutex<VecDeque<Step>>) -> Option<Step> {
        self.frames.lock().unwrap().push((what, *token));
        let step = script.lock().unwrap().pop_front();
        if let Some(Step::Slow(time)) = step {
            sleep(time).await;
        }
        step
    }

    async fn give(&self, request: &AcquireRequest) -> Result<Acquisition> {
        if matches!(request.queue, Queueing::Join { accepts: Handing::Direct, .. }) {
            self.direct.lock().unwrap().push(request.token);
        }
        let step = self.play("acquire", &request.token, &self.acquire).await;
        let begun = match step {
            Some(Step::Fail(kind)) => return Err(Error::new(kind, "scripted")),
            Some(Step::Busy) => {
                let answered_at = Some(self.time());
                return Ok(Acquisition::Busy(Busy::default().with_position(Some(0)).with_answered_at(answered_at)));
            }
            Some(Step::GrantEarlier) => Begun::Earlier,
            _ => Begun::Now,
        };
        self.fences.lock().unwrap().push(request.fences);
        let (fence, fences) = (FencingToken::new(7).unwrap(), request.fences + self.unasked);
        Ok(Acquisition::Granted(Grant::new(fence, request.ttl.get()).with_begun(begun).with_fences(fences)))
    }

    async fn extend(&self, token: &OwnerToken, ttl: Duration) -> Result<Renewed> {
        let step = self.play("renew", token, &self.renew).await;
        self.frames.lock().unwrap().push(("renewed", *token));
        match step {
            Some(Step::Fail(kind)) => Err(Error::new(kind, "scripted")),
            Some(Step::Lost) => Ok(Renewed::Lost),
            _ => Ok(Renewed::Extended { ttl }),
        }
    }

    /// Whether it was held.
    async fn end(&self, name: &LockName, token: &OwnerToken) -> Result<bool> {
        let step = self.play("release", token, &self.release).await;
        if self.refused.is_some_and(|start| name.as_bytes().starts_with(start.as_bytes())) {
            return Err(Error::new(ErrorKind::Denied, "scripted"));
        }
        match step {
            Some(Step::Fail(kind)) => Err(Error::new(kind, "scripted")),
            Some(Step::Lost) => Ok(false),
            _ => Ok(true),
        }
    }
}

#[async_trait]
impl DistributedLock for Stage {
    fn driver(&self) -> &'static str {
        "stage"
    }

    fn capabilities(&self) -> LockCapabilities {
        LockCapabilities::new(
            Exclusion::Process,
            Fencing::Strict,
            if self.polls { Waiting::Poll } else { Waiting::Fifo },
            TtlRange { min: Duration::from_millis(10), max: TTL * 2, granularity: Duration::from_millis(1) },
        )
        .with_introspection(Introspection::None)
        .with_revocation(Revocation::None)
        .with_renew_batch(10)
        .with_max_fences(self.range.max(1))
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquisition> {
        if self.unreached.is_some_and(|name| request.name.as_bytes().starts_with(name.as_bytes())) {
            return Err(Error::new(ErrorKind::Unavailable, "scripted"));
        }
        self.give(request).await
    }

    async fn renew(&self, ttl: Ttl, holds: &[Hold]) -> Vec<Result<Renewed>> {
        self.batches.lock().unwrap().push(holds.len());
        let mut answers = Vec::new();
        for hold in holds {
            answers.push(self.extend(&hold.token, ttl.get()).await);
        }
        answers
    }

    async fn release(&self, hold: &Hold) -> Result<Released> {
        let held = self.end(&hold.name, &hold.token).await?;
        Ok(if held { Released::Released } else { Released::NotHeld })
    }

    async fn abandon(&self, hold: &Hold) -> Result<()> {
        match self.play("abandon", &hold.token, &self.abandon).await {
            Some(Step::Fail(kind)) => Err(Error::new(kind, "scripted")),
            _ => Ok(()),
        }
    }

    async fn watch(&self, _name: &LockName, token: &OwnerToken) -> Result<Watch> {
        *self.watches.lock().unwrap() += 1;
        if self.deaf {
            std::future::pending::<()>().await;
        }
        Ok(self.wakes.register(*token))
    }

    async fn inspect(&self, _name: &LockName) -> Result<Inspection> {
        Err(Error::new(ErrorKind::Unsupported, "scripted"))
    }

    async fn force_release(&self, _: &LockName, _: Option<FencingToken>) -> Result<ForceReleased> {
        Err(Error::new(ErrorKind::Unsupported, "scripted"))
    }

    async fn close(&self) {
        self.play("close", &OwnerToken::random(), &self.close).await;
    }
}

#[async_trait]
impl ReentrantLock for Stage {
    fn capabilities(&self) -> ReentrantCapabilities {
        ReentrantCapabilities::new(OwnerScope::Process, 10)
    }

    async fn enter(&self, _owner: &OwnerId, request: &AcquireRequest) -> Result<Acquisition> {
        self.give(request).await
    }

    async fn renew(&self, ttl: Ttl, holds: &[ReentrantHold]) -> Vec<Result<Renewed>> {
        let mut answers = Vec::new();
        for _ in holds {
            answers.push(self.extend(&OwnerToken::random(), ttl.get()).await);
        }
        answers
    }

    async fn exit(&self, hold: &ReentrantEntry) -> Result<Exited> {
        let held = self.end(&hold.name, &hold.token).await?;
        Ok(if held { Exited::Released } else { Exited::NotHeld })
    }

    async fn abandon(&self, hold: &ReentrantEntry) -> Result<()> {
        match self.play("abandon", &hold.token, &self.abandon).await {
            Some(Step::Fail(kind)) => Err(Error::new(kind, "scripted")),
            _ => Ok(()),
        }
    }
}
