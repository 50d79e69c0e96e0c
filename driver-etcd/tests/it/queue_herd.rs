//! One message costs the requests of one client, however many wait; and when that one is dead, another one notices.

#![allow(clippy::print_stdout, reason = "measurements")]

use std::task::Poll;
use std::time::{Duration, Instant};

use crate::common::*;
use futures_util::future::join_all;
use tenure_core::Client;
use tenure_core::driver::{Delay, DelayQueue as _, Due, NewMessage, Watch};
use tenure_core::queue::{ConcurrencyKey, Queue};
use tenure_etcd::EtcdDriver;
use tenure_testkit::EtcdCluster;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinSet;

const CLIENTS: usize = 100;
const MESSAGES: u32 = 20;

fn requests(cluster: &EtcdCluster) -> f64 {
    cluster.metric(0, "grpc_server_started_total{").unwrap()
}

fn delayed(delay: Duration) -> NewMessage {
    message(b"a").with_due(Due::After(Delay::new(delay).unwrap()))
}

/// A client of its own, with a connection of its own.
fn engine(cluster: &EtcdCluster) -> Queue<Vec<u8>> {
    Client::new(driver(cluster)).queue_of_bytes(b"jobs").unwrap()
}

/// Clients that take one message after the other, for ever, and say when they got one.
fn crowd(cluster: &EtcdCluster, count: usize) -> (JoinSet<()>, UnboundedReceiver<Instant>) {
    let mut crowd = JoinSet::new();
    let (reported, taken) = unbounded_channel();
    for _ in 0..count {
        let (jobs, reported) = (engine(cluster), reported.clone());
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

/// Pushes messages one after the other; tells the requests and the greatest lateness of one.
async fn cost(cluster: &EtcdCluster, delay: Duration, taken: &mut UnboundedReceiver<Instant>) -> (f64, Duration) {
    let producer = driver(cluster);
    producer.stats(&queue()).await.unwrap(); // connected
    let before = requests(cluster);
    let mut late = Duration::ZERO;
    for _ in 0..MESSAGES {
        let due = Instant::now() + delay;
        producer.push(&queue(), &[delayed(delay)]).await.unwrap();
        let took = tokio::time::timeout(PATIENCE, taken.recv()).await.unwrap().unwrap();
        late = late.max(took.saturating_duration_since(due));
        tokio::time::sleep(Duration::from_millis(50)).await; // until it waits again
    }
    (requests(cluster) - before, late)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_costs_few_requests_beside_a_hundred_clients_that_wait() {
    let cluster = server();
    let (crowd, mut taken) = crowd(&cluster, CLIENTS);
    tokio::time::sleep(Duration::from_secs(16)).await; // until they trust their watches
    let (before, started) = (requests(&cluster), Instant::now());
    tokio::time::sleep(Duration::from_secs(40)).await; // each asks twice, and keeps its lease alive once
    let idle = (requests(&cluster) - before) / started.elapsed().as_secs_f64();
    for (what, delay) in [("due at once", 0), ("due after 150 ms", 150)] {
        let started = Instant::now();
        let (requests, late) = cost(&cluster, Duration::from_millis(delay), &mut taken).await;
        let each = (requests - idle * started.elapsed().as_secs_f64()) / f64::from(MESSAGES);
        println!("{what}: {each:.2} requests a message, {late:?} late at most, {idle:.2} requests/s idle");
        // A push, a look, a lease, a settlement, and a look and a place for the next one: six, as for a client alone.
        assert!(each <= 8.0, "{each} requests a message");
    }
    let each = idle / CLIENTS as f64;
    assert!(each <= 0.1, "{each} requests a second of each client while nothing happens");
    drop(crowd);
}

/// Each client takes one message and no more. If a batch woke one client, another would come each second at the most.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_wakes_as_many_as_it_has_messages() {
    const BATCH: usize = 10;
    let cluster = server();
    let (mut crowd, mut kept) = (JoinSet::new(), Vec::new());
    for _ in 0..3 * BATCH {
        let jobs = engine(&cluster);
        crowd.spawn(async move { jobs.receive().await.unwrap() });
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    let producer = driver(&cluster);
    for delay in [Duration::ZERO, Duration::from_millis(300)] {
        let (before, pushed) = (requests(&cluster), Instant::now());
        producer.push(&queue(), &vec![delayed(delay); BATCH]).await.unwrap();
        for _ in 0..BATCH {
            kept.push(tokio::time::timeout(PATIENCE, crowd.join_next()).await.unwrap().unwrap().unwrap());
        }
        let took = pushed.elapsed();
        println!("{BATCH} due after {delay:?}: all taken after {took:?}, {} requests", requests(&cluster) - before);
        assert!(took < 5 * SECOND, "after {took:?}");
        tokio::time::sleep(SECOND).await;
    }
}

/// What a concurrency key held back became due long ago, and nobody could know: those in front have not missed it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_its_key_held_back_for_long_wakes_one_client_and_evicts_none() {
    let cluster = server();
    let (producer, mut etcd) = (driver(&cluster), raw(&cluster).await);
    let keyed = message(b"a").with_key(Some(ConcurrencyKey::new("k").unwrap()));
    producer.push(&queue(), &[keyed.clone(), keyed]).await.unwrap();
    let pushed = Instant::now();
    let first = receive(&producer, 1, 60 * SECOND).await.deliveries;
    let mut waiting = Vec::new();
    for _ in 0..10 {
        let driver = driver(&cluster);
        let watch = driver.watch(&queue()).await.unwrap();
        assert!(receive(&driver, 1, SECOND).await.deliveries.is_empty(), "it waits");
        waiting.push((driver, watch));
    }
    tokio::time::sleep((3 * SECOND).saturating_sub(pushed.elapsed())).await; // all would ask by then
    ack(&producer, &first).await;
    let awake = |(driver, mut watch): (EtcdDriver, Watch)| async move {
        let woken = tokio::time::timeout(SECOND / 2, watch.next()).await.is_ok();
        (woken, driver, watch)
    };
    let (woken, asleep): (Vec<_>, Vec<_>) =
        join_all(waiting.into_iter().map(awake)).await.into_iter().partition(|(woken, ..)| *woken);
    assert_eq!((woken.len(), asleep.len()), (1, 9));
    assert_eq!(receive(&woken[0].1, 1, SECOND).await.deliveries.len(), 1);
    assert_eq!(places(&mut etcd).await, 9);
}

async fn places(etcd: &mut etcd_client::Client) -> i64 {
    let line = etcd_client::GetOptions::new().with_prefix().with_count_only();
    etcd.get("tenure:queue/wake/jobs/", Some(line)).await.unwrap().count()
}

/// Polls it so many times; tells whether it is ready by then.
async fn polled<F: Future>(times: usize, future: F) -> bool {
    let mut future = std::pin::pin!(future);
    let mut left = times;
    std::future::poll_fn(|context| {
        let ready = future.as_mut().poll(context).is_ready();
        left -= 1;
        if ready || left == 0 { Poll::Ready(ready) } else { Poll::Pending }
    })
    .await
}

/// Whatever requests a client gives up, it has one place at most; the others would wait for the second one for nothing.
#[tokio::test]
async fn a_client_that_gives_requests_up_has_one_place() {
    let cluster = server();
    let (waiting, mut etcd) = (driver(&cluster), raw(&cluster).await);
    let _watch = waiting.watch(&queue()).await.unwrap();
    assert!(receive(&waiting, 1, SECOND).await.deliveries.is_empty(), "it waits");
    for times in 1.. {
        // It does not know how things stand, and then takes a place.
        assert!(!polled(1, receive(&waiting, 1, SECOND)).await);
        let ready = polled(times, receive(&waiting, 1, SECOND)).await;
        assert!(receive(&waiting, 1, SECOND).await.deliveries.is_empty());
        assert_eq!(places(&mut etcd).await, 1, "given up after {times} polls");
        if ready {
            break;
        }
    }
}

/// It was woken, and nobody waits any more: it leaves when it hears of something again.
#[tokio::test]
async fn a_client_that_was_woken_and_never_asked_leaves_the_line() {
    let cluster = server();
    let (first, second, other) = (driver(&cluster), driver(&cluster), driver(&cluster));
    let mut etcd = raw(&cluster).await;
    let mut watch = first.watch(&queue()).await.unwrap();
    let _watch = second.watch(&queue()).await.unwrap();
    for driver in [&first, &second] {
        assert!(receive(driver, 1, SECOND).await.deliveries.is_empty(), "it waits");
    }
    other.push(&queue(), &[message(b"a")]).await.unwrap();
    tokio::time::timeout(PATIENCE, watch.next()).await.expect("woken");
    drop(watch);
    assert_eq!(receive(&other, 1, 60 * SECOND).await.deliveries.len(), 1);
    other.push(&queue(), &[delayed(60 * SECOND)]).await.unwrap();
    until("it has left", async || places(&mut etcd).await == 1).await;
}

/// A client that waits, and asks now and then, keeps its place: the lease of it does not end in between.
#[tokio::test]
async fn a_place_lasts_for_as_long_as_its_client_asks() {
    let cluster = server();
    let (waiting, mut etcd) = (driver(&cluster), raw(&cluster).await);
    let _watch = waiting.watch(&queue()).await.unwrap();
    assert!(receive(&waiting, 1, SECOND).await.deliveries.is_empty(), "it waits");
    let lease = etcd.leases().await.unwrap().leases()[0].id();
    let mut left = async || etcd.lease_time_to_live(lease, None).await.unwrap().ttl();
    while left().await >= 29 {
        tokio::time::sleep(SECOND).await; // until half of it has passed
    }
    assert!(receive(&waiting, 1, SECOND).await.deliveries.is_empty(), "it still waits");
    let left = left().await;
    assert!(left > 50, "{left} s are left");
}

/// Those in front never ask: they are dead, and etcd does not know of it yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_those_in_front_are_dead_another_one_asks_within_two_seconds() {
    let cluster = server();
    let mut dead = Vec::new();
    for _ in 0..3 {
        let driver = driver(&cluster);
        let watch = driver.watch(&queue()).await.unwrap();
        assert!(receive(&driver, 1, SECOND).await.deliveries.is_empty(), "it waits");
        dead.push((driver, watch));
    }
    let (_crowd, mut taken) = crowd(&cluster, 5);
    let producer = driver(&cluster);
    tokio::time::sleep(Duration::from_secs(3)).await;
    for (round, delay) in [0, 300, 0].into_iter().enumerate() {
        let delay = Duration::from_millis(delay);
        let due = Instant::now() + delay;
        producer.push(&queue(), &[delayed(delay)]).await.unwrap();
        let took = tokio::time::timeout(PATIENCE, taken.recv()).await.unwrap().unwrap();
        let late = took.saturating_duration_since(due);
        println!("due after {delay:?}: {late:?} late");
        assert!(late < Duration::from_secs(2), "{late:?} late");
        assert!(round == 0 || late < SECOND, "{late:?} late, though it is known that they are dead");
        tokio::time::sleep(SECOND / 2).await;
    }
}
