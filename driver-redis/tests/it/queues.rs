//! Delay queues against a real server.

use std::time::Duration;

use crate::common::queue::{
    ack, because, delay, key, known_as, lease, message, named, one, payloads, push, queue, receive, settle, soon, up_to,
};
use crate::common::{Client, keys, server};
use tenure_core::driver::{
    Attempts, Cancelled, Cause, DeadCause, DeadSelection, Delay, DelayQueueExt as _, Due, Exchanged, Extended,
    Extension, Flow, LockTurn, MessageState, Next, Payload, Pushed, Receipt, Rescheduled, Rest, Settle, Settled,
    Settlement, TurnGiven,
};
use tenure_core::queue::{MessageId, Reason};
use tenure_core::{ErrorKind, FencingToken, LockName, OwnerToken};

#[tokio::test]
async fn due_messages_come_in_order_and_leave_nothing_behind() {
    let server = server();
    let q = Client::of(&server).await.queues;
    let jobs = queue("jobs {1}");
    let batch = [message("late", 60_000), message("one", 0), message("two", 0), message("three", 0)];
    let pushed = q.push(&jobs, &batch).await.unwrap();
    let stats = q.stats(&jobs).await.unwrap();
    assert_eq!((stats.scheduled, stats.ready, stats.in_flight, stats.dead), (1, 3, 0, 0));
    let received = receive(&*q, &jobs, 2).await;
    assert_eq!(payloads(&received.deliveries), ["one", "two"]);
    assert_eq!(received.next, Next::Now);
    let first = &received.deliveries[0];
    assert_eq!((first.attempt, first.attempts, first.cause), (1, Attempts::DEFAULT, Cause::First));
    assert_eq!(Pushed::Stored(first.id.clone()), pushed[1]);
    assert!(first.fence < received.deliveries[1].fence);
    assert!(first.age >= first.late && first.age < Duration::from_secs(20), "{first:?}");
    let acks: Vec<Settle> = received.deliveries.iter().map(|d| Settle::new(d.receipt, Settlement::Ack)).collect();
    let Exchanged { settled, received: rest, .. } = q.exchange(&acks, &up_to(&jobs, 5)).await.unwrap();
    assert_eq!(settled, [Settled::Done, Settled::Done]);
    assert_eq!(payloads(&rest.deliveries), ["three"]);
    let Next::In(span) = rest.next else { panic!("{:?}", rest.next) };
    assert!(span > Duration::from_secs(20) && span <= Duration::from_secs(30), "the lease ends first: {span:?}");
    assert!(rest.deliveries[0].fence > received.deliveries[1].fence);
    let stats = q.stats(&jobs).await.unwrap();
    assert_eq!((stats.scheduled, stats.ready, stats.in_flight), (1, 0, 1));
    let next_due = stats.next_due.unwrap();
    assert!(next_due > Duration::from_secs(40) && next_due <= Duration::from_secs(60), "{next_due:?}");
    assert_eq!(ack(&*q, &jobs, &rest.deliveries[0]).await, Settled::Done);
    let Pushed::Stored(late) = &pushed[0] else { panic!("{pushed:?}") };
    assert_eq!(q.cancel(&jobs, late).await.unwrap(), Cancelled::Removed);
    assert_eq!(receive(&*q, &jobs, 5).await.next, Next::Never);
    assert!(q.list_queues(None, 10).await.unwrap().queues.is_empty());
    assert_eq!(keys(&server), ["{tenure:dq:jobs%20%7B1%7D}:n"], "its counters alone, which lapse");
}

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
async fn a_lease_that_ended_is_settled_but_not_extended_until_somebody_else_has_the_message() {
    let server = server();
    let q = Client::of(&server).await.queues;
    let jobs = queue("jobs");
    let id = push(&*q, &jobs, message("a", 0)).await;
    let short = up_to(&jobs, 1).with_lease(lease(10));
    let first = soon(&*q, &short).await;
    while q.get(&jobs, &id).await.unwrap().unwrap().state == MessageState::InFlight {}
    let extension = Extension::new(first.receipt, lease(60_000));
    assert_eq!(q.extend(&jobs, &[extension]).await.unwrap(), [Extended::Stale]);
    let stats = q.stats(&jobs).await.unwrap();
    assert_eq!((stats.scheduled, stats.ready, stats.in_flight), (0, 1, 0));
    assert_eq!(ack(&*q, &jobs, &first).await, Settled::Done);
    assert!(q.get(&jobs, &id).await.unwrap().is_none());
}

#[tokio::test]
async fn exhausted_and_rejected_messages_are_dead_and_come_back_on_request() {
    let server = server();
    let q = Client::of(&server).await.queues;
    let jobs = queue("jobs");
    let two = |text| message(text, 0).with_attempts(Attempts::new(2).unwrap());
    push(&*q, &jobs, two("retried")).await;
    let short = up_to(&jobs, 1).with_lease(lease(10));
    let retry = |text| Settlement::Retry { after: Delay::ZERO, reason: because(text) };
    let first = one(&*q, &jobs).await;
    assert_eq!(settle(&*q, &jobs, first.receipt, retry("once")).await, Settled::Done);
    let info = q.get(&jobs, &first.id).await.unwrap().unwrap();
    assert_eq!((info.reason, info.state, info.attempt), (because("once"), MessageState::Ready, 1));
    let second = one(&*q, &jobs).await;
    assert_eq!((second.attempt, second.cause), (2, Cause::Retried));
    assert_eq!(settle(&*q, &jobs, second.receipt, retry("twice")).await, Settled::Dead);
    push(&*q, &jobs, two("rejected")).await;
    let third = one(&*q, &jobs).await;
    let dead = Settlement::Dead { reason: because("") };
    assert_eq!(settle(&*q, &jobs, third.receipt, dead).await, Settled::Dead);
    push(&*q, &jobs, two("crashed")).await;
    soon(&*q, &short).await;
    soon(&*q, &short).await;
    let mut buried = 0;
    while buried == 0 {
        let received = receive(&*q, &jobs, 1).await;
        assert!(received.deliveries.is_empty());
        buried += received.healed.dead;
    }
    let page = q.dead_list(&jobs, None, 2).await.unwrap();
    assert_eq!((page.letters.len(), page.rest), (2, Rest::More));
    let last = q.dead_list(&jobs, Some(page.letters[1].place), 2).await.unwrap();
    assert_eq!((last.letters.len(), last.rest), (1, Rest::None));
    let letters: Vec<_> = page.letters.into_iter().chain(last.letters).collect();
    let told: Vec<_> = letters.iter().map(|l| (l.payload.as_bytes(), l.cause, l.reason.clone(), l.attempt)).collect();
    let expected = [
        (&b"retried"[..], DeadCause::Exhausted, because("twice"), 2),
        (b"rejected", DeadCause::Rejected, because(""), 1),
        (b"crashed", DeadCause::Exhausted, Some(Reason::lease_ended()), 2),
    ];
    assert_eq!(told, expected);
    let ids = DeadSelection::Ids(vec![letters[0].id.clone(), MessageId::assigned(1)]);
    let redriven = q.dead_redrive(&jobs, &ids, Delay::ZERO).await.unwrap();
    assert_eq!((redriven.moved, redriven.rest), (1, Rest::None));
    let back = one(&*q, &jobs).await;
    assert_eq!((back.attempt, back.cause, back.payload.as_bytes()), (1, Cause::Redriven, &b"retried"[..]));
    let purged = q.dead_purge(&jobs, &DeadSelection::Oldest(1)).await.unwrap();
    assert_eq!((purged.removed, purged.rest), (1, Rest::More));
    assert_eq!(q.stats(&jobs).await.unwrap().dead, 1);
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
async fn names_make_pushes_idempotent_beyond_the_acknowledgement() {
    let server = server();
    let q = Client::of(&server).await.queues;
    let jobs = queue("jobs");
    let named_message = || known_as("n\0{}", 60_000, message("a", 0));
    let plain = known_as("plain", 0, message("b", 60_000));
    let answers = q.push(&jobs, &[named_message(), named_message(), plain.clone()]).await.unwrap();
    let stored = |name: &str| Pushed::Stored(named(name));
    assert_eq!(answers, [stored("n\0{}"), Pushed::Duplicate(MessageState::Ready), stored("plain")]);
    let again = |state| [Pushed::Duplicate(state)];
    assert_eq!(q.push(&jobs, std::slice::from_ref(&plain)).await.unwrap(), again(MessageState::Scheduled));
    let delivery = one(&*q, &jobs).await;
    assert_eq!(delivery.id, named("n\0{}"));
    assert_eq!(q.push(&jobs, &[named_message()]).await.unwrap(), again(MessageState::InFlight));
    assert_eq!(ack(&*q, &jobs, &delivery).await, Settled::Done);
    assert_eq!(q.push(&jobs, &[named_message()]).await.unwrap(), again(MessageState::Settled));
    assert!(q.get(&jobs, &named("n\0{}")).await.unwrap().is_none());
    assert_eq!(q.cancel(&jobs, &named("plain")).await.unwrap(), Cancelled::Removed);
    assert_eq!(q.push(&jobs, &[plain]).await.unwrap(), [stored("plain")], "a cancelled one is free at once");
    assert_eq!(q.cancel(&jobs, &named("n\0{}")).await.unwrap(), Cancelled::NotFound);
    let short = known_as("short", 1, message("c", 0));
    push(&*q, &jobs, short.clone()).await;
    assert_eq!(ack(&*q, &jobs, &one(&*q, &jobs).await).await, Settled::Done);
    let started = std::time::Instant::now();
    while q.push(&jobs, std::slice::from_ref(&short)).await.unwrap() != [stored("short")] {
        assert!(started.elapsed() < crate::common::LONG);
    }
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
async fn one_message_of_a_key_is_in_flight() {
    let server = server();
    let q = Client::of(&server).await.queues;
    let jobs = queue("jobs");
    let keyed = |text, name| message(text, 0).with_key(key(name));
    let batch = [keyed("a1", "a"), keyed("a2", "a"), keyed("b1", "b"), keyed("a3", "a"), message("free", 0)];
    q.push(&jobs, &batch).await.unwrap();
    let received = receive(&*q, &jobs, 10).await;
    assert_eq!(payloads(&received.deliveries), ["a1", "b1", "free"]);
    let stats = q.stats(&jobs).await.unwrap();
    assert_eq!((stats.ready, stats.in_flight, stats.scheduled), (2, 3, 0));
    assert!(stats.lag > Duration::ZERO);
    assert!(receive(&*q, &jobs, 10).await.deliveries.is_empty());
    let a1 = &received.deliveries[0];
    let later = Settlement::Retry { after: delay(60_000), reason: None };
    assert_eq!(settle(&*q, &jobs, a1.receipt, later).await, Settled::Done);
    let next = receive(&*q, &jobs, 10).await;
    assert_eq!(payloads(&next.deliveries), ["a2"], "in the order of their due times");
    assert_eq!(q.reschedule(&jobs, &a1.id, Delay::ZERO).await.unwrap(), Rescheduled::Moved);
    let Exchanged { received: more, .. } =
        q.exchange(&[Settle::new(next.deliveries[0].receipt, Settlement::Ack)], &up_to(&jobs, 10)).await.unwrap();
    assert_eq!(payloads(&more.deliveries), ["a3"]);
    let purged = q.purge(&jobs, 10, None).await.unwrap();
    assert_eq!((purged.removed, purged.next), (1, None), "a1, which is held");
    assert_eq!(q.stats(&jobs).await.unwrap().in_flight, 3);
}

#[tokio::test]
async fn a_waiting_message_is_cancelled_moved_and_seen_as_it_is() {
    let server = server();
    let q = Client::of(&server).await.queues;
    let jobs = queue("jobs");
    let lock = LockName::new("a lock").unwrap();
    let full = known_as("id", 0, message("", 60_000))
        .with_payload(Payload::new([0, 0xff, b'\r', b'\n']).unwrap())
        .with_key(key("k"))
        .with_lock(Some(lock.clone()));
    push(&*q, &jobs, full.clone()).await;
    let info = q.get(&jobs, &named("id")).await.unwrap().unwrap();
    assert_eq!((info.payload, info.key, info.lock), (full.payload.clone(), key("k"), Some(lock)));
    assert_eq!((info.state, info.attempt), (MessageState::Scheduled, 0));
    assert!(info.due_in > Duration::from_secs(40) && info.due_in <= Duration::from_secs(60));
    assert_eq!(q.reschedule(&jobs, &named("id"), Delay::ZERO).await.unwrap(), Rescheduled::Moved);
    let delivery = one(&*q, &jobs).await;
    assert_eq!((&delivery.payload, &delivery.lock), (&full.payload, &full.lock));
    assert_eq!(q.cancel(&jobs, &named("id")).await.unwrap(), Cancelled::InFlight);
    assert_eq!(q.reschedule(&jobs, &named("id"), Delay::ZERO).await.unwrap(), Rescheduled::InFlight);
    assert_eq!(
        settle(&*q, &jobs, delivery.receipt, Settlement::Return { after: Default::default() }).await,
        Settled::Done
    );
    let again = one(&*q, &jobs).await;
    assert_eq!((again.attempt, again.cause), (1, Cause::Returned));
    let dead = Settlement::Dead { reason: None };
    assert_eq!(settle(&*q, &jobs, again.receipt, dead).await, Settled::Dead);
    assert_eq!(q.cancel(&jobs, &named("id")).await.unwrap(), Cancelled::Dead);
    assert_eq!(q.reschedule(&jobs, &named("id"), Delay::ZERO).await.unwrap(), Rescheduled::Dead);
    assert_eq!(q.push(&jobs, &[full]).await.unwrap(), [Pushed::Duplicate(MessageState::Dead)]);
    assert_eq!(q.reschedule(&jobs, &named("no"), Delay::ZERO).await.unwrap(), Rescheduled::NotFound);
}

#[tokio::test]
async fn a_pause_stops_deliveries_and_nothing_else_and_queues_are_listed() {
    let server = server();
    let q = Client::of(&server).await.queues;
    let names = ["", "b", "a", "c\0"].map(|suffix| queue(format!("q{suffix}")));
    for name in &names[1..] {
        push(&*q, name, message(&name.to_string(), 0)).await;
    }
    let delivery = one(&*q, &names[1]).await;
    for name in &names[..2] {
        q.pause(name).await.unwrap();
        q.pause(name).await.unwrap();
    }
    push(&*q, &names[1], message("more", 0)).await;
    assert_eq!(receive(&*q, &names[1], 5).await.next, Next::Paused);
    assert_eq!(q.stats(&names[1]).await.unwrap().flow, Flow::Paused);
    assert_eq!(ack(&*q, &names[1], &delivery).await, Settled::Done);
    let page = q.list_queues(None, 2).await.unwrap();
    assert_eq!((page.queues.as_slice(), page.rest), ([names[0].clone(), names[2].clone()].as_slice(), Rest::More));
    let page = q.list_queues(Some(names[2].clone()), 2).await.unwrap();
    assert_eq!((page.queues.as_slice(), page.rest), ([names[1].clone(), names[3].clone()].as_slice(), Rest::None));
    q.resume(&names[1]).await.unwrap();
    assert_eq!(payloads(&receive(&*q, &names[1], 5).await.deliveries), ["more"]);
    q.purge(&names[2], 5, None).await.unwrap();
    q.resume(&names[0]).await.unwrap();
    assert_eq!(q.list_queues(None, 9).await.unwrap().queues, [names[1].clone(), names[3].clone()]);
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

#[tokio::test]
async fn a_message_that_is_given_its_turn_brings_it_along_and_a_later_delivery_does_not() {
    let server = server();
    let q = Client::of(&server).await.queues;
    let jobs = queue("jobs");
    let lock = LockName::new("lock").unwrap();
    let parked = message("parked", 0).with_due(Due::Parked { at_most: delay(60_000) }).with_lock(Some(lock.clone()));
    let id = push(&*q, &jobs, parked).await;
    let turn = LockTurn::new(lock, OwnerToken::random(), FencingToken::new(77).unwrap());
    assert_eq!(q.give_turn(&jobs, &id, &turn).await.unwrap(), TurnGiven::Due);
    let first = one(&*q, &jobs).await;
    assert_eq!(first.turn, Some(turn));
    settle(&*q, &jobs, first.receipt, Settlement::Retry { after: Delay::ZERO, reason: because("again") }).await;
    let second = one(&*q, &jobs).await;
    assert_eq!((second.turn, second.reason), (None, because("again")));
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
