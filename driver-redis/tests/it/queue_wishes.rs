//! What a message or a queue may ask for beyond the usual: what is stored for it, and what it costs those that do not ask.

use std::time::Duration;

use crate::common::queue::{
    ack, because, delay, key, known_as, message, named, one, payloads, push, queue, receive, settle, up_to,
};
use crate::common::{Client, all_calls, keys, server};
use tenure_core::driver::{
    Cause, DeadCause, DeadSelection, Delay, DelayQueue, Exchanged, Extended, Extension, IfKnown, Lease, Listed,
    MessageInfo, NewMessage, Next, Pushed, Settled, Settlement,
};
use tenure_core::queue::{QueueLimits, QueueName, Rate, Recurrence};
use tenure_testkit::RedisServer;

const WEEKLY: &str = "every week";

fn replacing(message: NewMessage) -> NewMessage {
    message.with_if_known(IfKnown::Replace)
}

fn recurring(message: NewMessage) -> NewMessage {
    message.with_recurrence(Some(Recurrence::new(WEEKLY).unwrap()))
}

async fn all(q: &dyn DelayQueue, jobs: &QueueName, which: Listed, max: usize) -> Vec<MessageInfo> {
    let (mut all, mut from) = (Vec::new(), None);
    loop {
        let page = q.list(jobs, which, from, max).await.unwrap();
        all.extend(page.messages);
        from = page.next;
        if from.is_none() {
            return all;
        }
    }
}

fn reported(all: &[MessageInfo]) -> Vec<String> {
    all.iter().map(|info| String::from_utf8_lossy(info.payload.as_bytes()).into_owned()).collect()
}

/// How many commands the server runs for a life of one message: those inside scripts, in order of their names.
async fn commands_of_a_life(server: &RedisServer, q: &dyn DelayQueue, jobs: &QueueName) -> Vec<(String, u64)> {
    push(q, jobs, message("x", 0)).await;
    push(q, jobs, message("y", 0)).await;
    let first = one(q, jobs).await; // now the server knows the scripts
    server.cli(&["CONFIG", "RESETSTAT"]).unwrap();
    let acks = [tenure_core::driver::Settle::new(first.receipt, Settlement::Ack)];
    push(q, jobs, message("z", 0)).await;
    let Exchanged { settled, received, .. } = q.exchange(&acks, &up_to(jobs, 1)).await.unwrap();
    assert_eq!((settled, received.deliveries.len()), (vec![Settled::Done], 1));
    let calls = all_calls(server);
    calls.into_iter().filter(|(command, _)| command != "evalsha").collect()
}

#[tokio::test]
async fn who_wishes_for_nothing_pays_for_nothing() {
    let server = server();
    let q = Client::of(&server).await.queues;
    let expected = [
        ("exists", 1), // push
        ("get", 2),
        ("hdel", 2),
        ("hmget", 3),
        ("hset", 2),
        ("set", 2),
        ("time", 2),
        ("zadd", 2),
        ("zrange", 1),
        ("zrem", 1),
    ];
    let expected = expected.map(|(command, count)| (command.to_owned(), count)).to_vec();
    assert_eq!(commands_of_a_life(&server, &*q, &queue("jobs")).await, expected);
    let other = queue("limited");
    q.limit(&other, &QueueLimits::none().in_flight(9).unwrap()).await.unwrap();
    assert_ne!(commands_of_a_life(&server, &*q, &other).await, expected, "who does pays");
}

#[tokio::test]
async fn a_push_replaces_what_waits_whatever_holds_it() {
    let server = server();
    let q = Client::of(&server).await.queues;
    let jobs = queue("jobs");
    // Held behind its key; the same name twice in one batch; and one whose lease has ended.
    push(&*q, &jobs, message("first of its key", 0).with_key(key("k"))).await;
    let first = one(&*q, &jobs).await;
    let held = known_as("held", 0, message("held", 0).with_key(key("k")));
    push(&*q, &jobs, held).await;
    assert!(receive(&*q, &jobs, 9).await.deliveries.is_empty());
    let batch = ["one", "two", "three"].map(|text| replacing(known_as("held", 0, message(text, 3_600_000))));
    let pushed = q.push(&jobs, &batch).await.unwrap();
    assert!(pushed.iter().all(|answer| *answer == Pushed::Replaced(named("held"))), "{pushed:?}");
    assert_eq!(reported(&all(&*q, &jobs, Listed::Waiting, 1).await), ["three"]);
    ack(&*q, &jobs, &first).await;
    assert!(receive(&*q, &jobs, 9).await.deliveries.is_empty(), "nothing is left of the one behind its key");
    q.cancel(&jobs, &named("held")).await.unwrap();
    assert_eq!(keys(&server), ["tenure:{dq}", "{tenure:dq:jobs}:n"]);
}

#[tokio::test]
async fn a_recurring_message_keeps_all_but_its_end() {
    let server = server();
    let q = Client::of(&server).await.queues;
    let jobs = queue("jobs");
    let plain = known_as("n", 5_000, message("payload", 0)).with_ttl(Some(delay(60_000))).with_key(key("k"));
    push(&*q, &jobs, recurring(plain)).await;
    push(&*q, &jobs, message("behind", 0).with_key(key("k"))).await;
    let first = one(&*q, &jobs).await;
    assert_eq!(first.recurrence.as_ref().unwrap().as_str(), WEEKLY);
    assert!(q.get(&jobs, &first.id).await.unwrap().unwrap().expires_in.is_some());
    let daily = Recurrence::new("every day at midnight").unwrap();
    let recur = Settlement::Recur { after: Delay::ZERO, recurrence: daily.clone(), reason: because("it is over") };
    assert_eq!(settle(&*q, &jobs, first.receipt, recur.clone()).await, Settled::Done);
    let info = q.get(&jobs, &first.id).await.unwrap().unwrap();
    assert_eq!(info.reason, because("it is over"));
    assert_eq!((info.expires_in, info.recurrence.as_ref(), info.key), (None, Some(&daily), key("k")));
    let behind = one(&*q, &jobs).await;
    assert_eq!(behind.payload.as_bytes(), b"behind", "its key was free in between");
    // One that was pushed without a schedule may come again as well.
    assert_eq!(settle(&*q, &jobs, behind.receipt, recur).await, Settled::Done);
    let again = one(&*q, &jobs).await;
    assert_eq!((again.attempt, again.cause, again.payload.as_bytes()), (1, Cause::First, b"payload".as_slice()));
    assert_eq!(ack(&*q, &jobs, &again).await, Settled::Done);
    let behind = one(&*q, &jobs).await;
    assert_eq!((behind.recurrence.as_ref(), behind.attempt, behind.key), (Some(&daily), 1, key("k")));
    assert_eq!(behind.payload.as_bytes(), b"behind");
}

#[tokio::test]
async fn what_comes_too_late_is_dead_and_a_redrive_gives_it_all_time() {
    let server = server();
    let q = Client::of(&server).await.queues;
    let jobs = queue("jobs");
    push(&*q, &jobs, message("late", 0).with_ttl(Some(delay(1)))).await;
    push(&*q, &jobs, message("in time", 0).with_ttl(Some(delay(3_600_000)))).await;
    tokio::time::sleep(Duration::from_millis(5)).await; // time is what this is about
    let received = receive(&*q, &jobs, 9).await;
    assert_eq!((payloads(&received.deliveries), received.healed.dead), (vec!["in time".to_owned()], 1));
    let letters = q.dead_list(&jobs, None, 9).await.unwrap().letters;
    assert_eq!(letters.iter().map(|letter| letter.cause).collect::<Vec<_>>(), [DeadCause::Expired]);
    q.dead_redrive(&jobs, &DeadSelection::Oldest(1), Delay::ZERO).await.unwrap();
    assert_eq!(payloads(&receive(&*q, &jobs, 9).await.deliveries), ["late"]);
}

#[tokio::test]
async fn pages_pass_over_damage_and_end() {
    let server = server();
    let q = Client::of(&server).await.queues;
    let jobs = queue("jobs");
    q.push(&jobs, &(0..300).map(|i| message(&format!("{i:03}"), 3_600_000)).collect::<Vec<_>>()[..250]).await.unwrap();
    for (score, member) in
        [("-inf", "a"), ("-5", "00000000000001"), ("3.5", "00000000000002"), ("+inf", "00000000000003")]
    {
        server.cli(&["ZADD", "{tenure:dq:jobs}:t", score, member]).unwrap();
        server.cli(&["HSET", "{tenure:dq:jobs}:m", member, "000a-foreign"]).unwrap();
    }
    let broken = push(&*q, &jobs, message("broken", 3_600_000)).await;
    let number = format!("{:014x}", broken.as_number().unwrap());
    server.cli(&["HSET", "{tenure:dq:jobs}:m", &number, "zzzz"]).unwrap();
    for max in [1, 7, 256] {
        let texts = reported(&all(&*q, &jobs, Listed::Waiting, max).await);
        assert_eq!(texts, (0..250).map(|i| format!("{i:03}")).collect::<Vec<_>>());
        assert!(all(&*q, &jobs, Listed::InFlight, max).await.is_empty());
    }
}

#[tokio::test]
async fn leases_are_counted_from_before_the_limit_and_through_extensions() {
    let server = server();
    let q = Client::of(&server).await.queues;
    let jobs = queue("jobs");
    q.push(&jobs, &vec![message("x", 0); 5]).await.unwrap();
    let first = receive(&*q, &jobs, 2).await.deliveries;
    q.limit(&jobs, &QueueLimits::none().in_flight(3).unwrap()).await.unwrap();
    let third = receive(&*q, &jobs, 5).await;
    assert_eq!(third.deliveries.len(), 1);
    let longer = Extension::new(first[0].receipt, Lease::new(Duration::from_secs(3_600)).unwrap());
    assert_eq!(q.extend(&jobs, &[longer]).await.unwrap(), [Extended::Extended]);
    let Next::In(span) = receive(&*q, &jobs, 5).await.next else { panic!("the limit is reached") };
    assert!(span <= Lease::DEFAULT.get(), "the end of one of the other leases");
    ack(&*q, &jobs, &first[1]).await;
    ack(&*q, &jobs, &third.deliveries[0]).await;
    assert_eq!(receive(&*q, &jobs, 5).await.deliveries.len(), 2, "the extended one counts");
    assert!(keys(&server).contains(&"{tenure:dq:jobs}:l".to_owned()));
    q.limit(&jobs, &QueueLimits::none()).await.unwrap();
    assert!(!keys(&server).contains(&"{tenure:dq:jobs}:l".to_owned()));
    assert!(q.stats(&jobs).await.unwrap().limits.is_none());
}

#[tokio::test]
async fn limits_outlive_all_messages_and_a_queue_without_any_is_forgotten() {
    let server = server();
    let q = Client::of(&server).await.queues;
    let jobs = queue("jobs");
    let limits = QueueLimits::none().in_flight(7).unwrap().rate(Rate::new(5, Duration::from_secs(60)).unwrap());
    q.limit(&jobs, &limits).await.unwrap();
    q.pause(&jobs).await.unwrap();
    q.resume(&jobs).await.unwrap();
    assert_eq!(q.stats(&jobs).await.unwrap().limits, limits);
    assert_eq!(server.cli(&["PTTL", "{tenure:dq:jobs}:n"]).unwrap().int(), Some(-1), "for ever");
    assert_eq!(q.list_queues(None, 9).await.unwrap().queues, std::slice::from_ref(&jobs));
    q.limit(&jobs, &QueueLimits::none()).await.unwrap();
    assert!(q.list_queues(None, 9).await.unwrap().queues.is_empty());
    assert!(server.cli(&["PTTL", "{tenure:dq:jobs}:n"]).unwrap().int() > Some(0), "as long as counters are kept");
}
