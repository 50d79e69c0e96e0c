//! The store in memory, and the lock that messages are parked behind.

use std::sync::Arc;

use tenure_core::OwnerToken;
use tenure_core::driver::{AcquireRequest, Acquisition, Backend, DistributedLock, Hold, Ttl};
use tenure_memory::MemoryDriver;

use super::op::lock;
use super::side::Side;

/// The store in memory, and the lock there, which is never given back: messages parked behind it wait as long as they may.
#[derive(Debug)]
pub struct InMemory {
    store: MemoryDriver,
    token: OwnerToken,
}

impl InMemory {
    /// An empty one, with room for so many dead letters.
    pub async fn new(dead_letters: u64) -> Self {
        let store = MemoryDriver::builder().max_dead_letters(dead_letters).build().unwrap();
        let held = Self { store, token: OwnerToken::random() };
        held.take().await;
        held
    }

    async fn take(&self) {
        let (token, ttl) = (self.token, Ttl::new(Ttl::MAX).unwrap());
        let request = AcquireRequest::new(lock(), token, ttl);
        assert!(matches!(self.store.acquire(&request).await, Ok(Acquisition::Granted(_))));
    }

    /// Keeps the lock, now that time has passed.
    pub async fn renew(&self) {
        let hold = Hold::new(lock(), self.token);
        DistributedLock::renew(&self.store, Ttl::new(Ttl::MAX).unwrap(), &[hold]).await.remove(0).unwrap();
    }

    /// Forgets everything but the lock.
    pub async fn forget(&self) {
        self.store.faults().restart_empty();
        self.take().await;
    }

    /// The queue.
    #[must_use]
    pub fn side(&self) -> Side {
        Side::new(Arc::clone(Backend::from(self.store.clone()).queue_admin().unwrap()))
    }
}
