//! The findings of the check-up about several servers.

use std::time::Instant;

use tenure_core::ErrorKind;
use tenure_core::driver::{Concern, Topic};
use tenure_testkit::{RedisCluster, RedisOptions, RedisSentinels, RedisServer};

use crate::topologies::support::{LIBRARIES, LONG, NEVER, Pair, client, waiter, within};

#[tokio::test]
#[ignore = "starts clusters and sentinels; cargo xtask test"]
async fn every_primary_is_looked_at() {
    let mut cluster = RedisCluster::start(&RedisOptions::new(), NEVER).unwrap();
    let mut clients = Vec::new();
    for library in LIBRARIES {
        let client = client(library, &cluster.url()).await;
        let checkup = client.doctor().await.unwrap();
        for primary in &cluster.nodes()[..3] {
            let place = format!("127.0.0.1:{}", primary.port());
            let about = checkup.findings().iter().find(|one| one.server == place && one.topic == Topic::Replicas);
            assert_eq!(about.map(|finding| finding.concern), Some(Concern::Note), "{checkup}");
        }
        clients.push(client);
    }
    cluster.nodes_mut()[1].kill().unwrap();
    let place = format!("127.0.0.1:{}", cluster.nodes()[1].port());
    for client in clients {
        let checkup = client.doctor().await.unwrap();
        let dead = checkup.findings().iter().find(|one| one.topic == Topic::Reach).expect("the dead node is reported");
        assert_eq!((&*dead.server, dead.concern), (&*place, Concern::Danger), "{checkup}");
        assert!(checkup.findings().iter().any(|one| one.topic == Topic::Version), "{checkup}");
    }
}

/// A ping asks the node that would serve a lock of its name; a check-up asks them all.
#[tokio::test]
#[ignore = "starts clusters and sentinels; cargo xtask test"]
async fn a_ping_fails_while_its_node_is_away() {
    let mut cluster = RedisCluster::start(&RedisOptions::new(), NEVER).unwrap();
    let mut clients = Vec::new();
    for library in LIBRARIES {
        let client = client(library, &cluster.url()).await;
        client.ping().await.unwrap();
        clients.push(client);
    }
    let node = cluster.owner(b"{tenure:ping}").unwrap();
    cluster.nodes_mut()[node].kill().unwrap();
    for client in &clients {
        assert_eq!(client.ping().await.unwrap_err().kind(), ErrorKind::Unavailable);
    }
    cluster.nodes_mut()[node].restart().unwrap();
    cluster.settled().unwrap();
    for client in &clients {
        let began = Instant::now();
        while client.ping().await.is_err() {
            assert!(began.elapsed() < LONG, "the node is back");
        }
    }
}

/// Nodes do not share their access control lists.
#[tokio::test]
#[ignore = "starts clusters and sentinels; cargo xtask test"]
async fn a_right_that_one_primary_lacks_is_named_with_it() {
    let cluster = RedisCluster::start(&RedisOptions::new(), NEVER).unwrap();
    let give = |rights: &[&str], node: &RedisServer| {
        node.cli(&[&["ACL", "SETUSER", "u", "reset", "on", ">pw", "~*", "&*", "+@all"], rights].concat()).unwrap();
    };
    let url = cluster.url().replacen("://", "://u:pw@", 1);
    for primary in 0..3 {
        cluster.nodes().iter().for_each(|node| give(&[], node));
        for library in LIBRARIES {
            client(library, &url).await;
        }
        give(&["-zrem"], &cluster.nodes()[primary]);
        for library in LIBRARIES {
            let error = tenure_backends::connect(&format!("{library}{url}")).await.unwrap_err();
            let place = format!("127.0.0.1:{}", cluster.nodes()[primary].port());
            assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
            assert!(error.message().contains(&place) && error.message().contains("+zrem"), "{error}");
        }
    }
}

/// As managed services are: everything works, and settings that could not be read are reported.
#[tokio::test]
async fn a_service_without_config_and_info_is_served_with_a_note() {
    let mut options = RedisOptions::new();
    for command in ["INFO", "CONFIG", "ROLE"] {
        options = options.words(&["--rename-command", command, ""]);
    }
    let server = RedisServer::start(options).unwrap();
    for library in LIBRARIES {
        let client = client(library, &server.url()).await;
        let guard = client.lock("a").acquire().await.unwrap();
        let waiting = waiter(&client, "a").await;
        guard.release().await.unwrap();
        within("the hand-over", waiting).await.unwrap().release().await.unwrap();
        let queue = client.queue_of_bytes("jobs").unwrap();
        queue.push(&vec![1]).await.unwrap();
        within("a delivery", queue.receive()).await.unwrap().ack().await.unwrap();
        let checkup = client.doctor().await.unwrap();
        let note =
            checkup.findings().iter().find(|one| one.concern == Concern::Note).expect("what is withheld is reported");
        assert!(note.topic == Topic::Rights && note.seen.contains("info"), "{checkup}");
        assert_eq!(checkup.concern(), Concern::Note, "{checkup}");
    }
}

#[tokio::test]
#[ignore = "starts clusters and sentinels; cargo xtask test"]
async fn a_primary_behind_sentinels_needs_a_replica() {
    let mut group = RedisSentinels::start(&RedisOptions::new(), NEVER).unwrap();
    let client = client("", &group.url()).await;
    let replicas = async || {
        let checkup = client.doctor().await.unwrap();
        checkup.findings().iter().find(|one| one.topic == Topic::Replicas).map(|one| one.concern)
    };
    assert_eq!(replicas().await, Some(Concern::Note));
    group.servers_mut()[1].kill().unwrap();
    assert_eq!(replicas().await, Some(Concern::Danger));
}

/// The findings of the client's start are checked again after each new connection.
#[tokio::test]
#[ignore = "starts clusters and sentinels; cargo xtask test"]
async fn a_primary_that_may_evict_by_now_is_refused_until_it_is_mended() {
    for start in Pair::all() {
        for library in LIBRARIES {
            let mut pair = start();
            let client = client(library, &pair.url()).await;
            let lock = client.lock("lock");
            lock.acquire().await.unwrap().release().await.unwrap();
            let (primary, _) = pair.places("tenure:lock");
            let primary = pair.server(primary);
            primary.cli(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).unwrap();
            lock.acquire().await.unwrap().release().await.unwrap();
            for kind in ["normal", "pubsub"] {
                primary.cli(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]).unwrap();
            }
            let began = Instant::now();
            let error = loop {
                match lock.try_acquire().await {
                    Err(error) if error.kind() == ErrorKind::Misconfigured => break error,
                    Err(error) => assert!(error.is_transient(), "{error}"),
                    Ok(guard) => drop(guard),
                }
                assert!(began.elapsed() < LONG, "{library}: never refused");
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            };
            assert!(error.message().contains("allkeys-lru"), "{error}");
            primary.cli(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).unwrap();
            within("a grant", lock.acquire()).await.unwrap().release().await.unwrap();
        }
    }
}
