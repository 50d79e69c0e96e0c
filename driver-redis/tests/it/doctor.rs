//! The check-up tells what a server means for locks.

use crate::common::{server, server_with};
use tenure_core::driver::{Checkup, Concern, Topic};
use tenure_core::{Client, ErrorKind};
use tenure_redis::RedisDriver;
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
async fn what_endangers_locks_is_reported() {
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
