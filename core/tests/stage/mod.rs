//! A driver for tests that plays back what it is told, with both traits.

#![allow(dead_code, reason = "each test program uses some of it")]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::driver::{
    AcquireRequest, Acquisition, Backend, Begun, Busy, DistributedLock, Exclusion, Exited, Fencing, ForceReleased,
    Grant, Hold, Inspection, Introspection, LockCapabilities, OwnerScope, ReentrantCapabilities, ReentrantHold,
    ReentrantLock, ReentrantRenewal, Released, Renewal, Renewed, Revocation, TtlRange, Waiting, WakeRouter, Watch,
};
use tenure_core::{Client, Error, ErrorKind, FencingToken, LockName, OwnerId, OwnerToken, Result};
use tokio::time::sleep;

pub(crate) const TTL: Duration = Duration::from_secs(30);

/// What a call does. Without a step, it succeeds at once.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
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
    pub(crate) frames: Mutex<Vec<(&'static str, OwnerToken)>>,
    pub(crate) wakes: WakeRouter,
}

pub(crate) fn steps(steps: impl IntoIterator<Item = Step>) -> Mutex<VecDeque<Step>> {
    Mutex::new(steps.into_iter().collect())
}

impl Stage {
    pub(crate) fn client(self) -> (Arc<Self>, Client) {
        let stage = Arc::new(self);
        let backend = Backend::new(Arc::clone(&stage) as Arc<dyn DistributedLock>)
            .with_reentrant(Arc::clone(&stage) as Arc<dyn ReentrantLock>);
        (stage, Client::new(backend))
    }

    pub(crate) fn sent(&self, what: &str) -> Vec<OwnerToken> {
        self.frames.lock().unwrap().iter().filter(|frame| frame.0 == what).map(|frame| frame.1).collect()
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
        let step = self.play("acquire", &request.token, &self.acquire).await;
        let begun = match step {
            Some(Step::Fail(kind)) => return Err(Error::new(kind, "scripted")),
            Some(Step::Busy) => return Ok(Acquisition::Busy(Busy { position: Some(0), recheck_after: None })),
            Some(Step::GrantEarlier) => Begun::Earlier,
            _ => Begun::Now,
        };
        let fence = FencingToken::new(7).unwrap();
        Ok(Acquisition::Granted(Grant { fence, ttl: request.ttl.get(), begun, depth: 1 }))
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

    async fn end(&self, name: &LockName, token: &OwnerToken) -> Result<()> {
        let step = self.play("release", token, &self.release).await;
        if self.refused.is_some_and(|start| name.as_bytes().starts_with(start.as_bytes())) {
            return Err(Error::new(ErrorKind::Denied, "scripted"));
        }
        match step {
            Some(Step::Fail(kind)) => Err(Error::new(kind, "scripted")),
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl DistributedLock for Stage {
    fn driver(&self) -> &'static str {
        "stage"
    }

    fn capabilities(&self) -> LockCapabilities {
        LockCapabilities {
            exclusion: Exclusion::Process,
            fencing: Fencing::Strict,
            waiting: Waiting::Fifo,
            ttl: TtlRange { min: Duration::from_millis(10), max: TTL * 2, granularity: Duration::from_millis(1) },
            introspection: Introspection::None,
            revocation: Revocation::None,
            max_waiters: None,
            renew_batch: 10,
        }
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquisition> {
        self.give(request).await
    }

    async fn renew(&self, renewals: &[Renewal]) -> Vec<Result<Renewed>> {
        let mut answers = Vec::new();
        for renewal in renewals {
            answers.push(self.extend(&renewal.hold.token, renewal.ttl.get()).await);
        }
        answers
    }

    async fn release(&self, hold: &Hold) -> Result<Released> {
        self.end(&hold.name, &hold.token).await.map(|()| Released::Released)
    }

    async fn abandon(&self, hold: &Hold) -> Result<()> {
        match self.play("abandon", &hold.token, &self.abandon).await {
            Some(Step::Fail(kind)) => Err(Error::new(kind, "scripted")),
            _ => Ok(()),
        }
    }

    async fn watch(&self, _name: &LockName, token: &OwnerToken) -> Result<Watch> {
        Ok(self.wakes.register(*token))
    }

    async fn inspect(&self, _name: &LockName) -> Result<Inspection> {
        Err(Error::new(ErrorKind::Unsupported, "scripted"))
    }

    async fn force_release(&self, _name: &LockName) -> Result<ForceReleased> {
        Err(Error::new(ErrorKind::Unsupported, "scripted"))
    }

    async fn close(&self) {
        self.play("close", &OwnerToken::random(), &self.close).await;
    }
}

#[async_trait]
impl ReentrantLock for Stage {
    fn capabilities(&self) -> ReentrantCapabilities {
        ReentrantCapabilities { scope: OwnerScope::Process, max_depth: 10 }
    }

    async fn enter(&self, _owner: &OwnerId, request: &AcquireRequest) -> Result<Acquisition> {
        self.give(request).await
    }

    async fn renew(&self, renewals: &[ReentrantRenewal]) -> Vec<Result<Renewed>> {
        let mut answers = Vec::new();
        for renewal in renewals {
            answers.push(self.extend(&OwnerToken::random(), renewal.ttl.get()).await);
        }
        answers
    }

    async fn exit(&self, hold: &ReentrantHold) -> Result<Exited> {
        self.end(&hold.name, &hold.token).await.map(|()| Exited::Released)
    }

    async fn abandon(&self, hold: &ReentrantHold) -> Result<()> {
        match self.play("abandon", &hold.token, &self.abandon).await {
            Some(Step::Fail(kind)) => Err(Error::new(kind, "scripted")),
            _ => Ok(()),
        }
    }
}
