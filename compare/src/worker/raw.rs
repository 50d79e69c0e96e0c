//! The client libraries themselves: a lock without fences, as one writes it by hand.

use fred::prelude::{Builder, ClientLike, Config, Expiration, KeysInterface, LuaInterface, SetOptions};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo, Script};

use super::bare::COMPARE_AND_DELETE;
use super::subject::{Lane, Subject};
use crate::failure::Outcome;
use crate::job::Job;

const TTL_MS: i64 = 30_000;

/// redis-rs: one multiplexed connection, `nodelay` set, no limit on replies.
pub(super) struct Redis {
    connection: MultiplexedConnection,
}

pub(super) async fn connect(port: u16) -> Outcome<MultiplexedConnection> {
    let info = format!("redis://127.0.0.1:{port}/").as_str().into_connection_info()?;
    let settings = info.tcp_settings().clone().set_nodelay(true);
    let client = Client::open(info.set_tcp_settings(settings))?;
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    Ok(client.get_multiplexed_async_connection_with_config(&config).await?)
}

impl Subject for Redis {
    type Lane = RedisLane;

    async fn open(job: &Job) -> Outcome<Self> {
        Ok(Self { connection: connect(job.ports[0]).await? })
    }

    async fn lane(&self, name: &str) -> Outcome<RedisLane> {
        let script = Script::new(COMPARE_AND_DELETE);
        Ok(RedisLane { connection: self.connection.clone(), name: name.to_owned(), script, token: 0 })
    }
}

pub(super) struct RedisLane {
    connection: MultiplexedConnection,
    name: String,
    script: Script,
    token: u64,
}

impl Lane for RedisLane {
    type Held = String;

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
}

impl Subject for Fred {
    type Lane = FredLane;

    async fn open(job: &Job) -> Outcome<Self> {
        let config = Config::from_url(&format!("redis://127.0.0.1:{}", job.ports[0]))?;
        let client =
            Builder::from_config(config).with_connection_config(|with| with.tcp.nodelay = Some(true)).build()?;
        client.init().await?;
        let sha = client.script_load(COMPARE_AND_DELETE).await?;
        Ok(Self { client, sha })
    }

    async fn lane(&self, name: &str) -> Outcome<FredLane> {
        Ok(FredLane { client: self.client.clone(), sha: self.sha.clone(), name: name.to_owned(), token: 0 })
    }
}

pub(super) struct FredLane {
    client: fred::clients::Client,
    sha: String,
    name: String,
    token: u64,
}

impl Lane for FredLane {
    type Held = String;

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
