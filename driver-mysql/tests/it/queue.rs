//! Messages in the user's own transactions, and rows that others keep.

use std::time::{Duration, Instant};

use crate::common::{DATABASE, message, queue, receive, session, start};
use mysql_async::prelude::Queryable as _;
use tenure_core::driver::{
    Backend, Cancelled, DeadSelection, Delay, DelayQueueExt as _, NamedId, NewMessage, Rescheduled, Settle, Settled,
    Settlement,
};
use tenure_core::queue::{ConcurrencyKey, MessageId, QueueName};
use tenure_mysql::MysqlDriver;
use tenure_testkit::MariaDbOptions;

fn jobs() -> QueueName {
    QueueName::new("jobs").unwrap()
}

/// The outbox: a message is there if its transaction was committed, and was never there if not.
#[tokio::test]
async fn a_push_belongs_to_the_transaction_it_is_made_in() {
    let server = start(MariaDbOptions::new());
    let (queue, mut user) = (queue(&server).await, session(&server).await);
    queue.push(&jobs(), &[message("before")]).await.unwrap();
    let push = "CALL tenure_push('jobs', ?, 0, ?, NULL, NULL, NULL)";
    for (payload, end) in [("lost", "ROLLBACK"), ("kept", "COMMIT")] {
        user.query_drop("BEGIN").await.unwrap();
        let number: Option<Option<u64>> = user.exec_first(push, (payload, "id")).await.unwrap();
        assert!(number.flatten().is_some());
        // Nobody waits for it meanwhile.
        let received = queue.receive(&receive(&jobs(), 10)).await.unwrap().deliveries;
        assert!(received.iter().all(|delivery| delivery.payload.as_bytes() == b"before"), "{received:?}");
        user.query_drop(end).await.unwrap();
    }
    let received = queue.receive(&receive(&jobs(), 10)).await.unwrap().deliveries;
    let payloads: Vec<_> = received.iter().map(|delivery| delivery.payload.as_bytes()).collect();
    assert_eq!(payloads, [b"kept"]);
    let known: Option<Option<u64>> = user.exec_first(push, ("again", "id")).await.unwrap();
    assert_eq!(known.flatten(), None, "its name is known");
    for wrong in ["'', 'x', 0", "'jobs', NULL, 0", "'jobs', 'x', -1", "'jobs', 'x', 1e10"] {
        let refused = user.query_drop(format!("CALL tenure_push({wrong}, NULL, NULL, NULL, NULL)")).await.unwrap_err();
        assert!(refused.to_string().contains("does not take"), "{wrong}: {refused}");
    }
}

#[tokio::test]
async fn a_row_that_another_transaction_has_holds_nobody_up() {
    let server = start(MariaDbOptions::new());
    let (queue, mut user) = (queue(&server).await, session(&server).await);
    queue.push(&jobs(), &["first", "second"].map(message)).await.unwrap();
    user.query_drop("BEGIN; SELECT * FROM tenure_message WHERE number = 1 FOR UPDATE").await.unwrap();
    let received = queue.receive(&receive(&jobs(), 10)).await.unwrap().deliveries;
    assert_eq!(received.len(), 1);
    assert_eq!(received[0].payload.as_bytes(), b"second");
    user.query_drop("COMMIT").await.unwrap();
    let received = queue.receive(&receive(&jobs(), 10)).await.unwrap().deliveries;
    assert_eq!(received[0].payload.as_bytes(), b"first");
}

/// The id of a message, which stays known for a minute after its acknowledgement.
fn named(id: &str) -> NewMessage {
    let id = MessageId::named(id).unwrap();
    let window = Delay::new(Duration::from_secs(60)).unwrap();
    message("named").with_id(Some(NamedId::new(id, window)))
}

/// Pushes, receives and settlements go on beside a transaction that has pushed: a new id, one that is known, one that is in flight, one
/// that its snapshot does not show, and the first message of a queue.
#[tokio::test]
async fn an_open_transaction_that_has_pushed_holds_nobody_up() {
    for isolation in ["REPEATABLE READ", "READ COMMITTED"] {
        for (queue_name, id) in
            [("jobs", "new"), ("jobs", "waiting"), ("jobs", "flying"), ("jobs", "hidden"), ("other", "x")]
        {
            let server = start(MariaDbOptions::new());
            let (queue, mut user) = (queue(&server).await, session(&server).await);
            queue.push(&jobs(), &[named("flying")]).await.unwrap();
            let flying = queue.receive(&receive(&jobs(), 1)).await.unwrap().deliveries;
            queue.push(&jobs(), &[named("waiting"), message("plain")]).await.unwrap();
            let begin = format!("SET TRANSACTION ISOLATION LEVEL {isolation}; BEGIN; SELECT 1 FROM tenure_message");
            user.query_drop(begin).await.unwrap();
            queue.push(&jobs(), &[named("hidden")]).await.unwrap();
            let push = format!("CALL tenure_push('{queue_name}', 'user', 0, '{id}', 60, NULL, NULL)");
            user.query_drop(push).await.unwrap();
            let beside = async {
                queue.push(&jobs(), &[named("newer"), named("hidden"), message("plain")]).await.unwrap();
                queue.push(&QueueName::new("other").unwrap(), &[named("y"), message("plain")]).await.unwrap();
                queue.push(&QueueName::new("third").unwrap(), &[named("z")]).await.unwrap();
                let ready = queue.receive(&receive(&jobs(), 10)).await.unwrap().deliveries;
                let receipts =
                    flying.iter().chain(&ready).map(|delivery| Settle::new(delivery.receipt, Settlement::Ack));
                let settled = queue.settle(&jobs(), &receipts.collect::<Vec<_>>()).await.unwrap();
                assert_eq!(settled, [Settled::Done; 6], "{isolation}, {id}");
            };
            let began = Instant::now();
            beside.await;
            assert!(began.elapsed() < Duration::from_secs(2), "{isolation}, {id}: {:?}", began.elapsed());
            user.query_drop("COMMIT").await.unwrap();
            // What was acknowledged while the transaction was open is known: the message of the transaction is dropped.
            let came = queue.receive(&receive(&jobs(), 10)).await.unwrap().deliveries.len();
            assert_eq!(came, usize::from(id == "new"), "{isolation}, {id}");
            let came = queue.receive(&receive(&QueueName::new("other").unwrap(), 10)).await.unwrap().deliveries.len();
            assert_eq!(came, if id == "x" { 3 } else { 2 }, "{isolation}, {id}");
        }
    }
}

/// Several open transactions that push one id store a message each. One of them is delivered, and a cancellation takes all.
#[tokio::test]
async fn of_messages_that_were_pushed_at_once_under_one_id_one_is_delivered() {
    let server = start(MariaDbOptions::new());
    let queue = queue(&server).await;
    for cancelled in [false, true] {
        let mut users = [session(&server).await, session(&server).await, session(&server).await];
        for user in &mut users {
            user.query_drop("BEGIN; CALL tenure_push('jobs', 'x', 0, 'one', NULL, NULL, NULL)").await.unwrap();
        }
        for user in &mut users {
            user.query_drop("COMMIT").await.unwrap();
        }
        if cancelled {
            let id = MessageId::named("one").unwrap();
            assert_eq!(queue.cancel(&jobs(), &id).await.unwrap(), Cancelled::Removed);
            assert_eq!(queue.get(&jobs(), &id).await.unwrap(), None);
        }
        let received = queue.receive(&receive(&jobs(), 10)).await.unwrap().deliveries;
        assert_eq!(received.len(), usize::from(!cancelled));
        let settles: Vec<_> = received.iter().map(|it| Settle::new(it.receipt, Settlement::Ack)).collect();
        assert_eq!(queue.settle(&jobs(), &settles).await.unwrap(), vec![Settled::Done; settles.len()]);
        assert!(queue.receive(&receive(&jobs(), 10)).await.unwrap().deliveries.is_empty());
    }
}

/// Ids that the server assigns are numbers of its own range.
#[tokio::test]
async fn a_number_that_no_message_has_is_not_found() {
    let server = start(MariaDbOptions::new());
    let queue = queue(&server).await;
    queue.push(&jobs(), &[message("x")]).await.unwrap();
    for number in [7, i64::MAX as u64, 1 << 63, u64::MAX] {
        let id = MessageId::assigned(number);
        assert_eq!(queue.cancel(&jobs(), &id).await.unwrap(), Cancelled::NotFound, "{number}");
        let later = Delay::new(Duration::from_secs(60)).unwrap();
        assert_eq!(queue.reschedule(&jobs(), &id, later).await.unwrap(), Rescheduled::NotFound, "{number}");
        assert_eq!(queue.get(&jobs(), &id).await.unwrap(), None, "{number}");
        let which = DeadSelection::Ids(vec![id]);
        assert_eq!(queue.dead_purge(&jobs(), &which).await.unwrap().removed, 0, "{number}");
    }
}

/// The count of dead letters is kept, and counted again where it seems full, since an administrator may have removed some.
#[tokio::test]
async fn full_dead_letters_let_go_when_they_were_removed_by_hand() {
    let server = start(MariaDbOptions::new());
    let url = format!("{}?connections=1&max_dead_letters=2", server.url(DATABASE));
    let backend: Backend = MysqlDriver::connect(&url).await.unwrap().into();
    let queue = backend.queue_admin().unwrap();
    let die = async |count: usize| {
        queue.push(&jobs(), &vec![message("x"); count]).await.unwrap();
        let received = queue.receive(&receive(&jobs(), 10)).await.unwrap().deliveries;
        let dead = |receipt| Settle::new(receipt, Settlement::Dead { reason: None });
        let settles: Vec<_> = received.iter().map(|it| dead(it.receipt)).collect();
        queue.settle(&jobs(), &settles).await.unwrap()
    };
    assert_eq!(die(3).await, [Settled::Dead, Settled::Dead, Settled::Postponed]);
    let count = async || queue.stats(&jobs()).await.unwrap().dead;
    let read = |what: &str| server.sql(DATABASE, what).unwrap();
    for (removed, dead) in [("LIMIT 0", 2), ("", 1)] {
        read(&format!("DELETE FROM tenure_message WHERE line = 2 {removed}"));
        for _ in 0..2 {
            read("UPDATE tenure_message SET due = 1 WHERE line = 0"); // the minute for which it waits is over
            queue.receive(&receive(&jobs(), 10)).await.unwrap();
        }
        assert_eq!(count().await, dead);
    }
    let oldest = DeadSelection::Oldest(10);
    assert_eq!(queue.dead_purge(&jobs(), &oldest).await.unwrap().removed, 1);
    assert_eq!(die(2).await, [Settled::Dead, Settled::Dead]);
    assert_eq!(read("SELECT dead FROM tenure_queue").trim(), "2");
}

/// One message of a key is in flight, and thousands of it wait in front of others.
#[tokio::test]
async fn a_key_with_a_backlog_holds_up_no_other_key() {
    const BACKLOG: usize = 3_000;
    let server = start(MariaDbOptions::new());
    let queue = queue(&server).await;
    let keyed = |key: String| message(&key).with_key(Some(ConcurrencyKey::new(key).unwrap()));
    queue.push(&jobs(), &[keyed("hot".into())]).await.unwrap();
    assert_eq!(queue.receive(&receive(&jobs(), 1)).await.unwrap().deliveries.len(), 1);
    for _ in 0..BACKLOG / 250 {
        queue.push(&jobs(), &vec![keyed("hot".into()); 250]).await.unwrap();
    }
    let others: Vec<_> = (0..20).map(|number| keyed(format!("k{number}"))).collect();
    queue.push(&jobs(), &others).await.unwrap();
    let (began, mut received) = (Instant::now(), Vec::new());
    while received.len() < 20 {
        let asked = Instant::now();
        received.extend(queue.receive(&receive(&jobs(), 20)).await.unwrap().deliveries);
        assert!(asked.elapsed() < Duration::from_secs(1), "one receive took {:?}", asked.elapsed());
    }
    assert!(received.iter().all(|delivery| delivery.attempt == 1 && delivery.payload.as_bytes() != b"hot"));
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

/// Many push, receive and settle: each message is delivered once, no two of a key at once, fences grow, and nothing deadlocks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_under_contention() {
    const MESSAGES: usize = 240;
    let server = start(MariaDbOptions::new());
    let pusher = queue(&server).await;
    let in_flight = std::sync::Arc::new(std::sync::Mutex::new(std::collections::HashSet::new()));
    let mut consumers = tokio::task::JoinSet::new();
    for _ in 0..3 {
        let (queue, in_flight) = (queue(&server).await, in_flight.clone());
        consumers.spawn(async move {
            let (mut done, mut idle) = (0, 0);
            while idle < 200 {
                let request = receive(&jobs(), 5);
                let received = queue.receive(&request).await.unwrap().deliveries;
                idle = if received.is_empty() { idle + 1 } else { 0 };
                let mut fence = 0;
                for delivery in &received {
                    assert!(delivery.fence.get() > fence, "fences grow");
                    fence = delivery.fence.get();
                    assert!(in_flight.lock().unwrap().insert(delivery.key.clone()), "two of a key at once");
                }
                for delivery in &received {
                    in_flight.lock().unwrap().remove(&delivery.key);
                }
                let settles: Vec<_> =
                    received.iter().map(|delivery| Settle::new(delivery.receipt, Settlement::Ack)).collect();
                if !settles.is_empty() {
                    let settled = queue.settle(&jobs(), &settles).await.unwrap();
                    assert!(settled.iter().all(|settled| *settled == Settled::Done), "{settled:?}");
                }
                done += received.len();
            }
            done
        });
    }
    for number in (0..MESSAGES).step_by(4) {
        let keyed = |number: usize| -> NewMessage {
            message(number.to_string()).with_key(Some(ConcurrencyKey::new(format!("k{}", number % 7)).unwrap()))
        };
        let batch: Vec<_> = (number..number + 4).map(keyed).collect();
        pusher.push(&jobs(), &batch).await.unwrap();
    }
    let mut done = 0;
    while let Some(consumer) = consumers.join_next().await {
        done += consumer.unwrap();
    }
    assert_eq!(done, MESSAGES);
}
