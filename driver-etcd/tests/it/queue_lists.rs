//! Lists, replacement, ends and recurrence of messages; and the largest requests.

use std::time::Duration;

use crate::common::*;
use tenure_core::driver::{
    Attempts, Cause, DeadCause, DeadSelection, Delay, DelayQueue as _, DelayQueueExt as _, Due, IfKnown, Lease,
    ListPlace, Listed, MessageInfo, MessageState, NamedId, NewMessage, Payload, Pushed, RawDelivery, ReceiveRequest,
    Rest, Settle, Settled, Settlement,
};
use tenure_core::queue::{ConcurrencyKey, MessageId, QueueName, Reason, Recurrence};
use tenure_core::{ErrorKind, LockName};
use tenure_etcd::EtcdDriver;

const MILLI: Duration = Duration::from_millis(1);

fn delay(span: Duration) -> Delay {
    Delay::new(span).unwrap()
}

fn later(payload: &[u8], span: Duration) -> NewMessage {
    message(payload).with_due(Due::After(delay(span)))
}

fn named(id: &str, message: NewMessage) -> NewMessage {
    message.with_id(Some(NamedId::new(MessageId::named(id).unwrap(), Delay::ZERO)))
}

fn replacing(id: &str, message: NewMessage) -> NewMessage {
    named(id, message).with_if_known(IfKnown::Replace)
}

async fn push(driver: &EtcdDriver, messages: &[NewMessage]) -> Vec<Pushed> {
    driver.push(&queue(), messages).await.unwrap()
}

/// All pages of so many, and how many there were.
async fn listed(driver: &EtcdDriver, which: Listed, max: usize) -> (Vec<MessageInfo>, usize) {
    let (mut all, mut from, mut pages) = (Vec::new(), None::<ListPlace>, 0);
    loop {
        let page = driver.list(&queue(), which, from, max).await.unwrap();
        assert!(page.messages.len() <= max);
        all.extend(page.messages);
        pages += 1;
        match page.next {
            Some(next) => from = Some(next),
            None => return (all, pages),
        }
    }
}

fn payloads(messages: &[MessageInfo]) -> Vec<u8> {
    messages.iter().map(|message| message.payload.as_bytes()[0]).collect()
}

async fn settle(driver: &EtcdDriver, delivery: &RawDelivery, how: Settlement) -> Settled {
    driver.settle(&queue(), &[Settle::new(delivery.receipt, how)]).await.unwrap()[0]
}

#[tokio::test]
async fn pages_have_each_message_once_in_the_order_of_their_times() {
    let cluster = server();
    let driver = driver(&cluster);
    let keyed = |payload| message(payload).with_key(Some(ConcurrencyKey::new("k").unwrap()));
    push(&driver, &[keyed(b"a"), message(b"b")]).await;
    assert_eq!(receive(&driver, 2, 30 * SECOND).await.deliveries.len(), 2);
    push(&driver, &[keyed(b"c")]).await;
    push(&driver, &[later(b"e", 90 * SECOND), later(b"d", 80 * SECOND), later(b"f", 90 * SECOND)]).await;
    assert!(receive(&driver, 1, 30 * SECOND).await.deliveries.is_empty(), "it is held back");
    for (max, pages) in [(1, 4), (3, 2), (100, 1)] {
        let (waiting, count) = listed(&driver, Listed::Waiting, max).await;
        assert_eq!((payloads(&waiting), count), (b"cdef".to_vec(), pages), "{max} a page");
        let states: Vec<_> = waiting.iter().map(|message| message.state).collect();
        assert_eq!(states, [&[MessageState::Ready][..], &[MessageState::Scheduled; 3]].concat());
    }
    let (in_flight, _) = listed(&driver, Listed::InFlight, 1).await;
    assert_eq!(payloads(&in_flight), b"ab");
    assert!(in_flight.iter().all(|message| message.state == MessageState::InFlight && message.attempt == 1));
}

#[tokio::test]
async fn large_messages_are_listed_and_a_damaged_one_is_left_out() {
    let cluster = server();
    let driver = driver(&cluster);
    for _ in 0..20 {
        push(&driver, &vec![later(&[7; 64 * 1024], 60 * SECOND); 5]).await;
    }
    let small = push(&driver, &[later(b"x", 60 * SECOND)]).await;
    let Pushed::Stored(id) = &small[0] else { panic!("{small:?}") };
    let body = format!("tenure:queue/of/jobs/b/{:016x}", id.as_number().unwrap());
    raw(&cluster).await.put(body, "another", None).await.unwrap();
    let (all, pages) = listed(&driver, Listed::Waiting, 100).await;
    assert_eq!((all.len(), pages), (100, 2));
}

#[tokio::test]
async fn a_lease_that_has_ended_makes_a_message_wait() {
    let cluster = server();
    let url = format!("{}/?clock_error_ms=0", cluster.url());
    let driver = EtcdDriver::connect(&url).await.unwrap();
    push(&driver, &[message(b"a")]).await;
    receive(&driver, 1, SECOND).await;
    assert_eq!(listed(&driver, Listed::Waiting, 9).await.0, []);
    until("the lease ends", async || listed(&driver, Listed::InFlight, 9).await.0.is_empty()).await;
    let (waiting, _) = listed(&driver, Listed::Waiting, 9).await;
    assert_eq!(waiting[0].state, MessageState::Ready);
}

#[tokio::test]
async fn a_message_that_waits_is_replaced_in_one_step() {
    let cluster = server();
    let driver = driver(&cluster);
    let id = || MessageId::named("id").unwrap();
    assert_eq!(push(&driver, &[replacing("id", later(b"1", 60 * SECOND))]).await, [Pushed::Stored(id())]);
    assert_eq!(push(&driver, &[replacing("id", later(b"2", 50 * SECOND))]).await, [Pushed::Replaced(id())]);
    let batch = [replacing("id", later(b"3", 40 * SECOND)), message(b"x"), replacing("id", message(b"4"))];
    let pushed = push(&driver, &batch).await;
    assert_eq!((&pushed[0], &pushed[2]), (&Pushed::Replaced(id()), &Pushed::Replaced(id())));
    assert_eq!(push(&driver, &[named("id", message(b"5"))]).await, [Pushed::Duplicate(MessageState::Ready)]);
    let got = receive(&driver, 9, 30 * SECOND).await.deliveries;
    let got_payloads: Vec<_> = got.iter().map(|delivery| delivery.payload.as_bytes()).collect();
    assert_eq!(got_payloads, [b"x", b"4"], "the last one of the batch has the greatest number");
    let in_flight = [Pushed::Duplicate(MessageState::InFlight)];
    assert_eq!(push(&driver, &[replacing("id", message(b"6"))]).await, in_flight);
    ack(&driver, &got).await;
    assert!(driver.list_queues(None, 10).await.unwrap().queues.is_empty());
    assert_eq!(key_count(&mut raw(&cluster).await).await, 0);
}

#[tokio::test]
async fn one_whose_lease_has_ended_makes_way_and_lets_the_next_of_its_key_continue() {
    let cluster = server();
    let driver = EtcdDriver::connect(&format!("{}/?clock_error_ms=0", cluster.url())).await.unwrap();
    let key = Some(ConcurrencyKey::new("k").unwrap());
    let keyed = |payload: &[u8]| message(payload).with_key(key.clone());
    push(&driver, &[named("id", keyed(b"a")), keyed(b"b")]).await;
    let old = receive(&driver, 2, SECOND).await.deliveries;
    assert_eq!(old.len(), 1);
    let state = async || driver.get(&queue(), &old[0].id).await.unwrap().unwrap().state;
    until("its lease ends", async || state().await == MessageState::Ready).await;
    let replaced = push(&driver, &[replacing("id", later(b"c", 60 * SECOND))]).await;
    assert_eq!(replaced, [Pushed::Replaced(old[0].id.clone())]);
    assert_eq!(ack(&driver, &old).await, [Settled::Stale]);
    let next = receive(&driver, 9, 30 * SECOND).await.deliveries;
    assert_eq!(next[0].payload.as_bytes(), b"b");
}

#[tokio::test]
async fn a_hundred_are_replaced_at_once_and_nothing_is_left() {
    let cluster = server();
    let driver = driver(&cluster);
    let batch = |span| (0..100).map(|at| replacing(&format!("id{at}"), later(b"x", span))).collect::<Vec<_>>();
    push(&driver, &batch(60 * SECOND)).await;
    let replaced = push(&driver, &batch(Duration::ZERO)).await;
    assert!(replaced.iter().all(|pushed| matches!(pushed, Pushed::Replaced(_))), "{replaced:?}");
    let got = receive(&driver, 100, 30 * SECOND).await.deliveries;
    assert_eq!((got.len(), ack(&driver, &got).await), (100, vec![Settled::Done; 100]));
    assert!(driver.list_queues(None, 10).await.unwrap().queues.is_empty());
    assert_eq!(key_count(&mut raw(&cluster).await).await, 0);
}

#[tokio::test]
async fn two_that_replace_at_once_leave_one_message() {
    let cluster = server();
    let (first, second) = (driver(&cluster), driver(&cluster));
    let mut stored = 0;
    for _ in 0..20 {
        let message = [replacing("id", later(b"x", 60 * SECOND))];
        let (one, other) = tokio::join!(push(&first, &message), push(&second, &message));
        stored += [one, other].iter().filter(|pushed| matches!(pushed[0], Pushed::Stored(_))).count();
    }
    assert_eq!((stored, listed(&first, Listed::Waiting, 9).await.0.len()), (1, 1));
}

#[tokio::test]
async fn a_message_that_comes_too_late_is_dead_and_a_redrive_takes_its_end_away() {
    let cluster = server();
    let driver = driver(&cluster);
    let ttl = |span, message: NewMessage| message.with_ttl(Some(delay(span)));
    let short = ttl(MILLI, message(b"late"));
    push(&driver, &[short, ttl(60 * SECOND, message(b"fresh"))]).await;
    tokio::time::sleep(20 * MILLI).await;
    let received = receive(&driver, 9, SECOND).await;
    assert_eq!((received.deliveries.len(), received.healed.dead), (1, 1));
    assert_eq!(received.deliveries[0].payload.as_bytes(), b"fresh");
    let info = driver.get(&queue(), &received.deliveries[0].id).await.unwrap().unwrap();
    assert!(info.expires_in.is_some_and(|left| left > 50 * SECOND && left <= 60 * SECOND));
    let dead = driver.dead_list(&queue(), None, 9).await.unwrap();
    assert_eq!((dead.letters[0].cause, dead.rest), (DeadCause::Expired, Rest::None));
    assert_eq!(dead.letters[0].attempt, 0);
    driver.dead_redrive(&queue(), &DeadSelection::Oldest(1), Delay::ZERO).await.unwrap();
    let again = receive(&driver, 1, 30 * SECOND).await.deliveries;
    assert_eq!((again[0].payload.as_bytes(), again[0].cause), (&b"late"[..], Cause::Redriven));
}

#[tokio::test]
async fn an_occurrence_that_is_over_makes_the_same_message_due_again() {
    let cluster = server();
    let driver = driver(&cluster);
    let schedule = |text: &str| Recurrence::new(text).unwrap();
    let first = named("nightly", message(b"x"))
        .with_recurrence(Some(schedule("every=1d")))
        .with_ttl(Some(delay(60 * SECOND)))
        .with_attempts(Attempts::new(2).unwrap());
    push(&driver, &[first]).await;
    let mut delivery = receive(&driver, 1, 30 * SECOND).await.deliveries.remove(0);
    assert_eq!(delivery.recurrence, Some(schedule("every=1d")));
    settle(&driver, &delivery, Settlement::Retry { after: Delay::ZERO, reason: None }).await;
    delivery = receive(&driver, 1, 30 * SECOND).await.deliveries.remove(0);
    assert_eq!(delivery.attempt, 2);
    let reason = Some(Reason::new("it failed twice").unwrap());
    let how = Settlement::Recur { after: Delay::ZERO, recurrence: schedule("every=2d"), reason: reason.clone() };
    assert_eq!(settle(&driver, &delivery, how.clone()).await, Settled::Done);
    assert_eq!(settle(&driver, &delivery, how).await, Settled::Stale);
    let info = driver.get(&queue(), &delivery.id).await.unwrap().unwrap();
    assert_eq!((info.expires_in, info.attempt), (None, 0));
    let again = receive(&driver, 1, 30 * SECOND).await.deliveries.remove(0);
    assert_eq!((again.attempt, again.cause, again.id), (1, Cause::First, delivery.id));
    assert_eq!((again.recurrence, again.reason), (Some(schedule("every=2d")), reason));
}

/// Every byte of these names is spelled as three.
#[tokio::test]
async fn the_largest_requests_are_taken_by_etcd_and_larger_ones_refused_before_they_are_sent() {
    let cluster = server();
    let driver = driver(&cluster);
    let caps = driver.capabilities();
    let queue = QueueName::new([255; QueueName::MAX_LEN]).unwrap();
    let recurrence = Recurrence::new("\u{fc}".repeat(Recurrence::MAX_LEN / 2)).unwrap();
    let reason = Some(Reason::new("\u{fc}".repeat(Reason::MAX_LEN / 2)).unwrap());
    let mut batch: Vec<_> = (0..caps.batch)
        .map(|at| {
            message(b"")
                .with_id(Some(NamedId::new(
                    MessageId::named([[255; 127].as_slice(), &[at as u8]].concat()).unwrap(),
                    delay(60 * SECOND),
                )))
                .with_key(Some(ConcurrencyKey::new([[255; 127].as_slice(), &[at as u8]].concat()).unwrap()))
                .with_lock(Some(LockName::new([255; LockName::MAX_LEN]).unwrap()))
                .with_recurrence(Some(recurrence.clone()))
                .with_if_known(IfKnown::Replace)
        })
        .collect();
    let names: usize = batch.iter().map(NewMessage::bytes).sum();
    let rest = (caps.request_bytes - names) / caps.batch;
    batch.iter_mut().for_each(|message| message.payload = Payload::new(vec![7; rest]).unwrap());
    for _ in 0..2 {
        driver.push(&queue, &batch).await.unwrap();
    }
    let receive_all = async || {
        let mut got = Vec::new();
        while got.len() < caps.batch {
            let request = ReceiveRequest::new(queue.clone(), caps.batch, Lease::new(60 * SECOND).unwrap());
            let received = driver.receive(&request).await.unwrap().deliveries;
            assert!(!received.is_empty());
            got.extend(received);
        }
        got
    };
    let settle_all = async |got: Vec<RawDelivery>, how: Settlement| {
        let settles: Vec<_> = got.iter().map(|delivery| Settle::new(delivery.receipt, how.clone())).collect();
        assert_eq!(driver.settle(&queue, &settles).await.unwrap(), vec![Settled::Done; caps.batch]);
    };
    settle_all(receive_all().await, Settlement::Recur { after: Delay::ZERO, recurrence, reason }).await;
    settle_all(receive_all().await, Settlement::Ack).await;
    batch[0].payload = Payload::new(vec![7; rest + caps.batch]).unwrap();
    assert_eq!(driver.push(&queue, &batch).await.unwrap_err().kind(), ErrorKind::InvalidArgument);
    let largest = vec![message(&vec![7; caps.payload]); caps.request_bytes / caps.payload];
    for _ in 0..10 {
        driver.push(&crate::common::queue(), &largest).await.unwrap();
    }
    let received = receive(&driver, 100, 30 * SECOND).await.deliveries;
    assert!(received.len() > 1, "what is handed out at once stays within what a client takes");
}

#[tokio::test]
async fn large_dead_letters_are_listed() {
    let cluster = server();
    let driver = driver(&cluster);
    for _ in 0..20 {
        push(&driver, &vec![message(&[7; 64 * 1024]); 5]).await;
        let got = receive(&driver, 5, 30 * SECOND).await.deliveries;
        for delivery in got {
            settle(&driver, &delivery, Settlement::Dead { reason: None }).await;
        }
    }
    let page = driver.dead_list(&queue(), None, 100).await.unwrap();
    assert_eq!((page.letters.len(), page.rest), (100, Rest::None));
}
