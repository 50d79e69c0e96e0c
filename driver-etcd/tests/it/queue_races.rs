//! Two clients that do something with one message at the same moment: one of them is refused by etcd, looks again, and
//! answers by what it finds then.

use std::time::Duration;

use crate::common::*;
use tenure_core::driver::{
    Cancelled, DeadSelection, Delay, DelayQueue as _, DelayQueueExt as _, Due, LockTurn, NewMessage, Pushed,
    Rescheduled, Settle, Settled, Settlement, TurnGiven,
};
use tenure_core::queue::MessageId;
use tenure_core::{FencingToken, OwnerToken};
use tenure_etcd::EtcdDriver;
use tenure_testkit::EtcdCluster;

/// So many times each.
const ROUNDS: usize = 10;

/// Two clients that are connected.
async fn pair(cluster: &EtcdCluster) -> (EtcdDriver, EtcdDriver) {
    let pair = (driver(cluster), driver(cluster));
    for driver in [&pair.0, &pair.1] {
        receive(driver, 1, SECOND).await;
    }
    pair
}

async fn push(driver: &EtcdDriver, message: NewMessage) -> MessageId {
    match driver.push(&queue(), &[message]).await.unwrap().remove(0) {
        Pushed::Stored(id) => id,
        other => panic!("{other:?}"),
    }
}

fn far() -> Delay {
    Delay::new(60 * SECOND).unwrap()
}

fn parked() -> NewMessage {
    message(b"a").with_due(Due::Parked { at_most: far() })
}

async fn purged(driver: &EtcdDriver) -> u64 {
    driver.purge(&queue(), 100, None).await.unwrap().removed
}

#[tokio::test]
async fn of_two_that_remove_a_message_one_does() {
    let cluster = server();
    let (one, other) = pair(&cluster).await;
    for _ in 0..ROUNDS {
        let id = push(&one, message(b"a")).await;
        let queue = queue();
        let (first, second) = tokio::join!(one.cancel(&queue, &id), other.cancel(&queue, &id));
        let mut reported = [first.unwrap(), second.unwrap()];
        reported.sort_by_key(|reported| *reported != Cancelled::Removed);
        assert_eq!(reported, [Cancelled::Removed, Cancelled::NotFound]);
    }
    for _ in 0..ROUNDS {
        push(&one, message(b"a")).await;
        let (first, second) = tokio::join!(purged(&one), purged(&other));
        assert_eq!(first + second, 1);
    }
}

#[tokio::test]
async fn what_is_put_off_is_not_delivered_before() {
    let cluster = server();
    let (one, other) = pair(&cluster).await;
    for _ in 0..ROUNDS {
        let id = push(&one, message(b"a")).await;
        let queue = queue();
        let (moved, received) =
            tokio::join!(one.reschedule(&queue, &id, far()), receive(&other, 1, Duration::from_secs(60)));
        match moved.unwrap() {
            Rescheduled::Moved => assert!(received.deliveries.is_empty()),
            Rescheduled::InFlight => assert_eq!(received.deliveries.len(), 1),
            answer => panic!("{answer:?}"),
        }
    }
}

/// The turn is given to the message where it is then, and to none that is in flight.
#[tokio::test]
async fn a_turn_is_given_once_more_when_the_message_has_moved() {
    let cluster = server();
    let (one, other) = pair(&cluster).await;
    for _ in 0..ROUNDS {
        let id = push(&one, parked()).await;
        let turn = LockTurn::new(name("lock"), OwnerToken::random(), FencingToken::new(7).unwrap());
        let queue = queue();
        let (given, moved) =
            tokio::join!(one.give_turn(&queue, &id, &turn), other.reschedule(&queue, &id, Delay::ZERO));
        assert_eq!((given.unwrap(), moved.unwrap()), (TurnGiven::Due, Rescheduled::Moved));
        let received = receive(&one, 1, SECOND).await.deliveries;
        assert_eq!(received[0].turn.as_ref(), Some(&turn));
        assert_eq!(ack(&one, &received).await, [Settled::Done]);
    }
}

#[tokio::test]
async fn each_dead_letter_is_brought_back_once() {
    let cluster = server();
    let (one, other) = pair(&cluster).await;
    for _ in 0..ROUNDS {
        let id = push(&one, message(b"a")).await;
        for which in [DeadSelection::Ids(vec![id.clone(), id]), DeadSelection::Oldest(5)] {
            let received = receive(&one, 1, SECOND).await.deliveries;
            let reject = Settle::new(received[0].receipt, Settlement::Dead { reason: None });
            assert_eq!(one.settle(&queue(), &[reject]).await.unwrap(), [Settled::Dead]);
            let queue = queue();
            let (first, second) = tokio::join!(
                one.dead_redrive(&queue, &which, Delay::ZERO),
                other.dead_redrive(&queue, &which, Delay::ZERO)
            );
            assert_eq!(first.unwrap().moved + second.unwrap().moved, 1, "{which:?}");
        }
        let received = receive(&one, 9, SECOND).await.deliveries;
        assert_eq!(ack(&one, &received).await, [Settled::Done]);
    }
}

#[tokio::test]
async fn a_delivery_is_settled_once() {
    let cluster = server();
    let (one, other) = pair(&cluster).await;
    for _ in 0..ROUNDS {
        push(&one, message(b"a")).await;
        let received = receive(&one, 1, 60 * SECOND).await.deliveries;
        let (first, second) = tokio::join!(ack(&one, &received), ack(&other, &received));
        let mut reported = [first[0], second[0]];
        reported.sort_by_key(|reported| *reported != Settled::Done);
        assert_eq!(reported, [Settled::Done, Settled::Stale]);
    }
}
