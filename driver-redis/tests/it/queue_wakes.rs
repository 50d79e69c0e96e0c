//! Who is woken when a message becomes due sooner, and what holds when nobody is.

use std::time::Duration;

use crate::common::queue::{ack, delay, key, known_as, message, named, one, push, queue, receive, settle};
use crate::common::{Client, LONG, server, woken};
use tenure_core::driver::{DeadSelection, Delay, Next, QueueAdmin, Rescheduled, Settled, Settlement, Watch};
use tenure_core::queue::{QueueLimits, QueueName};
use tenure_testkit::RedisServer;

/// Asks in vain, as a client does that was woken; from then on it may be woken again.
async fn waits(q: &dyn QueueAdmin, jobs: &QueueName) {
    assert!(receive(q, jobs, 1).await.deliveries.is_empty());
}

/// Whether no wake-up has come by the time that the server has answered everything sent before.
async fn sleeps(q: &dyn QueueAdmin, jobs: &QueueName, watch: &mut Watch) -> bool {
    q.stats(jobs).await.unwrap(); // pushes of earlier commands precede this reply
    tokio::time::timeout(Duration::from_millis(50), watch.next()).await.is_err()
}

#[tokio::test]
async fn only_what_is_sooner_than_all_else_wakes() {
    let server = server();
    let (one_client, other) = (Client::of(&server).await, Client::of(&server).await);
    let (q, jobs) = (&*other.queues, queue("jobs"));
    let mut watch = one_client.queues.watch(&jobs).await.unwrap();
    let mut elsewhere = one_client.queues.watch(&queue("elsewhere")).await.unwrap();
    let listener = &*one_client.queues;
    push(q, &jobs, known_as("x", 0, message("first of all", 12_000))).await;
    assert!(woken(&mut watch).await);
    push(q, &jobs, message("later", 90_000)).await;
    push(q, &jobs, known_as("y", 0, message("later too", 90_000))).await;
    assert!(sleeps(listener, &jobs, &mut watch).await, "later than the first");
    waits(listener, &jobs).await;
    push(q, &jobs, message("sooner", 8_000)).await;
    assert!(woken(&mut watch).await);
    assert_eq!(q.reschedule(&jobs, &named("y"), delay(30_000)).await.unwrap(), Rescheduled::Moved);
    assert!(sleeps(listener, &jobs, &mut watch).await);
    waits(listener, &jobs).await;
    assert_eq!(q.reschedule(&jobs, &named("y"), delay(5_000)).await.unwrap(), Rescheduled::Moved);
    assert!(woken(&mut watch).await, "rescheduled to be the first");
    q.cancel(&jobs, &named("y")).await.unwrap();
    assert!(sleeps(listener, &jobs, &mut watch).await, "nothing is sooner after the first was cancelled");
    assert!(sleeps(listener, &jobs, &mut elsewhere).await, "another queue");
    drop(watch);
    push(q, &jobs, message("now", 0)).await; // nobody watches any more, which must be harmless
    assert_eq!(one(q, &jobs).await.payload.as_bytes(), b"now");
}

#[tokio::test]
async fn settlements_keys_redrives_and_resumptions_wake() {
    let server = server();
    let client = Client::of(&server).await;
    let (q, jobs) = (&*client.queues, queue("jobs"));
    let keyed = |text| message(text, 0).with_key(key("k"));
    q.push(&jobs, &[keyed("a"), keyed("b")]).await.unwrap();
    let a = one(q, &jobs).await;
    assert!(receive(q, &jobs, 1).await.deliveries.is_empty());
    let mut watch = q.watch(&jobs).await.unwrap();
    assert_eq!(ack(q, &jobs, &a).await, Settled::Done);
    assert!(woken(&mut watch).await, "the key is free");
    let b = one(q, &jobs).await;
    assert!(sleeps(q, &jobs, &mut watch).await);
    waits(q, &jobs).await;
    let retry = Settlement::Retry { after: delay(1), reason: None };
    assert_eq!(settle(q, &jobs, b.receipt, retry).await, Settled::Done);
    assert!(woken(&mut watch).await, "sooner than its lease would have ended");
    let b = crate::common::queue::soon(q, &crate::common::queue::up_to(&jobs, 1)).await;
    assert_eq!(settle(q, &jobs, b.receipt, Settlement::Dead { reason: None }).await, Settled::Dead);
    assert!(sleeps(q, &jobs, &mut watch).await);
    waits(q, &jobs).await;
    q.dead_redrive(&jobs, &DeadSelection::Oldest(1), Delay::ZERO).await.unwrap();
    assert!(woken(&mut watch).await, "redriven");
    q.pause(&jobs).await.unwrap();
    waits(q, &jobs).await;
    assert!(sleeps(q, &jobs, &mut watch).await);
    q.resume(&jobs).await.unwrap();
    assert!(woken(&mut watch).await, "resumed");
}

#[tokio::test]
async fn one_is_woken_and_one_in_case_it_is_dead_and_a_client_that_is_gone_is_forgotten() {
    let server = server();
    let jobs = queue("jobs");
    let mut clients = watching(&server, &jobs).await;
    let gone = Client::of(&server).await;
    drop(gone.queues.watch(&jobs).await.unwrap());
    gone.locks.close().await;
    push(&*clients[0].0.queues, &jobs, message("a", 0)).await;
    assert_eq!(awake(&mut clients, &jobs).await, 2);
    assert_eq!(server.cli(&["ZCARD", "{tenure:dq:jobs}:c"]).unwrap().int(), Some(5), "the closed client is forgotten");
}

/// As many for one that is due later.
#[tokio::test]
async fn one_is_woken_for_what_is_due_later_and_one_in_case_it_is_dead() {
    let server = server();
    let jobs = queue("jobs");
    let mut clients = watching(&server, &jobs).await;
    push(&*clients[0].0.queues, &jobs, message("sooner than they ask", 5_000)).await;
    assert_eq!(awake(&mut clients, &jobs).await, 2);
}

#[tokio::test]
async fn room_below_a_limit_wakes() {
    let server = server();
    let client = Client::of(&server).await;
    let (q, jobs) = (&*client.queues, queue("jobs"));
    q.limit(&jobs, &QueueLimits::none().in_flight(1).unwrap()).await.unwrap();
    q.push(&jobs, &[message("a", 0), message("b", 0)]).await.unwrap();
    let a = one(q, &jobs).await;
    let mut watch = q.watch(&jobs).await.unwrap();
    waits(q, &jobs).await;
    assert!(sleeps(q, &jobs, &mut watch).await, "there is no room");
    assert_eq!(ack(q, &jobs, &a).await, Settled::Done);
    assert!(woken(&mut watch).await);
    assert_eq!(one(q, &jobs).await.payload.as_bytes(), b"b");
}

type Watching = (Client, [Watch; 2]);

/// Five clients that watch the queue twice each.
async fn watching(server: &RedisServer, jobs: &QueueName) -> Vec<Watching> {
    let mut clients = Vec::new();
    for _ in 0..5 {
        let client = Client::of(server).await;
        let watches = [client.queues.watch(jobs).await.unwrap(), client.queues.watch(jobs).await.unwrap()];
        clients.push((client, watches));
    }
    clients
}

/// How many of them are woken.
async fn awake(clients: &mut [Watching], jobs: &QueueName) -> u32 {
    let mut awake = 0;
    for (client, [one, other]) in clients {
        let sleeps = sleeps(&*client.queues, jobs, one).await;
        assert!(sleeps || woken(other).await, "both watches of a client, or none");
        awake += u32::from(!sleeps);
    }
    awake
}

/// A receive with a watch makes the server listen for the client again.
#[tokio::test]
async fn a_server_that_forgot_who_waits_learns_it_from_the_next_receive() {
    let server = server();
    let client = Client::of(&server).await;
    let (q, jobs) = (&*client.queues, queue("jobs"));
    let mut watch = q.watch(&jobs).await.unwrap();
    server.cli(&["FLUSHALL"]).unwrap();
    push(q, &jobs, message("unheard", 60_000)).await;
    assert!(sleeps(q, &jobs, &mut watch).await, "the notification is lost");
    let Next::In(span) = receive(q, &jobs, 1).await.next else { panic!("not waiting") };
    assert!(span <= Duration::from_secs(60), "each further request returns the time");
    push(q, &jobs, message("heard", 1_000)).await;
    assert!(woken(&mut watch).await);
}

fn cut(server: &RedisServer) {
    for kind in ["normal", "pubsub"] {
        server.cli(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]).unwrap();
    }
}

#[tokio::test]
async fn after_a_gap_in_the_link_every_watcher_asks() {
    let server = server();
    let (client, other) = (Client::of(&server).await, Client::of(&server).await);
    let jobs = queue("jobs");
    let mut watches = [client.queues.watch(&jobs).await.unwrap(), client.queues.watch(&queue("x")).await.unwrap()];
    cut(&server);
    for watch in &mut watches {
        assert!(woken(watch).await);
    }
    assert_eq!(receive(&*client.queues, &jobs, 1).await.next, Next::Never);
    let started = std::time::Instant::now();
    while let Err(error) = other.queues.push(&jobs, &[message("a", 0)]).await {
        assert!(error.is_transient() && started.elapsed() < LONG, "{error}");
    }
    assert!(woken(&mut watches[0]).await);
}
