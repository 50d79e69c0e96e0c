//! A purge removes all that waited when it began, whatever happens meanwhile, and ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::queue::{key, message, queue, up_to};
use crate::common::{Client, LONG, server};
use tenure_core::driver::{DelayQueueExt as _, NewMessage, QueueAdmin, RawDelivery, Settle, Settlement};
use tenure_core::queue::{Queue, QueueName};
use tenure_redis::RedisDriver;
use tenure_testkit::RedisServer;

const BATCH: usize = 256;

async fn engine(server: &RedisServer, jobs: &QueueName) -> Queue<Vec<u8>> {
    let client = tenure_core::Client::new(RedisDriver::connect(&server.unix_url()).await.unwrap());
    client.queue_of_bytes(jobs.as_bytes()).unwrap()
}

async fn fill(q: &dyn QueueAdmin, jobs: &QueueName, count: usize, message: &NewMessage) {
    for start in (0..count).step_by(BATCH) {
        q.push(jobs, &vec![message.clone(); BATCH.min(count - start)]).await.unwrap();
    }
}

async fn in_flight(q: &dyn QueueAdmin, jobs: &QueueName, count: usize) -> Vec<RawDelivery> {
    fill(q, jobs, count, &message("in flight", 0)).await;
    let mut deliveries = Vec::new();
    while deliveries.len() < count {
        deliveries.extend(q.receive(&up_to(jobs, BATCH)).await.unwrap().deliveries);
    }
    deliveries
}

/// Settlements shift the timeline under a purge that counts what it passes over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_settled_meanwhile_hides_nothing_from_a_purge() {
    let server = server();
    let q = Client::of(&server).await.queues;
    for round in 0..5 {
        let jobs = queue(format!("jobs {round}"));
        let deliveries = in_flight(&*q, &jobs, 1_500).await;
        fill(&*q, &jobs, 3_000, &message("waits behind them", 600_000)).await;
        let settling = {
            let (q, jobs) = (Arc::clone(&q), jobs.clone());
            tokio::spawn(async move {
                for some in deliveries[..1_000].chunks(10) {
                    let ack = |delivery: &RawDelivery| Settle::new(delivery.receipt, Settlement::Ack);
                    q.settle(&jobs, &some.iter().map(ack).collect::<Vec<_>>()).await.unwrap();
                }
            })
        };
        let removed = engine(&server, &jobs).await.admin().purge().await.unwrap();
        settling.await.unwrap();
        let stats = q.stats(&jobs).await.unwrap();
        assert_eq!((removed, stats.scheduled, stats.in_flight), (3_000, 0, 500), "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purge_ends_though_producers_are_faster() {
    let server = server();
    let q = Client::of(&server).await.queues;
    let jobs = queue("jobs");
    fill(&*q, &jobs, 3_000, &message("old, and due last", 600_000)).await;
    let over = Arc::new(AtomicBool::new(false));
    let producers: Vec<_> = (0..3)
        .map(|_| {
            let (q, jobs, over) = (Arc::clone(&q), jobs.clone(), Arc::clone(&over));
            tokio::spawn(async move {
                while !over.load(Ordering::Relaxed) {
                    fill(&*q, &jobs, BATCH, &message("new, and due first", 0)).await;
                }
            })
        })
        .collect();
    let queue = engine(&server, &jobs).await;
    let purged = tokio::time::timeout(LONG, queue.admin().purge()).await;
    over.store(true, Ordering::Relaxed);
    for producer in producers {
        producer.await.unwrap();
    }
    let removed = purged.expect("the purge ends").unwrap();
    let stats = q.stats(&jobs).await.unwrap();
    assert_eq!(stats.scheduled, 0, "{removed} were removed, and those that were there are left");
    assert!(stats.ready > 0);
}

/// Entries without a message, as a crash of the server or a foreign hand leaves them.
#[tokio::test]
async fn a_purge_ends_at_orphans() {
    let server = server();
    let q = Client::of(&server).await.queues;
    let jobs = queue("jobs");
    let keyed = |text| message(text, 0).with_key(key("k"));
    q.push(&jobs, &[keyed("in flight"), keyed("held"), keyed("held too")]).await.unwrap();
    let flying = q.receive(&up_to(&jobs, 3)).await.unwrap().deliveries;
    assert_eq!((flying.len(), q.stats(&jobs).await.unwrap().ready), (1, 2));
    fill(&*q, &jobs, 3, &message("waits", 600_000)).await;
    let held = server.cli(&["ZRANGE", "{tenure:dq:jobs}:h", "0", "0"]).unwrap().items()[0].text();
    server.cli(&["HDEL", "{tenure:dq:jobs}:m", &held]).unwrap();
    for (orphan, score) in [("00000000000001", "1"), ("00000000000002", "9000000000000000")] {
        server.cli(&["ZADD", "{tenure:dq:jobs}:t", score, orphan]).unwrap();
    }
    let queue = engine(&server, &jobs).await;
    let removed =
        tokio::time::timeout(Duration::from_secs(5), queue.admin().purge()).await.expect("the purge ends").unwrap();
    let stats = q.stats(&jobs).await.unwrap();
    assert_eq!((removed, stats.scheduled, stats.ready), (4, 0, 0));
    assert_eq!(server.cli(&["ZCARD", "{tenure:dq:jobs}:t"]).unwrap().int(), Some(1), "what is in flight");
}
