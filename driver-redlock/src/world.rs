//! For tests: a driver over stores in memory, and the stores' view of it.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::driver::{
    AcquireRequest, Acquisition, Ballot, Busy, DistributedLock as _, Grant, Handing, Hold, Queueing, QuorumNode, Ttl,
    Vote,
};
use tenure_core::{LockName, OwnerToken};
use tenure_memory::{MemoryDriver, Operation};
use tokio::time::sleep;

use crate::acquire::acquire;
use crate::driver::Redlock;
use crate::quorum::NodeSet;
use crate::shared::Shared;
use crate::slot::Slot;

pub(crate) const TTL: Duration = Duration::from_secs(10);
pub(crate) const PRESENCE: Duration = Duration::from_secs(8);

/// A driver over links of its own to some stores.
pub(crate) struct World {
    pub(crate) stores: Vec<MemoryDriver>,
    pub(crate) links: Vec<MemoryDriver>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) name: LockName,
}

impl World {
    /// Its name has the nodes in the order of their numbers. A vote takes a millisecond, so all nodes are asked before any
    /// is heard.
    pub(crate) fn new() -> Self {
        Self::over((0..3).map(|_| MemoryDriver::new()).collect())
    }

    pub(crate) fn over(stores: Vec<MemoryDriver>) -> Self {
        let links: Vec<MemoryDriver> = stores.iter().map(MemoryDriver::another_client).collect();
        links.iter().for_each(|link| link.faults().delay(Operation::Acquire, millis(1)));
        let nodes = links.iter().map(|link| Arc::new(link.clone()) as Arc<dyn QuorumNode>);
        let named = nodes.enumerate().map(|(number, node)| (format!("n{number}"), node));
        let shared = Redlock::builder().nodes(named).build().unwrap().0;
        let mut names = (0..).map(|number| LockName::new(format!("lock {number}")).unwrap());
        let name = names.find(|name| shared.order(name).next() == Some(0)).unwrap();
        Self { stores, links, shared, name }
    }

    pub(crate) fn attempt(&self) -> AcquireRequest {
        AcquireRequest::new(self.name.clone(), OwnerToken::random(), Ttl::new(TTL).unwrap())
    }

    pub(crate) fn waiter(&self) -> AcquireRequest {
        self.attempt().with_queue(Queueing::Join { presence: PRESENCE, accepts: Handing::Direct })
    }

    pub(crate) fn slot(&self, request: &AcquireRequest) -> Arc<Slot> {
        self.shared.slots.open(&self.name, request.token, self.shared.n()).unwrap()
    }

    pub(crate) async fn busy(&self, request: &AcquireRequest) -> Busy {
        match acquire(&self.shared, request).await.unwrap() {
            Acquisition::Busy(busy) => busy,
            Acquisition::Granted(grant) => panic!("granted: {grant:?}"),
        }
    }

    pub(crate) async fn grant(&self, request: &AcquireRequest) -> Grant {
        match acquire(&self.shared, request).await.unwrap() {
            Acquisition::Granted(grant) => grant,
            Acquisition::Busy(busy) => panic!("busy: {busy:?}"),
        }
    }

    /// Lets other clients take the lock at these nodes, each by a separate request.
    pub(crate) async fn taken_at(&self, nodes: &[usize]) -> Vec<AcquireRequest> {
        let mut taken = Vec::new();
        for node in nodes {
            let request = self.attempt();
            let vote = self.stores[*node].vote(&Ballot::new(request.clone(), self.shared.electorate)).await.unwrap();
            assert!(matches!(vote, Vote::Cast(Acquisition::Granted(_))));
            taken.push(request);
        }
        taken
    }

    pub(crate) async fn free(&self, node: usize, request: &AcquireRequest) {
        self.stores[node].release(&Hold::new(self.name.clone(), request.token)).await.unwrap();
    }

    pub(crate) async fn is_held_at(&self, node: usize) -> bool {
        self.stores[node].inspect(&self.name).await.unwrap().holder.is_some()
    }

    /// How often each node was asked.
    pub(crate) fn asked(&self) -> Vec<u64> {
        self.links.iter().map(|link| link.faults().calls(Operation::Acquire)).collect()
    }

    pub(crate) async fn quiet(&self) {
        while self.shared.background.len() > 0 {
            sleep(Duration::from_millis(1)).await;
        }
    }

    pub(crate) fn waiters(&self, node: usize) -> usize {
        self.stores[node].waiters(&self.name).len()
    }
}

pub(crate) fn place(slot: &Slot) -> (Option<usize>, bool, u32) {
    let queue = &slot.state().queue;
    (queue.at, queue.joined, queue.losses)
}

pub(crate) fn stand(slot: &Slot, at: usize, joined: bool) {
    slot.line().wait_at(Some(at));
    let queue = &mut slot.state().queue;
    (queue.at, queue.joined) = (Some(at), joined);
}

pub(crate) fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) fn all(nodes: &[usize]) -> NodeSet {
    nodes.iter().fold(NodeSet::EMPTY, |all, node| all.or(NodeSet::of(*node)))
}
