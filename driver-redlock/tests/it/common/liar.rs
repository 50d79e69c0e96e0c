//! A node that keeps its locks as it should, and lies about fences.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use tenure_core::driver::{
    AcquireRequest, Acquisition, Ballot, DistributedLock, Doctor, Electorate, ForceReleased, Hold, Inspection,
    LockCapabilities, QuorumNode, Raised, Released, Renewed, Ttl, Vote, Watch,
};
use tenure_core::{FencingToken, LockName, OwnerToken, Result};
use tenure_memory::MemoryDriver;

/// What it says in place of a fence.
type Lie = Box<dyn FnMut(u64) -> u64 + Send>;

pub(crate) struct Liar {
    store: MemoryDriver,
    lie: Mutex<Lie>,
    declared: LockCapabilities,
}

impl Liar {
    pub(crate) fn new(store: &MemoryDriver, lie: impl FnMut(u64) -> u64 + Send + 'static) -> Arc<Self> {
        let declared = DistributedLock::capabilities(store);
        Arc::new(Self { store: store.clone(), lie: Mutex::new(Box::new(lie)), declared })
    }

    /// One that tells the truth about fences, and declares this.
    pub(crate) fn declaring(store: &MemoryDriver, declared: LockCapabilities) -> Arc<Self> {
        Arc::new(Self { store: store.clone(), lie: Mutex::new(Box::new(|fence| fence)), declared })
    }

    fn reported(&self, fence: FencingToken) -> FencingToken {
        let lie = &mut *self.lie.lock().unwrap();
        FencingToken::new(lie(fence.get())).expect("a fence is not zero")
    }
}

impl std::fmt::Debug for Liar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.store.fmt(f)
    }
}

#[async_trait]
impl DistributedLock for Liar {
    fn driver(&self) -> &'static str {
        self.store.driver()
    }

    fn capabilities(&self) -> LockCapabilities {
        self.declared
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquisition> {
        self.store.acquire(request).await
    }

    async fn renew(&self, ttl: Ttl, holds: &[Hold]) -> Vec<Result<Renewed>> {
        DistributedLock::renew(&self.store, ttl, holds).await
    }

    async fn release(&self, hold: &Hold) -> Result<Released> {
        self.store.release(hold).await
    }

    async fn abandon(&self, hold: &Hold) -> Result<()> {
        DistributedLock::abandon(&self.store, hold).await
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
        DistributedLock::close(&self.store).await;
    }
}

#[async_trait]
impl QuorumNode for Liar {
    async fn vote(&self, ballot: &Ballot) -> Result<Vote> {
        let mut vote = self.store.vote(ballot).await?;
        if let Vote::Cast(Acquisition::Granted(grant)) = &mut vote {
            grant.fence = self.reported(grant.fence);
        }
        Ok(vote)
    }

    async fn raise(&self, hold: &Hold, fence: FencingToken) -> Result<Raised> {
        let reported = self.reported(fence);
        match self.store.raise(hold, fence).await? {
            Raised::Acknowledged if reported != fence => Ok(Raised::Beyond { counter: reported }),
            answer => Ok(answer),
        }
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
