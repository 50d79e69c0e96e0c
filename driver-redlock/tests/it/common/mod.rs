//! What the tests of this driver share.

#![allow(dead_code, reason = "each test program uses some of it")]

pub(crate) mod liar;

use std::sync::Arc;
use std::time::Duration;

use tenure_core::driver::{
    AcquireRequest, Acquisition, Busy, DistributedLock, Grant, Handing, Hold, Queueing, QuorumNode, Ttl,
};
use tenure_core::{Error, LockName, OwnerToken};
use tenure_memory::MemoryDriver;
use tenure_redlock::{Redlock, RedlockBuilder};

pub(crate) const TTL: Duration = Duration::from_secs(10);

/// Stores that are nodes, with a link of their own for each client.
pub(crate) struct Nodes(pub(crate) Vec<MemoryDriver>);

impl Nodes {
    pub(crate) fn new(n: usize) -> Self {
        Self((0..n).map(|_| MemoryDriver::new()).collect())
    }

    /// A client over links of its own, and these links.
    pub(crate) fn client(&self) -> (Redlock, Vec<MemoryDriver>) {
        self.client_with(|builder| builder)
    }

    pub(crate) fn client_with(
        &self,
        settings: impl FnOnce(RedlockBuilder) -> RedlockBuilder,
    ) -> (Redlock, Vec<MemoryDriver>) {
        let links: Vec<MemoryDriver> = self.0.iter().map(MemoryDriver::another_client).collect();
        let with_node = |builder: RedlockBuilder, (i, link): (usize, &MemoryDriver)| {
            builder.node(format!("n{i}"), Arc::new(link.clone()) as Arc<dyn QuorumNode>)
        };
        let builder = links.iter().enumerate().fold(Redlock::builder(), with_node);
        (settings(builder).build().unwrap(), links)
    }

    /// A client that cannot be known for one of this process: its nodes do not tell which locks they keep.
    pub(crate) fn client_of_another_process(&self) -> Redlock {
        let honest = |node: &MemoryDriver| liar::Liar::new(&node.another_client(), |fence| fence);
        let with_node = |builder: RedlockBuilder, (i, node)| builder.node(format!("n{i}"), honest(node));
        self.0.iter().enumerate().fold(Redlock::builder(), with_node).build().unwrap()
    }

    /// How many nodes hold the name.
    pub(crate) async fn held(&self, lock: &str) -> usize {
        let mut held = 0;
        for node in &self.0 {
            held += usize::from(node.inspect(&name(lock)).await.unwrap().holder.is_some());
        }
        held
    }
}

pub(crate) fn name(text: &str) -> LockName {
    LockName::new(text).unwrap()
}

pub(crate) fn attempt(lock: &str) -> AcquireRequest {
    let (token, ttl) = (OwnerToken::random(), Ttl::new(TTL).unwrap());
    AcquireRequest::new(name(lock), token, ttl)
}

pub(crate) fn waiter(lock: &str) -> AcquireRequest {
    attempt(lock).with_queue(Queueing::Join { presence: Duration::from_secs(6), accepts: Handing::Asked })
}

pub(crate) fn hold(request: &AcquireRequest) -> Hold {
    Hold::new(request.name.clone(), request.token)
}

pub(crate) async fn grant(driver: &Redlock, request: &AcquireRequest) -> Grant {
    match driver.acquire(request).await.unwrap() {
        Acquisition::Granted(grant) => grant,
        Acquisition::Busy(busy) => panic!("busy: {busy:?}"),
    }
}

pub(crate) async fn busy(driver: &Redlock, request: &AcquireRequest) -> Busy {
    match driver.acquire(request).await.unwrap() {
        Acquisition::Granted(grant) => panic!("granted: {grant:?}"),
        Acquisition::Busy(busy) => busy,
    }
}

pub(crate) async fn refused(driver: &Redlock, request: &AcquireRequest) -> Error {
    driver.acquire(request).await.unwrap_err()
}

/// Waits until nothing goes on in the background.
pub(crate) async fn quiet(driver: &Redlock) {
    for _ in 0..10_000 {
        if driver.background_work() == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("{} pieces of work never end", driver.background_work());
}
