//! What the tests of this driver share.

#![allow(clippy::print_stdout, reason = "figures are for people")]
#![allow(dead_code, reason = "each test program uses some of it")]

pub(crate) mod queue;
pub(crate) mod wire;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::driver::{
    AcquireRequest, Acquisition, Backend, Begun, Busy, DistributedLock, Grant, Handing, Hold, Permits, QueueAdmin,
    Queueing, ReentrantEntry, ReentrantLock, Ttl, Watch,
};
use tenure_core::{Label, LockName, OwnerId, OwnerToken};
use tenure_redis::{RedisConfig, RedisDriver};
pub(crate) use tenure_testkit::CheckedServer as Server;
use tenure_testkit::{RedisOptions, RedisServer};

/// Longer than any test waits for something that does happen.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// The rules of the README, which `rights.rs` compares.
const COMMANDS: &str = "+ping +subscribe +info +evalsha +eval +time +get +mget +set +setrange +del +exists \
                        +type +pttl +pexpire +hset +hget +hmget +hscan +hexists +hlen +hdel +zadd +zrange +zrank +zscore \
                        +zcard +zcount +zrem +publish";
pub(crate) const PLACES: [&str; 3] = ["~tenure:*", "~{tenure:*", "&tenure:*"];

/// A client of the driver: all its traits.
pub(crate) struct Client {
    pub(crate) locks: Arc<dyn DistributedLock>,
    pub(crate) reentrant: Arc<dyn ReentrantLock>,
    pub(crate) permits: Arc<dyn Permits>,
    pub(crate) queues: Arc<dyn QueueAdmin>,
}

impl Client {
    pub(crate) async fn of(server: &RedisServer) -> Self {
        Self::at(&server.unix_url()).await
    }

    pub(crate) async fn at(url: &str) -> Self {
        Self::with(RedisConfig::from_url(url).unwrap()).await
    }

    pub(crate) async fn with(config: RedisConfig) -> Self {
        let backend = Backend::from(RedisDriver::connect_with(config).await.unwrap());
        Self {
            locks: Arc::clone(backend.locks()),
            reentrant: Arc::clone(backend.reentrant().unwrap()),
            permits: Arc::clone(backend.permits().unwrap()),
            queues: Arc::clone(backend.queue_admin().unwrap()),
        }
    }

    pub(crate) async fn grant(&self, request: &AcquireRequest) -> Grant {
        granted(self.locks.acquire(request).await.unwrap())
    }

    pub(crate) async fn busy(&self, request: &AcquireRequest) -> Busy {
        busy(self.locks.acquire(request).await.unwrap())
    }

    pub(crate) async fn enter(&self, owner: &OwnerId, request: &AcquireRequest) -> Grant {
        granted(self.reentrant.enter(owner, request).await.unwrap())
    }

    pub(crate) async fn watch(&self, request: &AcquireRequest) -> Watch {
        self.locks.watch(&request.name, &request.token).await.unwrap()
    }
}

/// A server on which no key may live for ever but counters of fences, the electorate of a node, and delay queues.
pub(crate) fn server() -> Server {
    server_with(RedisOptions::new())
}

pub(crate) fn server_with(options: RedisOptions) -> Server {
    let may_stay = |key: &str| {
        [":{fence}", ":{electorate}", ":{dq}"].iter().any(|end| key.ends_with(end)) || key.starts_with("{tenure:dq:")
    };
    Server::start(options, may_stay).unwrap()
}

/// Makes the user `u` with exactly these rules, and the URL to log in with.
pub(crate) fn user(server: &RedisServer, places: &[&str], commands: &[&str]) -> String {
    let base = ["ACL", "SETUSER", "u", "reset", "on", ">pw"];
    let rules: Vec<&str> = base.into_iter().chain(places.iter().copied()).chain(commands.iter().copied()).collect();
    server.cli(&rules).unwrap();
    format!("redis://u:pw@127.0.0.1:{}", server.port())
}

pub(crate) fn commands() -> Vec<&'static str> {
    COMMANDS.split_whitespace().collect()
}

pub(crate) fn name(text: impl AsRef<[u8]>) -> LockName {
    LockName::new(text).unwrap()
}

pub(crate) fn ttl(millis: u64) -> Ttl {
    Ttl::new(Duration::from_millis(millis)).unwrap()
}

/// One attempt with a fresh token and ten seconds of lease.
pub(crate) fn attempt(lock: &str) -> AcquireRequest {
    let label = Some(Label::new("label;with;signs").unwrap());
    AcquireRequest::new(name(lock), OwnerToken::random(), ttl(10_000)).with_label(label)
}

/// A waiter that counts as alive for ten seconds.
pub(crate) fn waiter(lock: &str) -> AcquireRequest {
    attempt(lock).with_queue(Queueing::Join { presence: Duration::from_secs(10), accepts: Handing::Asked })
}

pub(crate) fn hold(request: &AcquireRequest) -> Hold {
    Hold::new(request.name.clone(), request.token)
}

pub(crate) fn entry(owner: &OwnerId, request: &AcquireRequest) -> ReentrantEntry {
    ReentrantEntry::new(request.name.clone(), *owner, request.token)
}

#[track_caller]
pub(crate) fn granted(answer: Acquisition) -> Grant {
    match answer {
        Acquisition::Granted(grant) => grant,
        Acquisition::Busy(busy) => panic!("not granted: {busy:?}"),
    }
}

#[track_caller]
pub(crate) fn busy(answer: Acquisition) -> Busy {
    match answer {
        Acquisition::Busy(busy) => busy,
        Acquisition::Granted(grant) => panic!("granted: {grant:?}"),
    }
}

#[track_caller]
pub(crate) fn begun(grant: Grant, begun: Begun) {
    assert_eq!(grant.begun, begun);
}

/// Whether a wake-up is there, or comes.
pub(crate) async fn woken(watch: &mut Watch) -> bool {
    tokio::time::timeout(LONG, watch.next()).await.is_ok()
}

/// Whether no wake-up has come by the time that the server has answered everything sent before.
pub(crate) async fn asleep(client: &Client, watch: &mut Watch) -> bool {
    client.locks.inspect(&name("asleep")).await.unwrap(); // pushes of earlier commands precede this reply
    tokio::time::timeout(Duration::from_millis(50), watch.next()).await.is_err()
}

/// How often the server ran each command since the statistics were reset, those inside scripts included.
pub(crate) fn all_calls(server: &RedisServer) -> BTreeMap<String, u64> {
    let stats = server.cli(&["INFO", "commandstats"]).unwrap().text();
    let line = |line: &str| {
        let (command, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        Some((command.to_owned(), rest.split(',').next()?.parse().ok()?))
    };
    stats.lines().filter_map(line).filter(|(command, _)| !["info", "config|resetstat"].contains(&&**command)).collect()
}

/// How often the server ran a command since the statistics were reset.
pub(crate) fn calls(server: &RedisServer, command: &str) -> u64 {
    all_calls(server).get(command).copied().unwrap_or(0)
}

/// All keys at the server, sorted.
pub(crate) fn keys(server: &RedisServer) -> Vec<String> {
    let mut keys: Vec<String> =
        server.cli(&["KEYS", "*"]).unwrap().items().iter().map(tenure_testkit::Reply::text).collect();
    keys.sort();
    keys
}
