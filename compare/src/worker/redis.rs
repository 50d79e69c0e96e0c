//! Locks of Redis without fences: by hand on each client library, and of other lock libraries.

use std::time::Duration;

use distributed_lock_core::traits::{DistributedLock as _, LockHandle as _, LockProvider as _};
use distributed_lock_redis::{RedisDistributedLock, RedisLockHandle, RedisLockProvider};
use fred::prelude::{Builder, ClientLike, Config, Expiration, KeysInterface, LuaInterface, SetOptions};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo, Script};
use rslock::LockManager;

use super::bare::COMPARE_AND_DELETE;
use super::locks::Lane;
use crate::job::{Job, Outcome};

const TTL: Duration = Duration::from_secs(30);
const TTL_MS: i64 = 30_000;

pub(super) async fn connect(port: u16) -> Outcome<MultiplexedConnection> {
    let info = url(port).as_str().into_connection_info()?;
    let settings = info.tcp_settings().clone().set_nodelay(true);
    let client = Client::open(info.set_tcp_settings(settings))?;
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    Ok(client.get_multiplexed_async_connection_with_config(&config).await?)
}

fn url(port: u16) -> String {
    format!("redis://127.0.0.1:{port}/")
}

/// redis-rs: one multiplexed connection, `nodelay` set, no limit on replies.
pub(super) struct RedisRs {
    connection: MultiplexedConnection,
    name: String,
    script: Script,
    token: u64,
}

impl Lane for RedisRs {
    type Held = String;

    async fn open(job: &Job, names: &[String]) -> Outcome<Vec<Self>> {
        let connection = connect(job.ports[0]).await?;
        let script = || Script::new(COMPARE_AND_DELETE);
        let lane =
            |name: &String| Self { connection: connection.clone(), name: name.clone(), script: script(), token: 0 };
        Ok(names.iter().map(lane).collect())
    }

    async fn take(&mut self) -> Outcome<(String, u64)> {
        self.token += 1;
        let token = format!("{:032x}", self.token);
        let mut set = redis::cmd("SET");
        set.arg(&self.name).arg(&token).arg("NX").arg("PX").arg(TTL_MS);
        match set.query_async::<Option<String>>(&mut self.connection).await? {
            Some(_) => Ok((token, 0)),
            None => Err("not taken".into()),
        }
    }

    async fn give(&mut self, token: String) -> Outcome {
        let freed: i64 = self.script.key(&self.name).arg(&token).invoke_async(&mut self.connection).await?;
        if freed == 1 { Ok(()) } else { Err("not given back".into()) }
    }
}

/// fred: one client, `nodelay` set.
pub(super) struct Fred {
    client: fred::clients::Client,
    sha: String,
    name: String,
    token: u64,
}

impl Lane for Fred {
    type Held = String;

    async fn open(job: &Job, names: &[String]) -> Outcome<Vec<Self>> {
        let config = Config::from_url(&format!("redis://127.0.0.1:{}", job.ports[0]))?;
        let client =
            Builder::from_config(config).with_connection_config(|with| with.tcp.nodelay = Some(true)).build()?;
        client.init().await?;
        let sha: String = client.script_load(COMPARE_AND_DELETE).await?;
        let lane = |name: &String| Self { client: client.clone(), sha: sha.clone(), name: name.clone(), token: 0 };
        Ok(names.iter().map(lane).collect())
    }

    async fn take(&mut self) -> Outcome<(String, u64)> {
        self.token += 1;
        let token = format!("{:032x}", self.token);
        let expire = Some(Expiration::PX(TTL_MS));
        let set: Option<String> = self.client.set(&self.name, &token, expire, Some(SetOptions::NX), false).await?;
        if set.is_some() { Ok((token, 0)) } else { Err("not taken".into()) }
    }

    async fn give(&mut self, token: String) -> Outcome {
        let freed: i64 = self.client.evalsha(&self.sha, self.name.as_str(), token).await?;
        if freed == 1 { Ok(()) } else { Err("not given back".into()) }
    }
}

/// `rslock`, with its defaults or (`rslock-tuned`) asking every 5 ms; several ports make it a Redlock.
pub(super) struct RsLock {
    manager: LockManager,
    name: String,
}

impl Lane for RsLock {
    type Held = rslock::Lock;

    async fn open(job: &Job, names: &[String]) -> Outcome<Vec<Self>> {
        let mut manager = LockManager::new(job.ports.iter().map(|port| url(*port)).collect());
        if job.subject == "rslock-tuned" {
            manager.set_retry(1_000_000, Duration::from_millis(5));
        }
        Ok(names.iter().map(|name| Self { manager: manager.clone(), name: name.clone() }).collect())
    }

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
pub(super) struct Distributed(RedisDistributedLock);

impl Lane for Distributed {
    type Held = RedisLockHandle;

    async fn open(job: &Job, names: &[String]) -> Outcome<Vec<Self>> {
        let provider = RedisLockProvider::new(format!("redis://127.0.0.1:{}", job.ports[0])).await?;
        Ok(names.iter().map(|name| Self(provider.create_lock(name))).collect())
    }

    async fn take(&mut self) -> Outcome<(RedisLockHandle, u64)> {
        Ok((self.0.try_acquire().await?.ok_or("not taken")?, 0))
    }

    async fn give(&mut self, held: RedisLockHandle) -> Outcome {
        Ok(held.release().await?)
    }
}
