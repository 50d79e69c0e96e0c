//! Locks within the process: the memory driver without the engine above it, and what one writes by hand.

use std::sync::Arc;

use dashmap::DashMap;
use tenure_core::driver::{AcquireRequest, Acquisition, Backend, DistributedLock, Hold, Ttl};
use tenure_core::{LockName, OwnerToken};
use tenure_memory::MemoryDriver;
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::subject::{Lane, Subject};
use crate::failure::Outcome;
use crate::job::Job;

/// A map of mutexes; unused ones are removed.
pub(super) struct Dashed(Arc<DashMap<String, Arc<Mutex<()>>>>);

impl Subject for Dashed {
    type Lane = DashedLane;

    async fn open(_job: &Job) -> Outcome<Self> {
        Ok(Self(Arc::default()))
    }

    async fn lane(&self, name: &str) -> Outcome<DashedLane> {
        Ok(DashedLane { map: Arc::clone(&self.0), name: name.to_owned() })
    }
}

pub(super) struct DashedLane {
    map: Arc<DashMap<String, Arc<Mutex<()>>>>,
    name: String,
}

impl Lane for DashedLane {
    type Held = OwnedMutexGuard<()>;

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
pub(super) struct Driver(Arc<dyn DistributedLock>);

impl Subject for Driver {
    type Lane = DriverLane;

    async fn open(_job: &Job) -> Outcome<Self> {
        Ok(Self(Arc::clone(Backend::from(MemoryDriver::new()).locks())))
    }

    async fn lane(&self, name: &str) -> Outcome<DriverLane> {
        Ok(DriverLane { locks: Arc::clone(&self.0), name: LockName::new(name)? })
    }
}

pub(super) struct DriverLane {
    locks: Arc<dyn DistributedLock>,
    name: LockName,
}

impl Lane for DriverLane {
    type Held = OwnerToken;

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
