//! How many requests each operation on a queue sends to etcd.

use std::time::Duration;

use crate::common::*;
use tenure_core::driver::{
    DeadSelection, Delay, DelayQueue as _, DelayQueueExt as _, Due, Extended, Extension, IfKnown, Lease, Listed,
    LockTurn, NamedId, NewMessage, Pushed, QueueAdmin as _, Settle, Settled, Settlement,
};
use tenure_core::queue::{ConcurrencyKey, MessageId, QueueLimits, Rate};
use tenure_core::{FencingToken, OwnerToken};
use tenure_etcd::EtcdDriver;
use tenure_testkit::EtcdCluster;

const LEASE: Duration = Duration::from_secs(60);

fn id(text: &str) -> MessageId {
    MessageId::named(text).unwrap()
}

fn named(text: &str) -> NewMessage {
    message(b"a").with_id(Some(NamedId::new(id(text), Delay::ZERO)))
}

fn keyed(key: &str) -> NewMessage {
    message(b"a").with_key(Some(ConcurrencyKey::new(key).unwrap()))
}

fn later() -> NewMessage {
    message(b"a").with_due(Due::After(Delay::new(LEASE).unwrap()))
}

/// The requests that etcd is sent while this is done, and what comes of it.
async fn cost<T>(cluster: &EtcdCluster, done: impl Future<Output = T>) -> (u64, T) {
    let metric = || cluster.metric(0, "grpc_server_started_total{");
    // A busy server may not answer at once what its metrics are.
    let requests = || (0..5).find_map(|_| metric().ok()).expect("metrics") as u64;
    let before = requests();
    let answer = done.await;
    (requests() - before, answer)
}

/// A client that has connected, and knows the base of fences.
async fn client(cluster: &EtcdCluster) -> EtcdDriver {
    let driver = driver(cluster);
    warm(&driver).await;
    driver
}

async fn warm(driver: &EtcdDriver) {
    driver.push(&queue(), &[message(b"a")]).await.unwrap();
    let received = receive(driver, 1, LEASE).await.deliveries;
    ack(driver, &received).await;
}

macro_rules! costs {
    ($cluster:expr, $done:expr, $requests:literal) => {{
        let (requests, answer) = cost(&$cluster, $done).await;
        assert_eq!(requests, $requests, stringify!($done));
        answer
    }};
}

#[tokio::test]
async fn what_a_delivery_costs() {
    let cluster = server();
    let (driver, other) = (client(&cluster).await, client(&cluster).await);
    warm(&driver).await; // the other one may have raised the base
    let queue = queue();
    costs!(cluster, driver.push(&queue, &[message(b"a"), message(b"b")]), 1).unwrap();
    let received = costs!(cluster, receive(&driver, 2, LEASE), 3);
    assert_eq!(received.deliveries.len(), 2);
    let extend = |lease: u64| {
        let lease = Lease::new(Duration::from_secs(lease)).unwrap();
        [Extension::new(received.deliveries[0].receipt, lease)]
    };
    costs!(cluster, driver.extend(&queue, &extend(70)), 1).unwrap();
    costs!(cluster, driver.extend(&queue, &extend(80)), 1).unwrap();
    costs!(cluster, driver.extend(&queue, &extend(10)), 0).unwrap();
    costs!(cluster, other.extend(&queue, &extend(90)), 4).unwrap();
    costs!(cluster, other.extend(&queue, &extend(95)), 1).unwrap();
    // Where the first one thought it was, where its pointer says, and where it is.
    costs!(cluster, driver.extend(&queue, &extend(99)), 5).unwrap();
    costs!(cluster, ack(&driver, &received.deliveries), 1);
    costs!(cluster, ack(&driver, &received.deliveries), 2);
    costs!(cluster, receive(&driver, 1, LEASE), 2);
    // Where a lease that it gives out ends soon, it need not look when the next message is due.
    driver.push(&queue, &[message(b"a")]).await.unwrap();
    costs!(cluster, receive(&driver, 1, SECOND), 2);
}

#[tokio::test]
async fn what_ids_keys_limits_and_dead_letters_cost() {
    let cluster = server();
    let driver = client(&cluster).await;
    let queue = queue();
    costs!(cluster, driver.push(&queue, &[named("a"), named("b")]), 2).unwrap();
    costs!(cluster, driver.push(&queue, &[named("a")]), 3).unwrap();
    costs!(cluster, driver.push(&queue, &[named("a").with_if_known(IfKnown::Replace)]), 4).unwrap();
    let received = costs!(cluster, receive(&driver, 9, LEASE), 3).deliveries;
    let dead = |at: usize| [Settle::new(received[at].receipt, Settlement::Dead { reason: None })];
    costs!(cluster, driver.settle(&queue, &dead(0)), 2).unwrap();
    costs!(cluster, driver.settle(&queue, &dead(1)), 2).unwrap();
    costs!(cluster, driver.dead_list(&queue, None, 9), 2).unwrap();
    costs!(cluster, driver.dead_redrive(&queue, &DeadSelection::Ids(vec![id("a"), id("a")]), Delay::ZERO), 4).unwrap();
    costs!(cluster, driver.dead_redrive(&queue, &DeadSelection::Oldest(5), Delay::ZERO), 3).unwrap();
    let received = costs!(cluster, receive(&driver, 2, LEASE), 3).deliveries;
    ack(&driver, &received).await;
    // What a key holds back goes on with the settlement of what is in flight.
    driver.push(&queue, &[keyed("k"), keyed("k")]).await.unwrap();
    let received = costs!(cluster, receive(&driver, 9, LEASE), 5);
    assert_eq!(received.deliveries.len(), 1);
    costs!(cluster, ack(&driver, &received.deliveries), 4);
    let received = costs!(cluster, receive(&driver, 1, LEASE), 3);
    driver.push(&queue, &[keyed("k")]).await.unwrap();
    assert!(receive(&driver, 1, LEASE).await.deliveries.is_empty(), "it is held back");
    driver.push(&queue, &[message(b"a")]).await.unwrap();
    let beside = costs!(cluster, receive(&driver, 1, LEASE), 3);
    costs!(cluster, ack(&driver, &beside.deliveries), 1);
    costs!(cluster, ack(&driver, &received.deliveries), 4);
    let received = receive(&driver, 1, LEASE).await;
    costs!(cluster, ack(&driver, &received.deliveries), 2);
    costs!(cluster, driver.limit(&queue, &QueueLimits::none().in_flight(2).unwrap()), 1).unwrap();
    driver.push(&queue, &[message(b"a"), message(b"b"), message(b"c")]).await.unwrap();
    let received = costs!(cluster, receive(&driver, 1, LEASE), 3);
    costs!(cluster, ack(&driver, &received.deliveries), 1);
    let rate = Rate::new(100, Duration::from_secs(1)).unwrap();
    costs!(cluster, driver.limit(&queue, &QueueLimits::none().rate(rate)), 1).unwrap();
    costs!(cluster, receive(&driver, 9, LEASE), 3);
}

#[tokio::test]
async fn what_operators_do_costs() {
    let cluster = server();
    let driver = client(&cluster).await;
    let queue = queue();
    let parked = message(b"a").with_due(Due::Parked { at_most: Delay::new(LEASE).unwrap() });
    let pushed = driver.push(&queue, &[parked]).await.unwrap();
    let Pushed::Stored(parked) = &pushed[0] else { panic!("{pushed:?}") };
    let turn = LockTurn::new(name("lock"), OwnerToken::random(), FencingToken::new(7).unwrap());
    costs!(cluster, driver.give_turn(&queue, parked, &turn), 3).unwrap();
    driver.pause(&queue).await.unwrap();
    costs!(cluster, driver.give_turn(&queue, parked, &turn), 3).unwrap();
    driver.resume(&queue).await.unwrap();
    costs!(cluster, driver.cancel(&queue, parked), 3).unwrap();
    driver.push(&queue, &[named("a"), named("b"), later(), later()]).await.unwrap();
    costs!(cluster, driver.get(&queue, &id("a")), 4).unwrap();
    costs!(cluster, driver.list(&queue, Listed::Waiting, None, 9), 2).unwrap();
    costs!(cluster, driver.stats(&queue), 1).unwrap();
    costs!(cluster, driver.reschedule(&queue, &id("a"), Delay::ZERO), 4).unwrap();
    costs!(cluster, driver.cancel(&queue, &id("a")), 4).unwrap();
    costs!(cluster, driver.cancel(&queue, &id("a")), 1).unwrap();
    costs!(cluster, driver.list_queues(None, 9), 2).unwrap();
    costs!(cluster, driver.pause(&queue), 1).unwrap();
    costs!(cluster, receive(&driver, 1, LEASE), 1);
    costs!(cluster, driver.resume(&queue), 1).unwrap();
    costs!(cluster, driver.purge(&queue, 1, None), 2).unwrap();
    costs!(cluster, driver.purge(&queue, 9, None), 2).unwrap();
    costs!(cluster, driver.list_queues(None, 9), 3).unwrap();
}

#[tokio::test]
async fn settlements_of_one_message_are_sent_one_after_the_other_and_those_of_several_together() {
    let cluster = server();
    let driver = client(&cluster).await;
    let queue = queue();
    driver.push(&queue, &[b"a", b"b", b"c"].map(|payload| message(payload))).await.unwrap();
    let received = receive(&driver, 3, LEASE).await.deliveries;
    let extend =
        |at: usize, lease: u64| Extension::new(received[at].receipt, Lease::new(Duration::from_secs(lease)).unwrap());
    let extensions = [extend(0, 70), extend(1, 70), extend(0, 80)];
    assert_eq!(costs!(cluster, driver.extend(&queue, &extensions), 2).unwrap(), [Extended::Extended; 3]);
    let settle = |at: usize, how: Settlement| Settle::new(received[at].receipt, how);
    let dead = Settlement::Dead { reason: None };
    let settles = [settle(0, dead), settle(1, Settlement::Ack)];
    let answers = costs!(cluster, driver.settle(&queue, &settles), 2).unwrap();
    assert_eq!(answers, [Settled::Dead, Settled::Done]);
    // What is not known any more is looked for where it was, and where its pointer says.
    let retry = Settlement::Retry { after: Delay::ZERO, reason: None };
    let settles =
        [settle(2, retry), settle(2, Settlement::Ack), settle(0, Settlement::Ack), settle(1, Settlement::Ack)];
    let answers = costs!(cluster, driver.settle(&queue, &settles), 7).unwrap();
    assert_eq!(answers, [Settled::Done, Settled::Stale, Settled::Stale, Settled::Stale]);
    assert_eq!(driver.extend(&queue, &[extend(2, 70)]).await.unwrap(), [Extended::Stale]);
}
