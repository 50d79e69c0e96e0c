//! A client's way to one node: every request is on its own, and may be late, lost, repeated, or go unanswered.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::driver::{
    AcquireRequest, Acquisition, Ballot, DistributedLock, Doctor, Electorate, ForceReleased, Hold, Inspection,
    LockCapabilities, QuorumNode, Raised, Released, Renewed, Ttl, Vote, Watch,
};
use tenure_core::{Error, ErrorKind, FencingToken, LockName, OwnerToken, Result};
use tenure_memory::MemoryDriver;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use crate::simulation::rng::Rng;

#[derive(Debug)]
pub(crate) struct Way {
    store: MemoryDriver,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    rng: Rng,
    /// How many requests in a thousand meet each fault.
    trouble: u64,
    silent_until: Instant,
}

impl Way {
    pub(crate) fn new(store: &MemoryDriver, rng: Rng, trouble: u64) -> Arc<Self> {
        let state = Mutex::new(State { rng, trouble, silent_until: Instant::now() });
        Arc::new(Self { store: store.another_client(), state })
    }

    /// Loses everything for a while.
    pub(crate) fn silence(&self, span: Duration) {
        self.state.lock().unwrap().silent_until = Instant::now() + span;
    }

    /// Carries a request. What was sent arrives even if nobody waits for the answer any more.
    async fn carry<T: Send + 'static, F>(&self, call: impl Fn(MemoryDriver) -> F + Send + Sync + 'static) -> Result<T>
    where
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let (there, back, lost, unheard, repeat) = {
            let mut state = self.state.lock().unwrap();
            let trouble = state.trouble;
            if state.rng.in_thousand(trouble / 2) {
                return Err(Error::new(ErrorKind::Unavailable, "refused"));
            }
            let silent = state.silent_until > Instant::now();
            let mut late = || {
                let most = if state.rng.in_thousand(trouble) { 700 } else { 4 };
                Duration::from_millis(state.rng.below(most))
            };
            let (there, back) = (late(), late());
            let lost = silent || state.rng.in_thousand(trouble);
            let unheard = state.rng.in_thousand(trouble);
            let repeat = state.rng.in_thousand(trouble).then(|| Duration::from_millis(state.rng.below(1500)));
            (there, back, lost, unheard, repeat)
        };
        if lost {
            std::future::pending::<()>().await;
        }
        let store = self.store.clone();
        let (tell, reported) = oneshot::channel();
        tokio::spawn(async move {
            sleep(there).await;
            let answer = call(store.clone()).await;
            let again = repeat.map(|after| async move {
                sleep(after).await;
                let _ = call(store).await;
            });
            sleep(back).await;
            let _ = tell.send(answer);
            if let Some(again) = again {
                again.await;
            }
        });
        match reported.await {
            Ok(answer) if !unheard => answer,
            _ => Err(Error::new(ErrorKind::Indeterminate, "the answer was lost")),
        }
    }
}

#[async_trait]
impl DistributedLock for Way {
    fn driver(&self) -> &'static str {
        "way"
    }

    fn capabilities(&self) -> LockCapabilities {
        self.store.capabilities()
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquisition> {
        let request = request.clone();
        self.carry(move |store| acquire(store, request.clone())).await
    }

    async fn renew(&self, ttl: Ttl, holds: &[Hold]) -> Vec<Result<Renewed>> {
        let (count, holds) = (holds.len(), holds.to_vec());
        let answer = self.carry(move |store| {
            let holds = holds.clone();
            async move { Ok(store.renew(ttl, &holds).await) }
        });
        match answer.await {
            Ok(answers) => answers,
            Err(error) => (0..count).map(|_| Err(Error::new(error.kind(), "not renewed"))).collect(),
        }
    }

    async fn release(&self, hold: &Hold) -> Result<Released> {
        let hold = hold.clone();
        self.carry(move |store| {
            let hold = hold.clone();
            async move { store.release(&hold).await }
        })
        .await
    }

    async fn abandon(&self, hold: &Hold) -> Result<()> {
        let hold = hold.clone();
        self.carry(move |store| {
            let hold = hold.clone();
            async move { store.abandon(&hold).await }
        })
        .await
    }

    async fn watch(&self, name: &LockName, token: &OwnerToken) -> Result<Watch> {
        self.store.watch(name, token).await
    }

    async fn inspect(&self, name: &LockName) -> Result<Inspection> {
        self.store.inspect(name).await
    }

    async fn force_release(&self, name: &LockName, expected: Option<FencingToken>) -> Result<ForceReleased> {
        self.store.force_release(name, expected).await
    }

    async fn close(&self) {
        self.store.close().await;
    }
}

#[async_trait]
impl QuorumNode for Way {
    async fn vote(&self, ballot: &Ballot) -> Result<Vote> {
        let ballot = ballot.clone();
        self.carry(move |store| {
            let ballot = ballot.clone();
            async move { store.vote(&ballot).await }
        })
        .await
    }

    async fn raise(&self, hold: &Hold, fence: FencingToken) -> Result<Raised> {
        let hold = hold.clone();
        self.carry(move |store| {
            let hold = hold.clone();
            async move { store.raise(&hold, fence).await }
        })
        .await
    }

    async fn enroll(&self, electorate: &Electorate) -> Result<()> {
        self.store.enroll(electorate).await
    }

    fn identity(&self) -> Option<String> {
        None
    }

    fn doctor(&self) -> Option<Arc<dyn Doctor>> {
        self.store.doctor()
    }
}

async fn acquire(store: MemoryDriver, request: AcquireRequest) -> Result<Acquisition> {
    store.acquire(&request).await
}
