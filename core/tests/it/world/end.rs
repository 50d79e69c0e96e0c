//! The link, as the engine is given it.

use std::sync::Arc;

use async_trait::async_trait;
use tenure_core::driver::{
    AcquireRequest, Acquisition, DistributedLock, Exited, ForceReleased, Hold, Inspection, LockCapabilities,
    ReentrantCapabilities, ReentrantEntry, ReentrantHold, ReentrantLock, Released, Renewed, Ttl, Watch,
};
use tenure_core::{Error, FencingToken, LockName, OwnerId, OwnerToken, Result};

use crate::world::wire::Wire;

#[derive(Debug)]
pub(crate) struct End(pub(crate) Arc<Wire>);

#[async_trait]
impl DistributedLock for End {
    fn driver(&self) -> &'static str {
        "world"
    }

    fn capabilities(&self) -> LockCapabilities {
        DistributedLock::capabilities(self.0.store().memory())
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquisition> {
        self.0.ask(None, request).await
    }

    async fn renew(&self, ttl: Ttl, holds: &[Hold]) -> Vec<Result<Renewed>> {
        holds.iter().for_each(|hold| self.0.uses(&hold.token, "a renewal"));
        let (count, holds) = (holds.len(), holds.to_vec());
        let answers = self.0.carry("renew", move |store| {
            let holds = holds.clone();
            async move {
                let mut answers = Vec::new();
                for hold in holds {
                    answers.push(store.renew(ttl, hold).await);
                }
                Ok(answers)
            }
        });
        unpack(count, answers.await)
    }

    async fn release(&self, hold: &Hold) -> Result<Released> {
        self.0.gives_back(hold.token);
        let hold = hold.clone();
        self.0
            .carry("release", move |store| {
                let hold = hold.clone();
                async move { store.release(hold).await }
            })
            .await
    }

    async fn abandon(&self, hold: &Hold) -> Result<()> {
        self.0.give_up(None, hold.clone()).await
    }

    async fn watch(&self, name: &LockName, token: &OwnerToken) -> Result<Watch> {
        Arc::clone(&self.0).listen(name, token).await
    }

    async fn inspect(&self, name: &LockName) -> Result<Inspection> {
        self.0.store().memory().inspect(name).await
    }

    async fn force_release(&self, name: &LockName, expected: Option<FencingToken>) -> Result<ForceReleased> {
        let (name, judge) = (name.clone(), Arc::clone(self.0.judge()));
        self.0
            .carry("force_release", move |store| {
                let (name, judge) = (name.clone(), Arc::clone(&judge));
                async move {
                    judge.revokes(&name);
                    store.force(&name, expected).await
                }
            })
            .await
    }

    async fn close(&self) {}
}

#[async_trait]
impl ReentrantLock for End {
    fn capabilities(&self) -> ReentrantCapabilities {
        ReentrantLock::capabilities(self.0.store().memory())
    }

    async fn enter(&self, owner: &OwnerId, request: &AcquireRequest) -> Result<Acquisition> {
        self.0.ask(Some(*owner), request).await
    }

    async fn renew(&self, ttl: Ttl, holds: &[ReentrantHold]) -> Vec<Result<Renewed>> {
        let (count, holds) = (holds.len(), holds.to_vec());
        let answers = self.0.carry("renew", move |store| {
            let holds = holds.clone();
            async move {
                let mut answers = Vec::new();
                for hold in holds {
                    answers.push(store.renew_hold(ttl, hold).await);
                }
                Ok(answers)
            }
        });
        unpack(count, answers.await)
    }

    async fn exit(&self, hold: &ReentrantEntry) -> Result<Exited> {
        self.0.gives_back(hold.token);
        let hold = hold.clone();
        self.0
            .carry("exit", move |store| {
                let hold = hold.clone();
                async move { store.exit(hold).await }
            })
            .await
    }

    async fn abandon(&self, hold: &ReentrantEntry) -> Result<()> {
        let ReentrantEntry { name, owner, token, .. } = hold.clone();
        self.0.give_up(Some(owner), Hold::new(name, token)).await
    }
}

fn unpack(count: usize, answers: Result<Vec<Result<Renewed>>>) -> Vec<Result<Renewed>> {
    match answers {
        Ok(answers) => answers,
        Err(error) => (0..count).map(|_| Err(Error::new(error.kind(), "not renewed"))).collect(),
    }
}
