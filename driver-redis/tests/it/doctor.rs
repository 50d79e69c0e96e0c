//! The check-up tells what a server means for locks.

use std::ops::RangeInclusive;

use crate::common::wire::Wire;
use crate::common::{server, server_with};
use tenure_core::driver::{Backend, Checkup, Concern, Topic};
use tenure_core::{Client, ErrorKind};
use tenure_redis::RedisDriver;
use tenure_redis_support::{
    ClientId, ExecError, Keyspace, Placement, RedisExecutor, RedisLocks, RedisSettings, Reply, ScriptCall, WakeLink,
};
use tenure_testkit::{RedisOptions, RedisServer};

async fn checkup(server: &RedisServer, parameters: &str) -> Checkup {
    let driver = RedisDriver::connect_url(&format!("{}/?{parameters}", server.url())).await.unwrap();
    Client::new(driver).doctor().await.unwrap()
}

fn concern(checkup: &Checkup, topic: Topic) -> Concern {
    let found = checkup.findings().iter().find(|finding| finding.topic == topic);
    found.unwrap_or_else(|| panic!("no {topic:?} in {checkup}")).concern
}

#[tokio::test]
async fn a_good_server_is_fine() {
    let server = server_with(RedisOptions::new().append_only());
    let checkup = checkup(&server, "").await;
    assert_eq!(checkup.concern(), Concern::Fine, "{checkup}");
    assert_eq!(checkup.findings().len(), 6, "{checkup}");
    let place = format!("127.0.0.1:{}", server.port());
    assert!(checkup.findings().iter().any(|finding| finding.server == place), "{checkup}");
}

#[tokio::test]
async fn what_endangers_locks_is_told() {
    let options = RedisOptions::new().movable_clock().setting("maxmemory-policy", "allkeys-lru");
    let server = server_with(options.setting("maxmemory", "100mb"));
    server.set_clock_offset(-60_000_000).unwrap();
    let checkup = checkup(&server, "allow_eviction=true").await;
    assert_eq!(concern(&checkup, Topic::Eviction), Concern::Danger);
    assert_eq!(concern(&checkup, Topic::Persistence), Concern::Note);
    assert_eq!(concern(&checkup, Topic::Clock), Concern::Note);
    assert!(checkup.to_string().contains("60"), "{checkup}");
}

#[tokio::test]
async fn a_right_that_was_taken_away_is_named() {
    let server = server();
    let rules = ["ACL", "SETUSER", "locks", "on", ">password", "~*", "&*", "+@all"];
    server.cli(&rules).unwrap();
    let url = format!("redis://locks:password@127.0.0.1:{}/", server.port());
    let client = Client::new(RedisDriver::connect_url(&url).await.unwrap());
    server.cli(&["ACL", "SETUSER", "locks", "-zadd"]).unwrap();
    let checkup = client.doctor().await.unwrap();
    let finding = checkup.findings().iter().find(|finding| finding.topic == Topic::Rights).unwrap();
    assert_eq!(finding.concern, Concern::Danger);
    assert!(finding.seen.contains("zadd"), "{checkup}");
}

#[tokio::test]
async fn a_server_that_is_away_is_an_error() {
    let mut server = server();
    let client = Client::new(RedisDriver::connect_url(&server.url()).await.unwrap());
    server.kill().unwrap();
    let error = client.doctor().await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate), "{error}");
}

/// A server that tells the time as it likes.
#[derive(Debug)]
struct Absurd {
    wire: Wire,
    time: Reply,
}

impl RedisExecutor for Absurd {
    fn driver(&self) -> &'static str {
        self.wire.driver()
    }

    fn placement(&self) -> Placement {
        self.wire.placement()
    }

    fn homes(&self) -> Vec<(String, RangeInclusive<u16>)> {
        self.wire.homes()
    }

    async fn evalsha(&self, call: &ScriptCall) -> Result<Reply, ExecError> {
        self.wire.evalsha(call).await
    }

    async fn eval(&self, call: &ScriptCall) -> Result<Reply, ExecError> {
        self.wire.eval(call).await
    }

    async fn command(&self, args: &[&str]) -> Vec<(String, Result<Reply, ExecError>)> {
        match args {
            ["TIME"] => vec![("wire".into(), Ok(self.time.clone()))],
            _ => self.wire.command(args).await,
        }
    }

    async fn command_at(&self, slot: u16, args: &[&str]) -> Result<Reply, ExecError> {
        self.wire.command_at(slot, args).await
    }

    fn identity(&self) -> Option<String> {
        None
    }

    async fn close(&self) {}
}

#[tokio::test]
async fn a_time_that_is_none_is_noted() {
    let server = server();
    let numbers = ["-9223372036854775808", "-1", "9223372036854775807", "18446744073709551615", "noon", ""];
    let texts = numbers.map(|text| Reply::Bytes(text.into()));
    let parts: Vec<Reply> = texts.into_iter().chain([Reply::Nil, Reply::Int(i64::MIN), Reply::Int(i64::MAX)]).collect();
    let pairs =
        parts.iter().flat_map(|a| [vec![a.clone(), Reply::Int(0)], vec![Reply::Int(0), a.clone()], vec![a.clone()]]);
    for time in pairs.map(Reply::Array).chain([Reply::Nil, Reply::Array(vec![])]) {
        let settings = RedisSettings::default();
        let keys = Keyspace::of(&settings, ClientId::random());
        let absurd = Absurd { wire: Wire::to(&server), time: time.clone() };
        let locks = RedisLocks::checked(absurd, keys, settings, WakeLink::default()).await.unwrap();
        let checkup = Client::new(Backend::from(locks)).doctor().await.unwrap();
        assert_eq!(concern(&checkup, Topic::Clock), Concern::Note, "{time:?}");
    }
}
