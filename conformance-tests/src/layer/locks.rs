//! The driver traits through the layer.

use std::sync::Arc;

use async_trait::async_trait;
use tenure_core::driver::{
    AcquireRequest, Acquisition, DistributedLock, ErrorExt as _, Exited, ForceReleased, Hold, Inspection,
    LockCapabilities, ReentrantCapabilities, ReentrantEntry, ReentrantHold, ReentrantLock, Released, Renewed, Signal,
    Ttl, Watch,
};
use tenure_core::{FencingToken, LockName, OwnerId, OwnerToken, Result};

use super::{Answer, FaultLayer, Op};

#[derive(Debug)]
pub(super) struct LayeredLocks {
    inner: Arc<dyn DistributedLock>,
    layer: FaultLayer,
}

#[derive(Debug)]
pub(super) struct LayeredReentrant {
    inner: Arc<dyn ReentrantLock>,
    layer: FaultLayer,
}

impl LayeredLocks {
    pub(super) fn new(inner: Arc<dyn DistributedLock>, layer: FaultLayer) -> Self {
        Self { inner, layer }
    }
}

impl LayeredReentrant {
    pub(super) fn new(inner: Arc<dyn ReentrantLock>, layer: FaultLayer) -> Self {
        Self { inner, layer }
    }
}

/// Logs a request, sends it, logs the answer.
macro_rules! send {
    ($self:ident, $op:expr, $name:expr, $token:expr, $judge:expr, |$inner:ident| $call:expr, $($arg:ident),*) => {{
        let frame = $self.layer.begin($op, $name, $token);
        let inner = Arc::clone(&$self.inner);
        $(let $arg = $arg.clone();)*
        let answer = $self.layer.send($op, move || {
            let $inner = Arc::clone(&inner);
            $(let $arg = $arg.clone();)*
            async move { $call }
        }).await;
        $self.layer.end(frame, answer.as_ref().map_or_else(|error| Answer::Failed(error.kind()), $judge));
        answer
    }};
}
pub(super) use send;

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl DistributedLock for LayeredLocks {
    fn driver(&self) -> &'static str {
        self.inner.driver()
    }

    fn capabilities(&self) -> LockCapabilities {
        self.inner.capabilities()
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquisition> {
        let token = Some(request.token);
        send!(self, Op::Acquire, &request.name, token, granted, |inner| inner.acquire(&request).await, request)
    }

    async fn renew(&self, ttl: Ttl, holds: &[Hold]) -> Vec<Result<Renewed>> {
        let frames: Vec<usize> =
            holds.iter().map(|hold| self.layer.begin(Op::Renew, &hold.name, Some(hold.token))).collect();
        let (inner, owned) = (Arc::clone(&self.inner), holds.to_vec());
        let sent = self.layer.send(Op::Renew, move || {
            let (inner, owned) = (Arc::clone(&inner), owned.clone());
            async move { Ok(inner.renew(ttl, &owned).await) }
        });
        spread(&self.layer, &frames, sent.await)
    }

    async fn release(&self, hold: &Hold) -> Result<Released> {
        send!(self, Op::Release, &hold.name, Some(hold.token), released, |inner| inner.release(&hold).await, hold)
    }

    async fn abandon(&self, hold: &Hold) -> Result<()> {
        send!(self, Op::Abandon, &hold.name, Some(hold.token), done, |inner| inner.abandon(&hold).await, hold)
    }

    async fn watch(&self, name: &LockName, token: &OwnerToken) -> Result<Watch> {
        let answer =
            send!(self, Op::Watch, name, Some(*token), done, |inner| inner.watch(&name, &token).await, name, token);
        answer.map(|inner| pump(self.layer.clone(), inner))
    }

    async fn inspect(&self, name: &LockName) -> Result<Inspection> {
        send!(self, Op::Inspect, name, None, done, |inner| inner.inspect(&name).await, name)
    }

    async fn force_release(&self, name: &LockName, expected: Option<FencingToken>) -> Result<ForceReleased> {
        send!(self, Op::ForceRelease, name, None, done, |inner| inner.force_release(&name, expected).await, name)
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl ReentrantLock for LayeredReentrant {
    fn capabilities(&self) -> ReentrantCapabilities {
        self.inner.capabilities()
    }

    async fn enter(&self, owner: &OwnerId, request: &AcquireRequest) -> Result<Acquisition> {
        let token = Some(request.token);
        send!(
            self,
            Op::Enter,
            &request.name,
            token,
            granted,
            |inner| inner.enter(&owner, &request).await,
            owner,
            request
        )
    }

    async fn renew(&self, ttl: Ttl, holds: &[ReentrantHold]) -> Vec<Result<Renewed>> {
        let frames: Vec<usize> = holds.iter().map(|hold| self.layer.begin(Op::RenewEntry, &hold.name, None)).collect();
        let (inner, owned) = (Arc::clone(&self.inner), holds.to_vec());
        let sent = self.layer.send(Op::RenewEntry, move || {
            let (inner, owned) = (Arc::clone(&inner), owned.clone());
            async move { Ok(inner.renew(ttl, &owned).await) }
        });
        spread(&self.layer, &frames, sent.await)
    }

    async fn exit(&self, hold: &ReentrantEntry) -> Result<Exited> {
        let judge = |answer: &Exited| if *answer == Exited::NotHeld { Answer::NotHeld } else { Answer::Done };
        send!(self, Op::Exit, &hold.name, Some(hold.token), judge, |inner| inner.exit(&hold).await, hold)
    }

    async fn abandon(&self, hold: &ReentrantEntry) -> Result<()> {
        send!(self, Op::AbandonEntry, &hold.name, Some(hold.token), done, |inner| inner.abandon(&hold).await, hold)
    }
}

pub(super) fn granted(answer: &Acquisition) -> Answer {
    match answer {
        Acquisition::Granted(grant) => Answer::Granted(grant.fence),
        Acquisition::Busy(_) => Answer::Busy,
    }
}

pub(super) fn done<T>(_: &T) -> Answer {
    Answer::Done
}

pub(super) fn released(answer: &Released) -> Answer {
    match answer {
        Released::Released => Answer::Done,
        Released::NotHeld => Answer::NotHeld,
    }
}

/// The answers of a batch; a failure of the whole is a failure of each.
pub(super) fn spread(layer: &FaultLayer, frames: &[usize], sent: Result<Vec<Result<Renewed>>>) -> Vec<Result<Renewed>> {
    let answers = sent.unwrap_or_else(|error| frames.iter().map(|_| Err(error.again())).collect());
    for (&frame, answer) in frames.iter().zip(&answers) {
        let reported = match answer {
            Ok(Renewed::Extended { .. }) => Answer::Done,
            Ok(Renewed::Lost) => Answer::NotHeld,
            Err(error) => Answer::Failed(error.kind()),
        };
        layer.end(frame, reported);
    }
    answers
}

/// Counts the wake-ups on their way, and keeps those back that are muted.
pub(super) fn pump(layer: FaultLayer, mut inner: Watch) -> Watch {
    let (handle, outer) = Watch::channel();
    let task = tokio::spawn(async move {
        loop {
            let signal = inner.next().await;
            if layer.wake() {
                match signal {
                    Signal::Handed(handed) => handle.hand(handed),
                    _ => handle.wake(),
                }
            }
        }
    });
    outer.on_drop(move || task.abort())
}
