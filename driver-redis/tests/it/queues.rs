//! Delay queues against a real server.

use std::time::Duration;

use crate::common::queue::{ack, key, known_as, lease, message, named, one, push, queue, receive, settle, soon, up_to};
use crate::common::{Client, server};
use tenure_core::driver::{
    Cause, DeadCause, DeadSelection, Delay, DelayQueueExt as _, Extended, Extension, MessageState, Next, Pushed,
    Receipt, Rescheduled, Settle, Settled, Settlement,
};
use tenure_core::{ErrorKind, LockName};

#[tokio::test]
async fn only_the_valid_receipt_settles_and_extends() {
    let server = server();
    let q = Client::of(&server).await.queues;
    let jobs = queue("jobs");
    push(&*q, &jobs, message("a", 0)).await;
    let short = up_to(&jobs, 1).with_lease(lease(20));
    let first = soon(&*q, &short).await;
    let [number, fence, _] = first.receipt.parts();
    for forged in [[number, fence + 1, 0], [number + 1, fence, 0], [0, 0, 0], [number, 0, 0]] {
        assert_eq!(settle(&*q, &jobs, Receipt::new(forged), Settlement::Ack).await, Settled::Stale);
    }
    let second = soon(&*q, &up_to(&jobs, 1)).await;
    assert_eq!((second.cause, second.attempt), (Cause::LeaseExpired, 2));
    let stale = Extension::new(first.receipt, lease(60_000));
    let valid = Extension::new(second.receipt, lease(60_000));
    assert_eq!(q.extend(&jobs, &[stale, valid]).await.unwrap(), [Extended::Stale, Extended::Extended]);
    for how in [
        Settlement::Ack,
        Settlement::Return { after: Default::default() },
        Settlement::Dead { reason: None },
        Settlement::Retry { after: Delay::ZERO, reason: None },
        Settlement::Park { lock: LockName::new("l").unwrap(), at_most: Delay::ZERO },
    ] {
        assert_eq!(settle(&*q, &jobs, first.receipt, how).await, Settled::Stale);
    }
    let twice = [
        Settle::new(second.receipt, Settlement::Ack),
        Settle::new(second.receipt, Settlement::Return { after: Default::default() }),
    ];
    assert_eq!(q.settle(&jobs, &twice).await.unwrap(), [Settled::Done, Settled::Stale]);
    assert_eq!(receive(&*q, &jobs, 1).await.next, Next::Never);
}

#[tokio::test]
async fn a_full_place_for_dead_letters_postpones_and_a_full_queue_refuses_the_whole_batch() {
    let server = server();
    let settings = tenure_redis::RedisSettings::default().max_dead_letters(1).max_backlog(2).unwrap();
    let config = tenure_redis::RedisConfig::unix(server.socket()).settings(settings);
    let q = Client::with(config).await.queues;
    let jobs = queue("jobs");
    let error = q.push(&jobs, &[message("a", 0), message("b", 0), message("c", 0)]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitReached, "{error}");
    assert_eq!(receive(&*q, &jobs, 1).await.next, Next::Never);
    q.push(&jobs, &[message("a", 0), message("b", 0)]).await.unwrap();
    let both = receive(&*q, &jobs, 2).await.deliveries;
    let dead = || Settlement::Dead { reason: None };
    assert_eq!(settle(&*q, &jobs, both[0].receipt, dead()).await, Settled::Dead);
    assert_eq!(settle(&*q, &jobs, both[1].receipt, dead()).await, Settled::Postponed);
    let Next::In(span) = receive(&*q, &jobs, 1).await.next else { panic!("not waiting") };
    assert!(span > Duration::from_secs(40) && span <= Duration::from_secs(60), "{span:?}");
    assert_eq!(q.reschedule(&jobs, &both[1].id, Delay::ZERO).await.unwrap(), Rescheduled::Moved);
    let received = receive(&*q, &jobs, 1).await;
    assert_eq!((received.deliveries.len(), received.healed.postponed), (0, 1), "it is not delivered");
    q.dead_purge(&jobs, &DeadSelection::Oldest(9)).await.unwrap();
    assert_eq!(q.reschedule(&jobs, &both[1].id, Delay::ZERO).await.unwrap(), Rescheduled::Moved);
    assert_eq!(receive(&*q, &jobs, 1).await.healed.dead, 1);
    assert_eq!(q.dead_list(&jobs, None, 9).await.unwrap().letters[0].cause, DeadCause::Rejected);
}

#[tokio::test]
async fn a_full_queue_takes_no_new_message_and_answers_those_it_knows() {
    let server = server();
    let settings = tenure_redis::RedisSettings::default().max_backlog(2).unwrap();
    let q = Client::with(tenure_redis::RedisConfig::unix(server.socket()).settings(settings)).await.queues;
    let jobs = queue("jobs");
    let known = || known_as("known", 60_000, message("a", 0));
    q.push(&jobs, &[known(), message("b", 0)]).await.unwrap();
    let again = q.push(&jobs, &[known()]).await.unwrap();
    assert_eq!(again, [Pushed::Duplicate(MessageState::Ready)]);
    for more in [vec![message("c", 0)], vec![known(), message("c", 0)], vec![known_as("new", 0, message("c", 0))]] {
        assert_eq!(q.push(&jobs, &more).await.unwrap_err().kind(), ErrorKind::LimitReached);
    }
    assert_eq!(q.stats(&jobs).await.unwrap().ready, 2);
}

#[tokio::test]
async fn names_keys_and_locks_may_be_long_together() {
    let server = server();
    let q = Client::of(&server).await.queues;
    let jobs = queue("jobs");
    let (name, lock) = ("n".repeat(128), LockName::new("l".repeat(512)).unwrap());
    let long = known_as(&name, 1_000, message("long", 0)).with_key(key(&"k".repeat(128))).with_lock(Some(lock.clone()));
    q.push(&jobs, &[long]).await.unwrap();
    let delivery = one(&*q, &jobs).await;
    assert_eq!(
        (&delivery.id, delivery.key.clone(), delivery.lock.clone()),
        (&named(&name), key(&"k".repeat(128)), Some(lock))
    );
    assert_eq!(ack(&*q, &jobs, &delivery).await, Settled::Done);
}

/// A foreign hand struck the queue off the list.
#[tokio::test]
async fn a_queue_whose_dead_letters_come_back_is_listed() {
    let server = server();
    let q = Client::of(&server).await.queues;
    let jobs = queue("jobs");
    push(&*q, &jobs, message("a", 0)).await;
    let a = one(&*q, &jobs).await;
    settle(&*q, &jobs, a.receipt, Settlement::Dead { reason: None }).await;
    server.cli(&["DEL", "tenure:{dq}"]).unwrap();
    assert_eq!(q.dead_redrive(&jobs, &DeadSelection::Oldest(9), Delay::ZERO).await.unwrap().moved, 1);
    assert_eq!(q.list_queues(None, 9).await.unwrap().queues, [jobs]);
}
