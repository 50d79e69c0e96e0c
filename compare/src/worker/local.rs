//! Locks within the process: the memory driver without the engine above it, and what one writes by hand.

use std::sync::Arc;

use dashmap::DashMap;
use tenure_core::driver::{AcquireRequest, Acquisition, Backend, DistributedLock, Hold, Ttl};
use tenure_core::{LockName, OwnerToken};
use tenure_memory::MemoryDriver;
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::locks::Lane;
use crate::job::{Job, Outcome};

/// A map of mutexes; unused ones are removed.
pub(super) struct Dashed {
    map: Arc<DashMap<String, Arc<Mutex<()>>>>,
    name: String,
}

impl Lane for Dashed {
    type Held = OwnedMutexGuard<()>;

    async fn open(_job: &Job, names: &[String]) -> Outcome<Vec<Self>> {
        let map = Arc::default();
        Ok(names.iter().map(|name| Self { map: Arc::clone(&map), name: name.clone() }).collect())
    }

    async fn take(&mut self) -> Outcome<(OwnedMutexGuard<()>, u64)> {
        let mutex = Arc::clone(self.map.entry(self.name.clone()).or_default().value());
        Ok((mutex.lock_owned().await, 0))
    }

    async fn give(&mut self, guard: OwnedMutexGuard<()>) -> Outcome {
        drop(guard);
        self.map.remove_if(&self.name, |_, mutex| Arc::strong_count(mutex) == 1);
        Ok(())
    }
}

/// The driver's methods, called directly: no renewal, no clean-up after cancellation, no report of a loss.
pub(super) struct Driver {
    locks: Arc<dyn DistributedLock>,
    name: LockName,
}

impl Lane for Driver {
    type Held = OwnerToken;

    async fn open(_job: &Job, names: &[String]) -> Outcome<Vec<Self>> {
        let backend = Backend::from(MemoryDriver::new());
        let lane = |name: &String| Ok(Self { locks: Arc::clone(backend.locks()), name: LockName::new(name)? });
        names.iter().map(lane).collect()
    }

    async fn take(&mut self) -> Outcome<(OwnerToken, u64)> {
        let token = OwnerToken::random();
        let request = AcquireRequest::new(self.name.clone(), token, Ttl::DEFAULT);
        match self.locks.acquire(&request).await? {
            Acquisition::Granted(grant) => Ok((token, grant.fence.get())),
            busy => Err(format!("not taken: {busy:?}").into()),
        }
    }

    async fn give(&mut self, token: OwnerToken) -> Outcome {
        self.locks.release(&Hold::new(self.name.clone(), token)).await?;
        Ok(())
    }
}
