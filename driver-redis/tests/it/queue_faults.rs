//! Delay queues on bad days of their server.

use std::time::Duration;

use crate::common::queue::{
    ack, because, delay, known_as, lease, message, named, one, payloads, push, queue, receive, settle, soon, up_to,
};
use crate::common::{Client, server, server_with};
use tenure_core::ErrorKind;
use tenure_core::driver::{
    Cancelled, DeadSelection, Delay, DelayQueueExt as _, Extended, Extension, MessageState, Next, Pushed, Settled,
    Settlement,
};
use tenure_testkit::RedisOptions;

#[tokio::test]
async fn out_of_memory_nothing_is_stored_and_everything_stored_can_be_worked_off() {
    let server = server();
    let client = Client::of(&server).await;
    let (q, jobs) = (&*client.queues, queue("jobs"));
    let mut watch = q.watch(&jobs).await.unwrap();
    push(q, &jobs, known_as("name", 60_000, message("acked", 0))).await;
    for text in ["retried", "returned", "parked", "rejected", "ended", "extended"] {
        push(q, &jobs, message(text, 0)).await;
    }
    push(q, &jobs, known_as("cancelled", 0, message("", 60_000))).await;
    push(q, &jobs, message("purged", 60_000)).await;
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
    for batch in [vec![message("x", 0)], vec![known_as("new", 0, message("y", 0)), message("z", 0)]] {
        let error = q.push(&jobs, &batch).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.message().contains("maxmemory"), "{error}");
    }
    let short = up_to(&jobs, 4).with_lease(lease(10));
    let first = q.receive(&short).await.unwrap().deliveries;
    assert_eq!(payloads(&first), ["acked", "retried", "returned", "parked"]);
    assert_eq!(ack(q, &jobs, &first[0]).await, Settled::Done);
    let retry = Settlement::Retry { after: delay(60_000), reason: because("no memory") };
    let lock = tenure_core::LockName::new("l").unwrap();
    let park = Settlement::Park { lock, at_most: delay(60_000) };
    for (delivery, how) in first[1..].iter().zip([retry, Settlement::Return { after: Default::default() }, park]) {
        assert_eq!(settle(q, &jobs, delivery.receipt, how).await, Settled::Done);
    }
    let dead = one(q, &jobs).await;
    assert_eq!(settle(q, &jobs, dead.receipt, Settlement::Dead { reason: because("x") }).await, Settled::Dead);
    let ended = q.receive(&short.clone().with_max(1)).await.unwrap().deliveries.remove(0);
    let extended = one(q, &jobs).await;
    let extension = Extension::new(extended.receipt, lease(90_000));
    assert_eq!(q.extend(&jobs, &[extension]).await.unwrap(), [Extended::Extended]);
    let returned = one(q, &jobs).await;
    assert_eq!(returned.payload.as_bytes(), b"returned");
    let again = soon(q, &up_to(&jobs, 1)).await;
    assert_eq!(again.id, ended.id);
    assert_eq!(q.cancel(&jobs, &named("cancelled")).await.unwrap(), Cancelled::Removed);
    assert_eq!(q.purge(&jobs, 1, None).await.unwrap().removed, 1);
    assert_eq!(q.dead_purge(&jobs, &DeadSelection::Oldest(1)).await.unwrap().removed, 1);
    q.resume(&jobs).await.unwrap();
    tokio::time::timeout(crate::common::LONG, watch.next()).await.unwrap();
    let known = q.push(&jobs, &[known_as("name", 0, message("", 0))]).await.unwrap();
    assert_eq!(known, [Pushed::Duplicate(MessageState::Settled)], "the window was stored all the same");
    server.cli(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();
    let stats = q.stats(&jobs).await.unwrap();
    assert_eq!((stats.scheduled, stats.ready, stats.in_flight, stats.dead), (2, 0, 3, 0), "{stats:?}");
    assert!(q.get(&jobs, &named("new")).await.unwrap().is_none(), "nothing of the refused batch");
}

#[tokio::test]
async fn a_clock_that_steps_back_neither_holds_up_messages_nor_revives_leases() {
    let server = server_with(RedisOptions::new().movable_clock());
    let client = Client::of(&server).await;
    let (q, jobs) = (&*client.queues, queue("jobs"));
    push(q, &jobs, message("leased", 0)).await;
    let first = q.receive(&up_to(&jobs, 1).with_lease(lease(10))).await.unwrap().deliveries.remove(0);
    let second = soon(q, &up_to(&jobs, 1).with_lease(lease(10))).await;
    push(q, &jobs, message("before the step", 30)).await;
    server.set_clock_offset(-3_600_000_000).unwrap();
    let extension = Extension::new(first.receipt, lease(60_000));
    assert_eq!(q.extend(&jobs, &[extension]).await.unwrap(), [Extended::Stale]);
    let third = soon(q, &up_to(&jobs, 1)).await;
    assert_eq!((third.attempt, third.id), (3, first.id.clone()));
    assert!(third.fence > second.fence);
    push(q, &jobs, message("after the step", 30)).await;
    let rest = [soon(q, &up_to(&jobs, 1)).await, soon(q, &up_to(&jobs, 1)).await];
    assert_eq!(payloads(&rest), ["before the step", "after the step"]);
    assert!(rest[1].fence > rest[0].fence && rest[0].fence > third.fence);
    assert!(rest[1].late < Duration::from_secs(1800), "{:?}", rest[1]);
}

#[tokio::test]
async fn fences_and_numbers_grow_over_a_loss_of_all_data() {
    let server = server();
    let client = Client::of(&server).await;
    let (q, jobs) = (&*client.queues, queue("jobs"));
    push(q, &jobs, message("a", 0)).await;
    let before = one(q, &jobs).await;
    server.cli(&["FLUSHALL"]).unwrap();
    push(q, &jobs, message("b", 0)).await;
    let after = one(q, &jobs).await;
    assert!(after.fence > before.fence && after.id != before.id);
    assert_eq!(ack(q, &jobs, &before).await, Settled::Stale);
    assert_eq!(ack(q, &jobs, &after).await, Settled::Done);
}

#[tokio::test]
async fn entries_without_a_message_are_removed_and_do_not_block() {
    let server = server();
    let client = Client::of(&server).await;
    let (q, jobs) = (&*client.queues, queue("jobs"));
    let ids = q.push(&jobs, &[message("a", 0), known_as("n", 0, message("b", 0)), message("c", 0)]).await.unwrap();
    server.cli(&["ZADD", "{tenure:dq:jobs}:t", "1", "00000000000000"]).unwrap();
    for id in &ids[..2] {
        let number = match id {
            Pushed::Stored(id) if id.as_number().is_some() => format!("{:014x}", id.as_number().unwrap()),
            _ => server.cli(&["HGET", "{tenure:dq:jobs}:i", "nn"]).unwrap().text(),
        };
        server.cli(&["HDEL", "{tenure:dq:jobs}:m", &number]).unwrap();
    }
    assert!(q.get(&jobs, &named("n")).await.unwrap().is_none());
    let received = receive(q, &jobs, 9).await;
    assert_eq!((payloads(&received.deliveries), received.healed.orphans), (vec!["c".to_owned()], 3));
    let again = q.push(&jobs, &[known_as("n", 0, message("b", 0))]).await.unwrap();
    assert_eq!(again, [Pushed::Stored(named("n"))], "a name without a message is free");
    assert_eq!(payloads(&receive(q, &jobs, 9).await.deliveries), ["b"]);
}

#[tokio::test]
async fn forgotten_scripts_are_sent_again_and_data_survives_a_kill() {
    let mut server = server_with(RedisOptions::new().append_only());
    let client = Client::of(&server).await;
    let (q, jobs) = (&*client.queues, queue("jobs"));
    q.push(&jobs, &[message("a", 0), message("b", 60_000)]).await.unwrap();
    server.cli(&["SCRIPT", "FLUSH"]).unwrap();
    server.cli(&["FUNCTION", "FLUSH"]).unwrap();
    let delivery = one(q, &jobs).await;
    server.kill().unwrap();
    let error = q.push(&jobs, &[message("c", 0)]).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    server.restart().unwrap();
    let started = std::time::Instant::now();
    loop {
        match q.settle(&jobs, &[common_ack(&delivery)]).await {
            Ok(answers) => break assert_eq!(answers, [Settled::Done], "the receipt outlived the server"),
            Err(error) => assert!(error.is_transient() && started.elapsed() < crate::common::LONG, "{error}"),
        }
    }
    let Next::In(span) = receive(q, &jobs, 1).await.next else { panic!("not waiting") };
    assert!(span <= Duration::from_secs(60));
}

fn common_ack(delivery: &tenure_core::driver::RawDelivery) -> tenure_core::driver::Settle {
    tenure_core::driver::Settle::new(delivery.receipt, Settlement::Ack)
}

#[tokio::test]
async fn what_is_too_much_for_one_script_is_refused_before_it_is_sent() {
    let server = server();
    let client = Client::of(&server).await;
    let (q, jobs) = (&*client.queues, queue("jobs"));
    let error = q.push(&jobs, &vec![message("", 0); 257]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert_eq!(q.receive(&up_to(&jobs, 257)).await.unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert!(q.push(&jobs, &[]).await.unwrap().is_empty());
    q.push(&jobs, &vec![message("", 0); 256]).await.unwrap();
    for half in [128, 128, 0] {
        assert_eq!(receive(q, &jobs, 256).await.deliveries.len(), half, "so that no script is long");
    }
    assert_eq!(q.dead_redrive(&jobs, &DeadSelection::Oldest(9), Delay::ZERO).await.unwrap().moved, 0);
}
