//! tenure, as an application uses it: a `Client`, a lock's handle, `acquire` and `release`.

use tenure_core::driver::Backend;
use tenure_core::{Client, Confirmation, Lock, LockGuard};
use tenure_fred::FredDriver;
use tenure_memory::MemoryDriver;
use tenure_redis::RedisDriver;
use tenure_redlock::Restarts;

use super::subject::{Lane, Subject};
use crate::failure::Outcome;
use crate::job::Job;

pub(super) struct OurLane(Lock);

impl OurLane {
    pub(super) fn new(client: &Client, name: &str) -> Outcome<Self> {
        Ok(Self(client.lock(name)))
    }
}

impl Lane for OurLane {
    type Held = LockGuard;

    async fn take(&mut self) -> Outcome<(LockGuard, u64)> {
        let guard = self.0.acquire().await?;
        let fence = guard.fence().get();
        Ok((guard, fence))
    }

    async fn give(&mut self, guard: LockGuard) -> Outcome {
        guard.release().await?;
        Ok(())
    }
}

/// A subject that is a client of one backend.
macro_rules! client_of {
    ($(#[$doc:meta])* $name:ident, $open:expr) => {
        $(#[$doc])*
        pub(crate) struct $name(tenure_core::Client);

        impl Subject for $name {
            type Lane = OurLane;

            async fn open(job: &Job) -> Outcome<Self> {
                let backend: Backend = $open(job).await?;
                Ok(Self(tenure_core::Client::new(backend)))
            }

            async fn lane(&self, name: &str) -> Outcome<OurLane> {
                OurLane::new(&self.0, name)
            }
        }
    };
}
#[cfg(any(feature = "etcd", feature = "sql"))]
pub(super) use client_of;

client_of!(
    /// One Redis server, on redis-rs.
    Redis,
    redis
);
/// One Redis server, on redis-rs, and every waiter asks for itself.
pub(super) struct RedisEachAsks(Client);

impl Subject for RedisEachAsks {
    type Lane = OurLane;

    async fn open(job: &Job) -> Outcome<Self> {
        Ok(Self(Client::builder(redis(job).await?).holders_per_grant(0).build()?))
    }

    async fn lane(&self, name: &str) -> Outcome<OurLane> {
        OurLane::new(&self.0, name)
    }
}

/// One Redis server, on redis-rs, where a handed-over lease is extended after `acquire` returns, as on several threads.
pub(super) struct RedisBehind(Client);

impl Subject for RedisBehind {
    type Lane = OurLane;

    async fn open(job: &Job) -> Outcome<Self> {
        Ok(Self(Client::builder(redis(job).await?).confirmation(Confirmation::Behind).build()?))
    }

    async fn lane(&self, name: &str) -> Outcome<OurLane> {
        OurLane::new(&self.0, name)
    }
}

/// One Redis server, on redis-rs, with a client for each lane.
pub(super) struct RedisApart(Job);

impl Subject for RedisApart {
    type Lane = OurLane;

    async fn open(job: &Job) -> Outcome<Self> {
        Ok(Self(job.clone()))
    }

    async fn lane(&self, name: &str) -> Outcome<OurLane> {
        OurLane::new(&Client::new(redis(&self.0).await?), name)
    }
}

client_of!(
    /// One Redis server, on fred.
    Fred,
    fred
);
client_of!(
    /// A quorum of Redis servers.
    Redlock,
    redlock
);
client_of!(
    /// This process.
    Memory,
    memory
);

fn url(port: u16) -> String {
    format!("redis://127.0.0.1:{port}/")
}

pub(super) async fn redis(job: &Job) -> Outcome<Backend> {
    Ok(RedisDriver::connect(&url(job.ports[0])).await?.into())
}

pub(super) async fn fred(job: &Job) -> Outcome<Backend> {
    Ok(FredDriver::connect(&format!("fred+{}", url(job.ports[0]))).await?.into())
}

pub(super) async fn memory(_job: &Job) -> Outcome<Backend> {
    Ok(MemoryDriver::new().into())
}

/// The servers of a comparison do not restart, and have just been started: they vote at once.
async fn redlock(job: &Job) -> Outcome<Backend> {
    let mut builder = tenure_redlock::Redlock::builder().restarts(Restarts::Durable);
    for (index, port) in job.ports.iter().enumerate() {
        builder = builder.node(format!("node{index}"), RedisDriver::connect(&url(*port)).await?.node());
    }
    Ok(builder.build()?.into())
}
