//! The check-up tells what a server means for locks.

use tenure_redis::{Checkup, Concern, RedisDriver, Topic};
use tenure_testkit::{RedisOptions, RedisServer};

async fn checkup(server: &RedisServer, parameters: &str) -> Checkup {
    let driver = RedisDriver::connect_url(&format!("{}/?{parameters}", server.url())).await.unwrap();
    driver.doctor().await.unwrap()
}

fn concern(checkup: &Checkup, topic: Topic) -> Concern {
    let found = checkup.findings().iter().find(|finding| finding.topic == topic);
    found.unwrap_or_else(|| panic!("no {topic:?} in {checkup}")).concern
}

#[tokio::test]
async fn a_good_server_is_fine() {
    let server = RedisServer::start(RedisOptions::new().append_only()).unwrap();
    let checkup = checkup(&server, "").await;
    assert_eq!(checkup.concern(), Concern::Fine, "{checkup}");
    assert_eq!(checkup.findings().len(), 6, "{checkup}");
}

#[tokio::test]
async fn what_endangers_locks_is_told() {
    let options = RedisOptions::new().movable_clock().setting("maxmemory-policy", "allkeys-lru");
    let server = RedisServer::start(options.setting("maxmemory", "100mb")).unwrap();
    server.set_clock_offset(-60_000_000).unwrap();
    let checkup = checkup(&server, "allow_eviction=true").await;
    assert_eq!(concern(&checkup, Topic::Eviction), Concern::Danger);
    assert_eq!(concern(&checkup, Topic::Persistence), Concern::Note);
    assert_eq!(concern(&checkup, Topic::Clock), Concern::Note);
    assert!(checkup.to_string().contains("60"), "{checkup}");
}

#[tokio::test]
async fn a_service_without_config_and_info_is_served_with_a_note() {
    let mut options = RedisOptions::new();
    for command in ["INFO", "CONFIG"] {
        options = options.words(&["--rename-command", command, ""]);
    }
    let server = RedisServer::start(options).unwrap();
    let driver = RedisDriver::connect_url(&server.url()).await.unwrap();
    assert!(driver.notes().remarks()[0].contains("info"), "{:?}", driver.notes());
    let checkup = driver.doctor().await.unwrap();
    assert_eq!(concern(&checkup, Topic::Rights), Concern::Note);
    assert_eq!(concern(&checkup, Topic::Clock), Concern::Fine);
}
