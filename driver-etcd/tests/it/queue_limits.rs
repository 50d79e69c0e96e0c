//! Limits of a queue over all clients.

#![allow(clippy::print_stdout, reason = "measurements")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use crate::common::*;
use futures_util::future::join_all;
use tenure_core::Client;
use tenure_core::driver::{
    Cancelled, Delay, DelayQueue as _, DelayQueueExt as _, Due, Healed, NewMessage, Next, Pushed, Settle, Settled,
    Settlement, Watch,
};
use tenure_core::queue::{ConcurrencyKey, QueueLimits, Rate};
use tenure_etcd::EtcdDriver;
use tenure_testkit::{EtcdCluster, Link, TcpProxy};

const MINUTE: Duration = Duration::from_secs(60);

fn in_flight(most: u32) -> QueueLimits {
    QueueLimits::none().in_flight(most).unwrap()
}

fn rate(deliveries: u32, per: Duration) -> QueueLimits {
    QueueLimits::none().rate(Rate::new(deliveries, per).unwrap())
}

fn due_after(delay: Duration) -> NewMessage {
    message(b"later").with_due(Due::After(Delay::new(delay).unwrap()))
}

/// Asks until nothing wakes the client any more: it sleeps since the queue is full.
async fn falls_asleep(driver: &EtcdDriver, watch: &mut Watch) {
    loop {
        let full = receive(driver, 1, MINUTE).await;
        assert!(full.deliveries.is_empty());
        if tokio::time::timeout(SECOND / 2, watch.next()).await.is_err() {
            assert!(matches!(full.next, Next::In(left) if left > MINUTE / 4), "until a lease ends: {:?}", full.next);
            return;
        }
    }
}

async fn is_woken(watch: &mut Watch) {
    tokio::time::timeout(5 * SECOND, watch.next()).await.expect("woken by the room, not by the end of a lease");
}

async fn push(driver: &EtcdDriver, count: usize) {
    driver.push(&queue(), &vec![message(b"x"); count]).await.unwrap();
}

#[tokio::test]
async fn what_is_set_is_seen_and_what_is_taken_away_leaves_nothing() {
    let cluster = server();
    let driver = driver(&cluster);
    let limits = in_flight(3).rate(Rate::new(7, MINUTE).unwrap());
    driver.limit(&queue(), &limits).await.unwrap();
    assert_eq!(driver.stats(&queue()).await.unwrap().limits, limits);
    assert_eq!(driver.list_queues(None, 9).await.unwrap().queues, [queue()]);
    push(&driver, 1).await;
    let got = receive(&driver, 1, MINUTE).await.deliveries;
    assert_eq!(ack(&driver, &got).await, [Settled::Done]);
    driver.limit(&queue(), &QueueLimits::none()).await.unwrap();
    assert!(driver.stats(&queue()).await.unwrap().limits.is_none());
    assert!(driver.list_queues(None, 9).await.unwrap().queues.is_empty());
    assert_eq!(key_count(&mut raw(&cluster).await).await, 0);
}

#[tokio::test]
async fn no_more_are_in_flight_than_said_and_a_settlement_wakes_who_waits() {
    let cluster = server();
    let (first, second) = (driver(&cluster), driver(&cluster));
    first.limit(&queue(), &in_flight(3)).await.unwrap();
    push(&first, 10).await;
    let mut watch = second.watch(&queue()).await.unwrap();
    let (one, other) = tokio::join!(receive(&first, 10, MINUTE), receive(&second, 10, MINUTE));
    assert_eq!(one.deliveries.len() + other.deliveries.len(), 3);
    let full = receive(&second, 10, MINUTE).await;
    assert_eq!((full.deliveries.len(), full.healed), (0, Healed::default()));
    let Next::In(left) = full.next else { panic!("{:?}", full.next) };
    assert!(left > MINUTE / 2, "until a lease ends, unless it is woken: {left:?}");
    while tokio::time::timeout(Duration::from_millis(100), watch.next()).await.is_ok() {} // by what is past
    let taken = [one.deliveries, other.deliveries].concat();
    ack(&first, &taken[..2]).await;
    tokio::time::timeout(PATIENCE, watch.next()).await.expect("woken");
    assert_eq!(receive(&second, 10, MINUTE).await.deliveries.len(), 2);
    // What is set anew counts at once.
    first.limit(&queue(), &in_flight(4)).await.unwrap();
    assert_eq!(receive(&first, 10, MINUTE).await.deliveries.len(), 1);
    first.limit(&queue(), &QueueLimits::none()).await.unwrap();
    assert_eq!(receive(&first, 10, MINUTE).await.deliveries.len(), 4);
}

#[tokio::test]
async fn a_lease_that_has_ended_makes_room() {
    let cluster = server();
    let driver = EtcdDriver::connect(&format!("{}/?clock_error_ms=0", cluster.url())).await.unwrap();
    driver.limit(&queue(), &in_flight(1)).await.unwrap();
    push(&driver, 2).await;
    assert_eq!(receive(&driver, 2, SECOND).await.deliveries.len(), 1);
    until("it ends", async || !receive(&driver, 2, SECOND).await.deliveries.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rate_is_kept_over_clients_that_take_from_each_other() {
    let cluster = server();
    let clients: Vec<_> = (0..4).map(|_| driver(&cluster)).collect();
    push(&clients[0], 25).await;
    clients[0].limit(&queue(), &rate(5, SECOND)).await.unwrap();
    let (begun, taken) = (Instant::now(), AtomicUsize::new(0));
    let consume = async |driver: &EtcdDriver| {
        while taken.load(Ordering::SeqCst) < 25 {
            let received = receive(driver, 3, MINUTE).await;
            let so_far = taken.fetch_add(received.deliveries.len(), Ordering::SeqCst) + received.deliveries.len();
            let allowed = 5.0 + 5.0 * begun.elapsed().as_secs_f64();
            assert!(so_far as f64 <= allowed, "{so_far}, though {allowed} were allowed");
            match received.next {
                Next::In(left) => tokio::time::sleep(left.min(SECOND)).await,
                _ => tokio::task::yield_now().await,
            }
        }
    };
    tokio::time::timeout(PATIENCE, join_all(clients.iter().map(consume))).await.unwrap();
    assert!(begun.elapsed() < 10 * SECOND, "{:?} for what takes four seconds", begun.elapsed());
}

#[tokio::test]
async fn who_waits_for_a_rate_does_not_wait_for_a_place() {
    let cluster = server();
    let driver = driver(&cluster);
    driver.limit(&queue(), &in_flight(10).rate(Rate::new(1, SECOND).unwrap())).await.unwrap();
    push(&driver, 2).await;
    let received = receive(&driver, 2, MINUTE).await;
    assert_eq!(received.deliveries.len(), 1);
    match received.next {
        Next::Now => {}
        Next::In(left) => assert!(left <= 2 * SECOND, "{left:?}, though nine places are free"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_clock_that_was_far_ahead_stops_a_rate_for_a_moment_only() {
    let cluster = server();
    let (driver, mut etcd) = (driver(&cluster), raw(&cluster).await);
    driver.limit(&queue(), &rate(2, SECOND)).await.unwrap();
    push(&driver, 1).await;
    let ahead = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap() + 60 * MINUTE;
    for full_at in [ahead.as_micros() as u64, u64::MAX] {
        etcd.put("tenure:queue/of/jobs/bucket", full_at.to_string(), None).await.unwrap();
        let begun = Instant::now();
        let received = receive(&driver, 1, MINUTE).await;
        assert!(received.deliveries.is_empty());
        assert!(matches!(received.next, Next::In(left) if left < 3 * SECOND), "{:?}", received.next);
        let mut got = Vec::new();
        until("there is a token", async || {
            got = receive(&driver, 1, MINUTE).await.deliveries;
            !got.is_empty()
        })
        .await;
        assert!(begun.elapsed() > SECOND, "{:?}: no token was there at first", begun.elapsed());
        let again = Settle::new(got[0].receipt, Settlement::Return { after: Delay::ZERO });
        assert_eq!(driver.settle(&queue(), &[again]).await.unwrap(), [Settled::Done]);
    }
}

#[tokio::test]
async fn a_delivery_that_was_not_made_takes_no_token() {
    let cluster = server();
    let driver = driver(&cluster);
    let keyed = || message(b"x").with_key(Some(ConcurrencyKey::new("k").unwrap()));
    driver.limit(&queue(), &rate(3, 24 * 60 * MINUTE)).await.unwrap();
    driver.push(&queue(), &[keyed()]).await.unwrap();
    assert_eq!(receive(&driver, 1, MINUTE).await.deliveries.len(), 1);
    driver.push(&queue(), &[keyed(), message(b"y")]).await.unwrap();
    assert_eq!(receive(&driver, 2, MINUTE).await.deliveries.len(), 1, "the key of the other one is in flight");
    push(&driver, 2).await;
    let last = receive(&driver, 9, MINUTE).await;
    assert_eq!(last.deliveries.len(), 1);
    assert!(matches!(last.next, Next::In(left) if left > MINUTE / 2), "{:?}", last.next);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_wait_take_turns_under_a_limit() {
    let cluster = server();
    let control = driver(&cluster);
    control.limit(&queue(), &in_flight(2)).await.unwrap();
    let (busy, handled) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let clients: Vec<_> = (0..6).map(|_| Client::new(driver(&cluster)).queue_of_bytes(b"jobs").unwrap()).collect();
    let consume = async |jobs: &tenure_core::queue::Queue<Vec<u8>>| {
        loop {
            let delivery = match jobs.receive().await {
                Err(error) if error.is_transient() => continue, // the machine is busy
                received => received.unwrap(),
            };
            assert!(busy.fetch_add(1, Ordering::SeqCst) < 2, "three at once");
            tokio::time::sleep(Duration::from_millis(10)).await;
            busy.fetch_sub(1, Ordering::SeqCst);
            delivery.ack().await.unwrap();
            handled.fetch_add(1, Ordering::SeqCst);
        }
    };
    let all = async {
        tokio::time::sleep(SECOND).await;
        let begun = Instant::now();
        push(&control, 40).await;
        until("all are handled", async || handled.load(Ordering::SeqCst) == 40).await;
        println!("40 messages, two at a time, in {:?}", begun.elapsed());
        assert!(begun.elapsed() < 8 * SECOND, "{:?}", begun.elapsed());
    };
    tokio::select! {
        _ = join_all(clients.iter().map(consume)) => unreachable!("they go on"),
        () = all => {}
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn room_is_used_by_what_becomes_due_later() {
    let cluster = server();
    let other = driver(&cluster);
    other.limit(&queue(), &in_flight(1)).await.unwrap();
    push(&other, 1).await;
    let first = receive(&other, 1, MINUTE).await.deliveries;
    let waiting = Client::new(driver(&cluster)).queue_of_bytes(b"jobs").unwrap();
    let due = Instant::now() + SECOND;
    other.push(&queue(), &[due_after(SECOND)]).await.unwrap();
    let settled = async {
        tokio::time::sleep(SECOND / 2).await;
        ack(&other, &first).await;
    };
    let (delivery, ()) = tokio::join!(tokio::time::timeout(PATIENCE, waiting.receive()), settled);
    delivery.unwrap().unwrap().ack().await.unwrap();
    let late = Instant::now().saturating_duration_since(due);
    assert!(late < SECOND / 2, "{late:?} late");
}

/// A lease has ended, but the queue is full: its message is handed out again as soon as there is room.
#[tokio::test]
async fn room_is_used_by_a_message_whose_lease_has_ended() {
    let cluster = server();
    let url = format!("{}/?clock_error_ms=0", cluster.url());
    let (other, waiting) = (EtcdDriver::connect(&url).await.unwrap(), EtcdDriver::connect(&url).await.unwrap());
    push(&other, 2).await;
    let lasting = receive(&other, 1, MINUTE).await.deliveries;
    assert_eq!(receive(&other, 1, SECOND).await.deliveries.len(), 1);
    until("its lease ends", async || other.stats(&queue()).await.unwrap().ready == 1).await;
    other.limit(&queue(), &in_flight(1)).await.unwrap();
    let mut watch = waiting.watch(&queue()).await.unwrap();
    falls_asleep(&waiting, &mut watch).await;
    ack(&other, &lasting).await;
    is_woken(&mut watch).await;
    assert_eq!(receive(&waiting, 1, MINUTE).await.deliveries.len(), 1);
}

/// The settlement left its client before the message was due, and reaches etcd after another client was told to wait.
#[tokio::test]
async fn room_of_a_settlement_that_was_slow_is_used() {
    let cluster = server();
    let proxy = TcpProxy::start(cluster.ports()[0]).unwrap();
    let slow = EtcdDriver::new(EtcdCluster::url_of(&[proxy.port()]).parse().unwrap());
    let (waiting, other) = (driver(&cluster), driver(&cluster));
    other.limit(&queue(), &in_flight(1)).await.unwrap();
    push(&other, 1).await;
    let taken = receive(&slow, 1, MINUTE).await.deliveries;
    let mut watch = waiting.watch(&queue()).await.unwrap();
    other.push(&queue(), &[due_after(SECOND / 5)]).await.unwrap();
    proxy.set_present(Link::Jammed);
    let settled = async {
        assert_eq!(ack(&slow, &taken).await, [Settled::Done]);
    };
    let freed = async {
        until("it is due", async || other.stats(&queue()).await.unwrap().ready == 1).await;
        falls_asleep(&waiting, &mut watch).await;
        proxy.set_present(Link::Open);
        is_woken(&mut watch).await;
        assert_eq!(receive(&waiting, 1, MINUTE).await.deliveries.len(), 1);
    };
    tokio::join!(settled, freed);
}

/// A client that met a full queue knows of nothing that is due later: it looks when there is room, though what was due then
/// is gone.
#[tokio::test]
async fn room_is_used_though_what_was_due_is_cancelled() {
    let cluster = server();
    let (waiting, other) = (driver(&cluster), driver(&cluster));
    other.limit(&queue(), &in_flight(1)).await.unwrap();
    push(&other, 1).await;
    let taken = receive(&other, 1, MINUTE).await.deliveries;
    let pushed = other.push(&queue(), &[message(b"due"), due_after(20 * SECOND)]).await.unwrap();
    let Pushed::Stored(due) = &pushed[0] else { panic!("{pushed:?}") };
    let mut watch = waiting.watch(&queue()).await.unwrap();
    falls_asleep(&waiting, &mut watch).await;
    assert_eq!(other.cancel(&queue(), due).await.unwrap(), Cancelled::Removed);
    ack(&other, &taken).await;
    is_woken(&mut watch).await;
    let reported = raw(&cluster).await.get("tenure:queue/wake/jobs", None).await.unwrap();
    assert_eq!(reported.kvs()[0].value(), b"0 1", "at once, also for a client whose clock is behind");
    let next = receive(&waiting, 1, MINUTE).await.next;
    assert!(matches!(next, Next::In(left) if left <= 20 * SECOND), "{next:?}");
}
