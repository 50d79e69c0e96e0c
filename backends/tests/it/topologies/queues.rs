//! Delay queues on several servers.

use std::collections::BTreeSet;
use std::time::Duration;

use tenure_core::driver::Exclusion;
use tenure_core::queue::Queue;
use tenure_testkit::{RedisCluster, RedisOptions, RedisServer, eventually};

use crate::topologies::support::{LIBRARIES, LONG, NEVER, Pair, client, within};

/// The key on this server that matches the pattern, if there is one.
fn key(server: &RedisServer, pattern: &str) -> Option<String> {
    server.cli(&["KEYS", pattern]).ok()?.items().first().map(tenure_testkit::Reply::text)
}

async fn next(queue: &Queue<Vec<u8>>) -> (Vec<u8>, u64) {
    let started = std::time::Instant::now();
    loop {
        match within("a delivery", queue.receive()).await {
            Ok(delivery) => {
                let got = (delivery.payload().as_bytes().to_vec(), delivery.fence().get());
                delivery.ack().await.unwrap();
                return got;
            }
            Err(error) => assert!(error.is_transient() && started.elapsed() < LONG, "{error}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "starts clusters and sentinels; cargo xtask test"]
async fn a_failover_may_lose_a_push_and_the_queue_continues() {
    for (start, library) in Pair::all().into_iter().zip(LIBRARIES) {
        let mut pair = start();
        let client = client(library, &pair.url()).await;
        let queue = client.queue_of_bytes("jobs").unwrap();
        assert_eq!(queue.capabilities().durability, Exclusion::LossyFailover);
        queue.push(&b"before".to_vec()).await.unwrap();
        let (_, fence) = next(&queue).await;
        queue.push(&b"kept".to_vec()).id("kept").await.unwrap();
        let messages = pair.servers().iter().find_map(|server| key(server, "*jobs*:m")).unwrap();
        let (primary, replica) = pair.places(&messages);
        eventually("the replica to have it", || key(pair.server(replica), "*jobs*:i")).unwrap();
        pair.server(replica).pause().unwrap();
        // Data on its way would still arrive after the pause.
        pair.server(primary).cli(&["CLIENT", "KILL", "TYPE", "replica"]).unwrap();
        queue.push(&b"lost".to_vec()).await.unwrap();
        pair.server(primary).kill().unwrap();
        pair.server(replica).resume().unwrap();
        let (payload, later) = next(&queue).await;
        assert_eq!(payload, b"kept");
        assert!(later > fence);
        queue.push(&b"after".to_vec()).await.unwrap();
        assert_eq!(next(&queue).await.0, b"after", "the lost one is lost");
        assert!(queue.receive_within(Duration::ZERO).await.unwrap().is_none());
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "starts clusters and sentinels; cargo xtask test"]
async fn queues_of_a_cluster_are_listed_together() {
    let cluster = RedisCluster::start(&RedisOptions::new(), NEVER).unwrap();
    let names: BTreeSet<String> = (0..40).map(|number| format!("jobs/{number:02}{{}}")).collect();
    for library in LIBRARIES {
        let client = client(library, &cluster.url()).await;
        for name in &names {
            client.queue_of_bytes(name).unwrap().push(&vec![1]).await.unwrap();
        }
        for primary in &cluster.nodes()[..3] {
            assert!(key(primary, "*jobs*:m").is_some(), "every node keeps some");
        }
        let listed = client.list_queues().await.unwrap();
        assert!(listed.iter().map(ToString::to_string).eq(names.iter().cloned()), "{listed:?}");
        for name in &names {
            let queue = client.queue_of_bytes(name).unwrap();
            next(&queue).await;
        }
        assert_eq!(client.list_queues().await.unwrap(), []);
    }
}
