//! Damage by a foreign hand: a message that cannot be read harms no other, and can be seen and removed.

use std::time::Duration;

use crate::common::queue::{
    ack, delay, key, known_as, lease, message, named, payloads, push, queue, receive, settle, up_to,
};
use crate::common::{Client, server};
use tenure_core::driver::{
    Cancelled, DeadCause, DeadSelection, Delay, DelayQueue, DelayQueueExt as _, Due, MessageState, NewMessage, Pushed,
    RawDelivery, Settled, Settlement,
};
use tenure_core::queue::{MessageId, QueueName};
use tenure_testkit::RedisServer;

fn put(server: &RedisServer, hash: &str, field: &[u8], value: &[u8]) {
    let place = format!("{{tenure:dq:jobs}}:{hash}");
    server.connect().unwrap().call(&[b"HSET", place.as_bytes(), field, value]).unwrap();
}

fn number(id: &MessageId) -> String {
    format!("{:014x}", id.as_number().unwrap())
}

/// Everything that can be had, in however many requests.
async fn drain(q: &dyn DelayQueue, jobs: &QueueName) -> Vec<RawDelivery> {
    let mut all = Vec::new();
    for _ in 0..20 {
        all.extend(q.receive(&up_to(jobs, 100)).await.expect("damage fails no request").deliveries);
    }
    all
}

async fn nothing_is_left(server: &RedisServer, q: &dyn DelayQueue) {
    assert!(q.list_queues(None, 9).await.unwrap().queues.is_empty());
    assert_eq!(crate::common::keys(server), ["{tenure:dq:jobs}:n"], "its counters alone");
}

/// What a record may have become.
const RECORDS: [&[u8]; 11] = [
    b"",
    b"0",
    b"000a",
    b"000a+F0000",
    b"0000-none of its attempts",
    b"zzzz-digits",
    b"ffff-more attempts than there may be",
    b"000a+F0000000000000000000000000000ffff00000000lengths beyond the end",
    b"000a+F0000000000000000000000000000010000000000",
    b"000a+F0000000000000000000000000000f000000000000a name that is longer than names are, though it does not end before the record does: \
      a name that is longer than names are, though it does not end before the record does, which is here, at least: \
      and here, and so on, until two hundred and forty are over, long over",
    b"\x00\xff\r\nforeign",
];

/// Those, and two whose lock or recurrence is longer than any is.
fn records() -> Vec<Vec<u8>> {
    let long =
        |lengths: &str, count| [b"000a+F0000000000000000000000000000", lengths.as_bytes(), &vec![b'l'; count]].concat();
    let mut all: Vec<Vec<u8>> = RECORDS.iter().map(|record| record.to_vec()).collect();
    all.extend([long("000002010000", 0x201), long("000000000101", 0x101)]);
    all
}

#[tokio::test]
async fn damaged_records_die_by_themselves_and_harm_no_other() {
    let server = server();
    let q = Client::of(&server).await.queues;
    let jobs = queue("jobs");
    let mut bad = Vec::new();
    let records = records();
    for (i, record) in records.iter().enumerate() {
        push(&*q, &jobs, message(&format!("good {i}"), 0)).await;
        let id = push(&*q, &jobs, message("bad", 0)).await;
        put(&server, "m", number(&id).as_bytes(), record);
        bad.push(id);
    }
    let good = drain(&*q, &jobs).await;
    assert_eq!(payloads(&good), (0..records.len()).map(|i| format!("good {i}")).collect::<Vec<_>>());
    for delivery in &good {
        assert_eq!(ack(&*q, &jobs, delivery).await, Settled::Done);
    }
    let stats = q.stats(&jobs).await.unwrap();
    assert_eq!((stats.ready, stats.scheduled, stats.in_flight, stats.dead), (0, 0, 0, bad.len() as u64));
    let letters = q.dead_list(&jobs, None, 100).await.unwrap().letters;
    assert_eq!(letters.iter().map(|letter| &letter.id).collect::<Vec<_>>(), bad.iter().collect::<Vec<_>>());
    for (letter, record) in letters.iter().zip(records) {
        assert_eq!((letter.cause, letter.payload.as_bytes()), (DeadCause::Damaged, &*record));
        assert!(letter.reason.as_ref().unwrap().as_str().starts_with("damaged: "), "{letter:?}");
        let info = q.get(&jobs, &letter.id).await.unwrap().unwrap();
        assert_eq!((info.state, info.reason), (MessageState::Dead, letter.reason.clone()));
    }
    assert_eq!(q.dead_redrive(&jobs, &DeadSelection::Oldest(100), Delay::ZERO).await.unwrap().moved, bad.len() as u64);
    assert!(drain(&*q, &jobs).await.is_empty());
    assert_eq!(q.dead_purge(&jobs, &DeadSelection::Ids(bad.clone())).await.unwrap().removed, bad.len() as u64);
    nothing_is_left(&server, &*q).await;
}

#[tokio::test]
async fn damaged_states_and_foreign_members_harm_no_other() {
    let server = server();
    let q = Client::of(&server).await.queues;
    let jobs = queue("jobs");
    for (i, state) in
        ["", "0001", "0001000aZ--00000000000000", "gggg000aF--00000000000000", "0001000aF+-00000000000000"]
            .iter()
            .enumerate()
    {
        push(&*q, &jobs, message(&format!("good {i}"), 0)).await;
        let id = push(&*q, &jobs, message("bad state", 0)).await;
        put(&server, "o", number(&id).as_bytes(), state.as_bytes());
    }
    for (score, member) in [("1", "foreign"), ("-5", "0000000000000A"), ("-inf", ""), ("3.5", "00000000000001x")] {
        server.cli(&["ZADD", "{tenure:dq:jobs}:t", score, member]).unwrap();
        put(&server, "m", member.as_bytes(), b"000a-foreign member");
    }
    server.cli(&["ZADD", "{tenure:dq:jobs}:t", "0", "an orphan", "+inf", "00000000000002"]).unwrap();
    put(&server, "m", b"00000000000002", b"000a-never due");
    for (score, member) in [("1", "not a letter"), ("2.5", "00000000000003")] {
        server.cli(&["ZADD", "{tenure:dq:jobs}:d", score, member]).unwrap();
    }
    let (mut good, mut orphans) = (Vec::new(), 0);
    for _ in 0..20 {
        let received = q.receive(&up_to(&jobs, 100)).await.unwrap();
        good.extend(received.deliveries);
        orphans += received.healed.orphans;
    }
    assert_eq!(orphans, 1, "a message that moved leaves nothing where it was");
    assert_eq!(payloads(&good), (0..5).map(|i| format!("good {i}")).collect::<Vec<_>>());
    for delivery in &good {
        assert_eq!(ack(&*q, &jobs, delivery).await, Settled::Done);
    }
    assert!(q.receive(&up_to(&jobs, 1)).await.is_ok(), "what is due at no time is no reason to fail");
    q.stats(&jobs).await.unwrap();
    q.get(&jobs, &MessageId::assigned(2)).await.unwrap().unwrap();
    let letters = q.dead_list(&jobs, None, 2).await.unwrap();
    let rest = q.dead_list(&jobs, Some(letters.letters[1].place), 100).await.unwrap();
    let letters = [letters.letters, rest.letters].concat();
    assert!(letters.iter().all(|letter| letter.cause == DeadCause::Damaged), "{letters:?}");
    let mut texts: Vec<_> = letters.iter().map(|letter| letter.payload.as_bytes()).collect();
    texts.sort_unstable();
    assert_eq!(texts, [[&b"bad state"[..]; 5].as_slice(), &[&b"foreign member"[..]; 4]].concat());
    assert_eq!(q.cancel(&jobs, &MessageId::assigned(2)).await.unwrap(), Cancelled::Removed);
    let redriven: Vec<_> = letters.iter().map(|letter| letter.id.clone()).collect();
    assert_eq!(q.dead_redrive(&jobs, &DeadSelection::Ids(redriven), Delay::ZERO).await.unwrap().moved, 9);
    let back = drain(&*q, &jobs).await;
    assert_eq!(back.len(), 9, "only the state or the place of these was damaged");
    for delivery in &back {
        assert_eq!(ack(&*q, &jobs, delivery).await, Settled::Done);
    }
    q.dead_purge(&jobs, &DeadSelection::Oldest(100)).await.unwrap();
    nothing_is_left(&server, &*q).await;
}

#[tokio::test]
async fn operators_can_remove_what_is_damaged() {
    let server = server();
    let q = Client::of(&server).await.queues;
    let jobs = queue("jobs");
    for record in RECORDS {
        let far = |text| message(text, 600_000);
        let cancelled = push(&*q, &jobs, far("cancelled")).await;
        push(&*q, &jobs, known_as("by its name", 0, far("cancelled"))).await;
        let moved = push(&*q, &jobs, far("moved")).await;
        let purged = push(&*q, &jobs, far("purged")).await;
        let number_of_named = server.cli(&["HGET", "{tenure:dq:jobs}:i", "nby its name"]).unwrap().text();
        for id in [&number(&cancelled), &number_of_named, &number(&moved), &number(&purged)] {
            put(&server, "m", id.as_bytes(), record);
        }
        let info = q.get(&jobs, &named("by its name")).await.unwrap().unwrap();
        assert!(info.reason.unwrap().as_str().starts_with("damaged: "));
        assert_eq!(q.cancel(&jobs, &cancelled).await.unwrap(), Cancelled::Removed);
        assert_eq!(q.cancel(&jobs, &named("by its name")).await.unwrap(), Cancelled::Removed);
        q.reschedule(&jobs, &moved, delay(500_000)).await.unwrap();
        assert_eq!(q.purge(&jobs, 10, None).await.unwrap().removed, 2);
        nothing_is_left(&server, &*q).await;
    }
}

/// The key of a damaged message is not known any more; what it held back goes on all the same.
#[tokio::test]
async fn what_a_damaged_message_held_back_continues() {
    let server = server();
    let q = Client::of(&server).await.queues;
    let jobs = queue("jobs");
    let keyed = |text: &str| message(text, 0).with_key(key("k"));
    // Damaged while it is held.
    let ids: Vec<_> = futures(&*q, &jobs, &["a", "b", "c"].map(keyed)).await;
    let a = receive(&*q, &jobs, 9).await.deliveries.remove(0);
    put(&server, "m", number(&ids[1]).as_bytes(), b"cut");
    assert_eq!(ack(&*q, &jobs, &a).await, Settled::Done);
    let c = drain(&*q, &jobs).await;
    assert_eq!(payloads(&c), ["c"]);
    // Damaged while it is in flight, in each way that it may end.
    futures(&*q, &jobs, &["d"].map(keyed)).await;
    assert!(drain(&*q, &jobs).await.is_empty(), "held behind c");
    let ways = [
        Settlement::Ack,
        Settlement::Return { after: Delay::ZERO },
        Settlement::Retry { after: delay(600_000), reason: None },
        Settlement::Dead { reason: None },
    ];
    let mut flying = c.into_iter().next().unwrap();
    for (i, how) in ways.into_iter().enumerate() {
        put(&server, "m", number(&flying.id).as_bytes(), b"cut");
        futures(&*q, &jobs, &[keyed(&i.to_string())]).await;
        settle(&*q, &jobs, flying.receipt, how).await;
        let mut next = drain(&*q, &jobs).await;
        assert_eq!(payloads(&next), [["d", "0", "1", "2"][i]], "the first that was held");
        flying = next.remove(0);
    }
    // Its record is gone while it is in flight.
    server.cli(&["HDEL", "{tenure:dq:jobs}:m", &number(&flying.id)]).unwrap();
    assert_eq!(settle(&*q, &jobs, flying.receipt, Settlement::Return { after: Delay::ZERO }).await, Settled::Done);
    assert_eq!(drain(&*q, &jobs).await.len(), 1);
}

/// Where the lease of a damaged message ended, what it held back comes before what became due later.
#[tokio::test]
async fn what_a_damaged_message_held_back_is_next() {
    let server = server();
    let q = Client::of(&server).await.queues;
    let jobs = queue("jobs");
    let keyed = |text: &str| message(text, 0).with_key(key("k"));
    push(&*q, &jobs, keyed("a")).await;
    let short = up_to(&jobs, 9).with_lease(lease(20));
    let a = q.receive(&short).await.unwrap().deliveries.remove(0);
    push(&*q, &jobs, keyed("b")).await;
    assert!(receive(&*q, &jobs, 9).await.deliveries.is_empty());
    put(&server, "m", number(&a.id).as_bytes(), b"cut");
    push(&*q, &jobs, message("c", 30)).await;
    tokio::time::sleep(Duration::from_millis(60)).await;
    assert_eq!(payloads(&receive(&*q, &jobs, 2).await.deliveries), ["b", "c"]);
}

/// A foreign hand gave its key to another one that is in flight. It waits for that, and stays what it is.
#[tokio::test]
async fn what_lost_its_key_in_flight_keeps_count_of_its_attempts() {
    let server = server();
    let q = Client::of(&server).await.queues;
    let jobs = queue("jobs");
    let short = up_to(&jobs, 1).with_lease(lease(20));
    push(&*q, &jobs, message("a", 0).with_key(key("k"))).await;
    let a = q.receive(&short).await.unwrap().deliveries.remove(0);
    push(&*q, &jobs, message("other", 0)).await;
    let other = receive(&*q, &jobs, 1).await.deliveries.remove(0);
    put(&server, "i", b"kk", number(&other.id).as_bytes());
    tokio::time::sleep(Duration::from_millis(40)).await;
    assert!(receive(&*q, &jobs, 1).await.deliveries.is_empty());
    assert_eq!(q.get(&jobs, &a.id).await.unwrap().unwrap().attempt, 1);
}

async fn futures(q: &dyn DelayQueue, jobs: &QueueName, messages: &[NewMessage]) -> Vec<MessageId> {
    let mut ids = Vec::new();
    for message in messages {
        ids.push(push(q, jobs, message.clone()).await);
    }
    ids
}

/// Many damaged ones in front are bounded work, and the good one behind them comes.
#[tokio::test]
async fn a_thousand_damaged_messages_do_not_stop_the_next() {
    let server = server();
    let q = Client::of(&server).await.queues;
    let jobs = queue("jobs");
    for _ in 0..4 {
        q.push(&jobs, &vec![message("bad", 0); 250]).await.unwrap();
    }
    let bad =
        server.cli(&["HKEYS", "{tenure:dq:jobs}:m"]).unwrap().items().iter().map(|id| id.text()).collect::<Vec<_>>();
    bad.iter().for_each(|id| put(&server, "m", id.as_bytes(), b"000"));
    let later = message("good", 0).with_due(Due::After(Delay::new(Duration::from_millis(1)).unwrap()));
    push(&*q, &jobs, later).await;
    assert_eq!(payloads(&drain(&*q, &jobs).await), ["good"]);
    assert_eq!(q.stats(&jobs).await.unwrap().dead, 1_000);
}

/// A foreign hand took the name away, and it was used anew.
#[tokio::test]
async fn a_name_that_leads_to_a_newer_message_stays_when_the_older_one_goes() {
    let server = server();
    let (q, jobs) = (Client::of(&server).await.queues, queue("jobs"));
    for window in [0, 30_000] {
        let pushed = async |payload| push(&*q, &jobs, known_as("n", window, message(payload, 0))).await;
        pushed("older").await;
        assert_eq!(server.cli(&["HDEL", "{tenure:dq:jobs}:i", "nn"]).unwrap().int(), Some(1));
        pushed("newer").await;
        let older = receive(&*q, &jobs, 1).await.deliveries;
        assert_eq!(payloads(&older), ["older"]);
        assert_eq!(ack(&*q, &jobs, &older[0]).await, Settled::Done);
        let again = q.push(&jobs, &[known_as("n", window, message("again", 0))]).await.unwrap();
        assert_eq!(again, [Pushed::Duplicate(MessageState::Ready)]);
        assert_eq!(q.cancel(&jobs, &named("n")).await.unwrap(), Cancelled::Removed);
        pushed("anew").await;
        let anew = receive(&*q, &jobs, 1).await.deliveries;
        assert_eq!(ack(&*q, &jobs, &anew[0]).await, Settled::Done);
    }
}
