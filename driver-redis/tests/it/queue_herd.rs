//! One message wakes one client, however many wait; and when that one is dead, another one notices.

#![allow(clippy::print_stdout, reason = "measurements")]

use std::time::{Duration, Instant};

use crate::common::queue::{message, queue, receive};
use crate::common::{Client, LONG, all_calls, server};
use tenure_core::queue::Queue;
use tenure_redis::RedisDriver;
use tenure_testkit::RedisServer;
use tokio::task::JoinSet;

const CLIENTS: usize = 100;

async fn engine(server: &RedisServer) -> Queue<Vec<u8>> {
    let client = tenure_core::Client::new(RedisDriver::connect_url(&server.unix_url()).await.unwrap());
    client.queue_of_bytes(b"jobs").unwrap()
}

/// Requests and wake-ups since the statistics were reset.
fn cost(server: &RedisServer) -> (u64, u64) {
    let all = all_calls(server);
    let of = |name: &str| all.get(name).copied().unwrap_or(0);
    (of("evalsha"), of("publish"))
}

/// Clients that take one message after the other, for ever.
async fn crowd(server: &RedisServer, count: usize) -> (JoinSet<()>, tokio::sync::mpsc::UnboundedReceiver<Instant>) {
    let mut crowd = JoinSet::new();
    let (reported, taken) = tokio::sync::mpsc::unbounded_channel();
    for _ in 0..count {
        let (jobs, reported) = (engine(server).await, reported.clone());
        crowd.spawn(async move {
            let mut delivery = jobs.receive().await.unwrap();
            loop {
                let _ = reported.send(Instant::now());
                let (acked, next) = tokio::join!(delivery.ack(), jobs.receive());
                acked.unwrap();
                delivery = next.unwrap();
            }
        });
    }
    (crowd, taken)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_costs_few_requests_beside_a_hundred_clients_that_wait() {
    let server = server();
    let producer = Client::of(&server).await.queues;
    let jobs = queue("jobs");
    let (_crowd, mut taken) = crowd(&server, CLIENTS).await;
    tokio::time::sleep(Duration::from_secs(16)).await; // until they trust their watches
    let mut costs = Vec::new();
    // The delay is short, so that little of what they ask anyway comes in between and is to be taken off.
    for (what, delay) in [("due at once", 0), ("due after 150 ms", 150)] {
        server.cli(&["CONFIG", "RESETSTAT"]).unwrap();
        let started = Instant::now();
        tokio::time::sleep(Duration::from_secs(10)).await;
        let idle = cost(&server).0 as f64 / started.elapsed().as_secs_f64();
        server.cli(&["CONFIG", "RESETSTAT"]).unwrap();
        let started = Instant::now();
        let mut late = Duration::ZERO;
        for _ in 0..20 {
            let due = Instant::now() + Duration::from_millis(delay);
            producer.push(&jobs, &[message("a", delay)]).await.unwrap();
            let took = tokio::time::timeout(LONG, taken.recv()).await.unwrap().unwrap();
            late = late.max(took.saturating_duration_since(due));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let (requests, wakes) = cost(&server);
        let (each, woken) = ((requests as f64 - idle * started.elapsed().as_secs_f64()) / 20.0, wakes as f64 / 20.0);
        println!(
            "{what}: {each:.2} requests and {woken:.2} wake-ups a message, {late:?} late at most, {idle:.2} requests/s idle"
        );
        costs.push((each, woken, idle / CLIENTS as f64));
    }
    for (each, woken, idle) in costs {
        assert!(each <= 5.0 && woken <= 2.0, "{each} requests, {woken} wake-ups");
        // Each asks every 6 to 20 s: 0.08 a second. About 80 requests are counted here, and such a count varies by its root.
        assert!(idle <= 0.13, "{idle} requests a second of each client while nothing happens");
    }
}

/// The client that is woken first never asks: it is dead, and its connection is not cut yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_woken_client_is_dead_another_one_notices_within_two_seconds() {
    let server = server();
    let (producer, dead) = (Client::of(&server).await.queues, Client::of(&server).await.queues);
    let jobs = queue("jobs");
    let (_crowd, mut taken) = crowd(&server, 5).await;
    let mut watch = dead.watch(&jobs).await.unwrap();
    for delay in [0, 300, 0, 1_000] {
        assert!(receive(&*dead, &jobs, 1).await.deliveries.is_empty(), "it waits, and is the last to ask");
        let due = Instant::now() + Duration::from_millis(delay);
        producer.push(&jobs, &[message("a", delay)]).await.unwrap();
        let took = tokio::time::timeout(LONG, taken.recv()).await.unwrap().unwrap();
        let late = took.saturating_duration_since(due);
        println!("due after {delay} ms: {late:?} late");
        assert!(late < Duration::from_secs(2), "{late:?} late");
        let _ = tokio::time::timeout(Duration::ZERO, watch.next()).await;
    }
}
