//! tenure, as an application uses it: a `Client`, a lock's handle, `acquire` and `release`.

use tenure_core::driver::Backend;
use tenure_core::{Client, ClientBuilder, Confirmation, Lock, LockGuard};
use tenure_fred::FredDriver;
use tenure_memory::MemoryDriver;
use tenure_redis::RedisDriver;
use tenure_redlock::{Redlock, Restarts};

use super::locks::Lane;
use crate::job::{Job, Outcome};

/// The driver that the subject names: `tenure-redis`, `tenure-redis-each-asks`, …
async fn backend(job: &Job) -> Outcome<Backend> {
    let port = job.ports.first().copied().unwrap_or_default();
    Ok(match job.subject.split('-').nth(1).unwrap_or_default() {
        "redis" => RedisDriver::connect(&redis(port)).await?.into(),
        "fred" => FredDriver::connect(&format!("fred+{}", redis(port))).await?.into(),
        "memory" => MemoryDriver::new().into(),
        "redlock" => {
            // The servers of a comparison do not restart, and have just been started: they vote at once.
            let mut builder = Redlock::builder().restarts(Restarts::Durable);
            for (index, port) in job.ports.iter().enumerate() {
                builder = builder.node(format!("node{index}"), RedisDriver::connect(&redis(*port)).await?.node());
            }
            builder.build()?.into()
        }
        #[cfg(feature = "etcd")]
        "etcd" => tenure_etcd::EtcdDriver::connect(&format!("etcd://127.0.0.1:{port}")).await?.into(),
        #[cfg(feature = "sql")]
        "postgres" => tenure_postgres::PostgresDriver::connect(&super::sql::postgres(job)).await?.into(),
        #[cfg(feature = "sql")]
        "mysql" => tenure_mysql::MysqlDriver::connect(&super::sql::mysql(job)).await?.into(),
        #[cfg(feature = "sql")]
        "sqlite" => tenure_sqlite::SqliteDriver::connect(&format!("sqlite:{}/ours.db", job.path)).await?.into(),
        _ => return Err(format!("there is no subject {:?}", job.subject).into()),
    })
}

fn redis(port: u16) -> String {
    format!("redis://127.0.0.1:{port}/")
}

/// A client of the subject's driver, with the setting that the subject's name ends with.
pub(super) async fn builder(job: &Job) -> Outcome<ClientBuilder> {
    let builder = Client::builder(backend(job).await?);
    Ok(match job.subject.as_str() {
        subject if subject.ends_with("-each-asks") => builder.holders_per_grant(0),
        // A lease that was handed over is extended behind `acquire`, as on several threads.
        subject if subject.ends_with("-behind") => builder.confirmation(Confirmation::Behind),
        _ => builder,
    })
}

pub(super) async fn client(job: &Job) -> Outcome<Client> {
    Ok(builder(job).await?.build()?)
}

/// One client for all lanes; a client for each, if the subject's name ends with `-apart`.
pub(super) struct Ours(Lock);

impl Lane for Ours {
    type Held = LockGuard;

    async fn open(job: &Job, names: &[String]) -> Outcome<Vec<Self>> {
        let (mut shared, mut lanes) = (client(job).await?, Vec::new());
        for name in names {
            if job.subject.ends_with("-apart") && !lanes.is_empty() {
                shared = client(job).await?;
            }
            lanes.push(Self(shared.lock(name)));
        }
        Ok(lanes)
    }

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

/// A lock by chance, of `count` names: with few names the tasks wait for each other, with many they do not.
pub(super) struct AnyName {
    client: Client,
    name: String,
    count: usize,
}

impl Lane for AnyName {
    type Held = LockGuard;

    async fn open(job: &Job, names: &[String]) -> Outcome<Vec<Self>> {
        let client = client(job).await?;
        let lane = |_| Self { client: client.clone(), name: job.name.clone(), count: job.count };
        Ok(names.iter().map(lane).collect())
    }

    async fn take(&mut self) -> Outcome<(LockGuard, u64)> {
        let lock = self.client.lock(format!("{}/{}", self.name, fastrand::usize(..self.count)));
        Ok((lock.acquire().await?, 0))
    }

    async fn give(&mut self, guard: LockGuard) -> Outcome {
        guard.release().await?;
        Ok(())
    }
}
