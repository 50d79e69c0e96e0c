//! Other lock libraries in Rust.

use std::time::Duration;

use distributed_lock_core::traits::{DistributedLock as _, LockHandle as _, LockProvider as _};
use distributed_lock_redis::{RedisDistributedLock, RedisLockHandle, RedisLockProvider};
use rslock::LockManager;

use super::subject::{Lane, Subject};
use crate::failure::Outcome;
use crate::job::Job;

const TTL: Duration = Duration::from_secs(30);

/// `rslock`, with its defaults or (`rslock-tuned`) asking every 5 ms; several ports make it a Redlock.
pub(super) struct RsLock {
    manager: LockManager,
}

impl Subject for RsLock {
    type Lane = RsLane;

    async fn open(job: &Job) -> Outcome<Self> {
        let mut manager = LockManager::new(job.ports.iter().map(|port| format!("redis://127.0.0.1:{port}/")).collect());
        if job.subject == "rslock-tuned" {
            manager.set_retry(1_000_000, Duration::from_millis(5));
        }
        Ok(Self { manager })
    }

    async fn lane(&self, name: &str) -> Outcome<RsLane> {
        Ok(RsLane { manager: self.manager.clone(), name: name.to_owned() })
    }
}

pub(super) struct RsLane {
    manager: LockManager,
    name: String,
}

impl Lane for RsLane {
    type Held = rslock::Lock;

    async fn take(&mut self) -> Outcome<(rslock::Lock, u64)> {
        let taken = self.manager.acquire_no_guard(self.name.as_bytes(), TTL).await;
        taken.map(|lock| (lock, 0)).map_err(|error| format!("rslock: {error:?}").into())
    }

    async fn give(&mut self, lock: rslock::Lock) -> Outcome {
        self.manager.unlock(&lock).await;
        Ok(())
    }
}

/// `distributed-lock-redis`. Its `acquire` does not wait on a single server, so it has pairs only.
pub(super) struct DistributedLock {
    provider: RedisLockProvider,
}

impl Subject for DistributedLock {
    type Lane = DistributedLane;

    async fn open(job: &Job) -> Outcome<Self> {
        Ok(Self { provider: RedisLockProvider::new(format!("redis://127.0.0.1:{}", job.ports[0])).await? })
    }

    async fn lane(&self, name: &str) -> Outcome<DistributedLane> {
        Ok(DistributedLane { lock: self.provider.create_lock(name) })
    }
}

pub(super) struct DistributedLane {
    lock: RedisDistributedLock,
}

impl Lane for DistributedLane {
    type Held = RedisLockHandle;

    async fn take(&mut self) -> Outcome<(RedisLockHandle, u64)> {
        Ok((self.lock.try_acquire().await?.ok_or("not taken")?, 0))
    }

    async fn give(&mut self, held: RedisLockHandle) -> Outcome {
        Ok(held.release().await?)
    }
}
