//! Queues where they meet other transactions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{client, queue, start};
use tenure_core::ErrorKind;
use tenure_core::driver::{
    Delay, DelayQueueExt as _, Lease, NamedId, NewMessage, Next, Payload, Pushed, RawDelivery, ReceiveRequest, Settle,
    Settled, Settlement,
};
use tenure_core::queue::{ConcurrencyKey, MessageId, QueueName};
use tenure_testkit::{PostgresOptions, PostgresServer, eventually};
use tokio_postgres::error::SqlState;
use tokio_postgres::{IsolationLevel, NoTls};

fn jobs() -> QueueName {
    QueueName::new("jobs").unwrap()
}

fn message(text: &str) -> NewMessage {
    NewMessage::new(Payload::new(text.as_bytes()).unwrap())
}

fn request(max: usize) -> ReceiveRequest {
    ReceiveRequest::new(jobs(), max, Lease::DEFAULT)
}

fn texts(deliveries: &[RawDelivery]) -> Vec<String> {
    deliveries.iter().map(|one| String::from_utf8_lossy(one.payload.as_bytes()).into_owned()).collect()
}

async fn session(server: &PostgresServer) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(&server.url("postgres"), NoTls).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    client
}

/// The outbox: an order and the message about it are there together, or neither is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_belongs_to_the_transaction_it_is_made_in() {
    let server = start(PostgresOptions::new()).unwrap();
    let orders = client(&server).await.queue_of_bytes("jobs").unwrap();
    let mut app = session(&server).await;
    app.batch_execute("CREATE TABLE orders (number int PRIMARY KEY)").await.unwrap();

    let given_up = app.transaction().await.unwrap();
    given_up.batch_execute("INSERT INTO orders VALUES (1); SELECT tenure.push('jobs', 'order 1')").await.unwrap();
    given_up.rollback().await.unwrap();
    assert!(orders.try_receive().await.unwrap().is_none(), "it was rolled back");

    let waiting = tokio::spawn({
        let orders = orders.clone();
        async move { orders.receive().await }
    });
    // A receive that begins between the push and the commit is not notified.
    let watches =
        || server.sql("postgres", "SELECT count(*) FROM tenure.watcher").is_ok_and(|count| count.trim() == "1");
    eventually("the receive watches", || watches().then_some(())).unwrap();
    let done = app.transaction().await.unwrap();
    done.batch_execute("INSERT INTO orders VALUES (2); SELECT tenure.push('jobs', 'order 2', id => '2')")
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!waiting.is_finished(), "it is not committed yet");
    let start = Instant::now();
    done.commit().await.unwrap();
    let delivery = waiting.await.unwrap().unwrap();
    assert!(start.elapsed() < Duration::from_secs(1), "the commit wakes who waits: {:?}", start.elapsed());
    assert_eq!((delivery.payload().as_bytes(), delivery.id().as_name()), (&b"order 2"[..], Some(&b"2"[..])));
    delivery.ack().await.unwrap();
}

#[tokio::test]
async fn push_takes_all_that_a_message_may_have() {
    let server = start(PostgresOptions::new()).unwrap();
    let (queue, app) = (queue(&server).await, session(&server).await);
    let push = "SELECT tenure.push('jobs', 'a', delay => '2 hours', id => 'x', known_for => '1 day', key => 'k', \
                lock => 'l', attempts => 3, ttl => '1 hour')";
    assert!(app.query_one(push, &[]).await.unwrap().get::<_, Option<i64>>(0).is_some());
    assert_eq!(app.query_one(push, &[]).await.unwrap().get::<_, Option<i64>>(0), None, "the id is known");
    let id = MessageId::named("x").unwrap();
    let info = queue.get(&jobs(), &id).await.unwrap().unwrap();
    assert!(info.due_in > Duration::from_secs(7_000) && info.expires_in.unwrap() > Duration::from_secs(10_000));
    assert_eq!((info.attempts.get(), info.key.unwrap().as_bytes()), (3, &b"k"[..]));
    assert_eq!(info.lock.unwrap().as_bytes(), b"l");
    for (wrong, why) in [
        ("'jobs', 'a', attempts => 0", "attempts"),
        ("'jobs', 'a', attempts => NULL", "attempts"),
        ("'jobs', 'a', id => ''", "name"),
        ("'jobs', 'a', lock => ''", "lock"),
        ("'jobs', 'a', delay => '-1 hour'", "delay"),
        ("'jobs', 'a', delay => '290000 years'", "delay"),
        ("'jobs', 'a', delay => NULL", "delay"),
        ("'jobs', 'a', id => 'y', known_for => '-1 s'", "known_for"),
        ("'jobs', 'a', known_for => NULL", "known_for"),
        ("'jobs', 'a', ttl => '0'", "ttl"),
        ("'jobs', NULL", "payload"),
        ("NULL, 'a'", "name of a queue"),
    ] {
        let refused = app.query_one(&format!("SELECT tenure.push({wrong})"), &[]).await.unwrap_err();
        let refused = refused.as_db_error().unwrap();
        assert_eq!(refused.code(), &SqlState::CHECK_VIOLATION, "{wrong}: {refused}");
        assert!(refused.message().starts_with(&format!("the {why}")), "{wrong}: {refused}");
        assert_eq!(refused.detail(), None, "it may tell the payload");
    }
}

/// Somebody's open transaction keeps a row: the others are handed out, and nobody waits or asks without a pause.
#[tokio::test]
async fn a_row_that_another_transaction_has_holds_nobody_up() {
    let server = start(PostgresOptions::new()).unwrap();
    let (queue, mut app) = (queue(&server).await, session(&server).await);
    queue.push(&jobs(), &[message("first"), message("second")]).await.unwrap();
    let idle = app.transaction().await.unwrap();
    idle.batch_execute("SELECT FROM tenure.message ORDER BY number LIMIT 1 FOR UPDATE").await.unwrap();
    let received = queue.receive(&request(10)).await.unwrap();
    assert_eq!(texts(&received.deliveries), ["second"]);
    let received = queue.receive(&request(10)).await.unwrap();
    assert!(received.deliveries.is_empty());
    assert!(matches!(received.next, Next::In(span) if span >= Duration::from_millis(5)), "{:?}", received.next);
    idle.rollback().await.unwrap();
    assert_eq!(texts(&queue.receive(&request(10)).await.unwrap().deliveries), ["first"]);
}

/// A push that replaces a message has its row and waits for a key. A settlement of both waits for the row before it takes the key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_settlement_locks_rows_and_keys_in_the_order_of_a_push() {
    let server = start(PostgresOptions::new()).unwrap();
    let (queue, mut app) = (queue(&server).await, session(&server).await);
    let keyed = message("keyed").with_key(Some(ConcurrencyKey::new("k").unwrap()));
    queue.push(&jobs(), &[keyed, message("plain")]).await.unwrap();
    let received = queue.receive(&request(10)).await.unwrap().deliveries;
    let again = |one: &RawDelivery| Settle::new(one.receipt, Settlement::Return { after: Delay::ZERO });
    let settles: Vec<_> = received.iter().map(again).collect();
    assert_eq!(settles.len(), 2);
    let push = app.transaction().await.unwrap();
    push.batch_execute("SELECT FROM tenure.message WHERE key IS NULL FOR UPDATE").await.unwrap();
    let settled = tokio::spawn(async move { queue.settle(&jobs(), &settles).await });
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    let waits = || server.sql("postgres", waits).is_ok_and(|count| count.trim() == "1");
    eventually("the settlement waits", || waits().then_some(())).unwrap();
    push.batch_execute("SELECT tenure.queue_lock(1952804171, 'jobs', ARRAY['k'::bytea])").await.expect("no deadlock");
    push.commit().await.unwrap();
    assert_eq!(settled.await.unwrap().unwrap(), [Settled::Done; 2]);
}

/// Pushes, receives and settlements of few keys and names at the same time: no deadlock, no two of a key in flight, and
/// everything is handled once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_and_names_under_contention() {
    const EACH: usize = 150;
    let server = start(PostgresOptions::new()).unwrap();
    let mut tasks = Vec::new();
    for who in 0..3 {
        let queue = queue(&server).await;
        tasks.push(tokio::spawn(async move {
            for round in 0..EACH / 3 {
                // Names in opposite orders, each pushed by all.
                let mut batch: Vec<_> = (0..3)
                    .map(|at| {
                        let mut one = message(&format!("{round}-{at}"));
                        let id = MessageId::named(format!("{round}-{at}")).unwrap();
                        let window = Delay::new(Duration::from_secs(60)).unwrap();
                        one.id = Some(NamedId::new(id, window));
                        one.key = Some(ConcurrencyKey::new(format!("key {}", (round + at) % 4)).unwrap());
                        one
                    })
                    .collect();
                if who % 2 == 1 {
                    batch.reverse();
                }
                let pushed = queue.push(&jobs(), &batch).await.unwrap();
                assert!(pushed.iter().all(|one| matches!(one, Pushed::Stored(_) | Pushed::Duplicate(_))));
            }
        }));
    }
    let handled = Arc::new(std::sync::Mutex::new(Vec::new()));
    let busy = Arc::new(std::sync::Mutex::new(std::collections::HashSet::new()));
    for _ in 0..4 {
        let (queue, handled, busy) = (queue(&server).await, Arc::clone(&handled), Arc::clone(&busy));
        tasks.push(tokio::spawn(async move {
            let deadline = Instant::now() + Duration::from_secs(40);
            while handled.lock().unwrap().len() < EACH {
                assert!(Instant::now() < deadline, "{} handled", handled.lock().unwrap().len());
                let received = queue.receive(&request(3)).await.unwrap();
                for one in &received.deliveries {
                    assert!(busy.lock().unwrap().insert(one.key.clone()), "two of a key are in flight");
                }
                tokio::task::yield_now().await;
                for one in &received.deliveries {
                    busy.lock().unwrap().remove(&one.key);
                    handled.lock().unwrap().push(one.id.clone());
                }
                let settles: Vec<_> =
                    received.deliveries.iter().map(|one| Settle::new(one.receipt, Settlement::Ack)).collect();
                if !settles.is_empty() {
                    let settled = queue.settle(&jobs(), &settles).await.unwrap();
                    assert!(settled.iter().all(|one| *one == Settled::Done), "{settled:?}");
                }
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let mut ids = handled.lock().unwrap().clone();
    ids.sort();
    ids.dedup();
    assert_eq!((ids.len(), handled.lock().unwrap().len()), (EACH, EACH));
    assert_eq!(queue(&server).await.stats(&jobs()).await.unwrap().ready, 0);
}

/// What was pushed and committed is on the standby; fences go on above those of the old primary.
#[tokio::test]
async fn a_promoted_standby_continues_with_greater_fences() {
    let mut primary = start(PostgresOptions::new()).unwrap();
    let standby = primary.standby().unwrap();
    let before = queue(&primary).await;
    before.push(&jobs(), &[message("a"), message("b")]).await.unwrap();
    let first = before.receive(&request(1)).await.unwrap().deliveries.remove(0);
    primary.wait_for(&standby).unwrap();
    // These the standby never sees.
    standby.script("postgres", "ALTER SYSTEM SET primary_conninfo = '';\nSELECT pg_reload_conf();").unwrap();
    let streams = || standby.sql("postgres", "SELECT count(*) FROM pg_stat_wal_receiver").unwrap() != "0";
    eventually("the standby to be cut off", || (!streams()).then_some(())).unwrap();
    let mut last = first.fence;
    for _ in 0..3 {
        before.push(&jobs(), &[message("c")]).await.unwrap();
        last = before.receive(&request(2)).await.unwrap().deliveries.last().unwrap().fence;
    }
    primary.kill().unwrap();
    standby.promote().unwrap();
    let after = queue(&standby).await;
    let received = after.receive(&request(10)).await.unwrap().deliveries;
    assert_eq!(texts(&received[..1]), ["b"]);
    assert!(received[0].fence > last, "{} after {last}", received[0].fence);
    let acked = after.settle(&jobs(), &[Settle::new(first.receipt, Settlement::Ack)]).await.unwrap();
    assert_eq!(acked, [Settled::Done], "a delivery outlives the failover");
}

/// What a transaction saw when it began is not what is so when it waited: the user's default has to be READ COMMITTED. A push
/// without a name depends on nothing that others do.
#[tokio::test]
async fn queues_under_another_isolation_are_refused_by_name() {
    let server = start(PostgresOptions::new()).unwrap();
    for isolation in ["repeatable read", "serializable"] {
        server
            .sql("postgres", &format!("ALTER USER postgres SET default_transaction_isolation = '{isolation}'"))
            .unwrap();
        let queue = queue(&server).await;
        queue.push(&jobs(), &[message("a")]).await.unwrap();
        let named = NewMessage::new(Payload::new(&b"b"[..]).unwrap())
            .with_id(Some(NamedId::new(MessageId::named("b").unwrap(), Delay::ZERO)));
        for error in [queue.push(&jobs(), &[named]).await.unwrap_err(), queue.receive(&request(1)).await.unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::Misconfigured, "{isolation}: {error:#}");
            assert!(error.to_string().contains("SET default_transaction_isolation = 'read committed'"), "{error}");
        }
        server.sql("postgres", "ALTER USER postgres RESET default_transaction_isolation").unwrap();
        let mut session = session(&server).await;
        let transaction =
            session.build_transaction().isolation_level(IsolationLevel::Serializable).start().await.unwrap();
        transaction.execute("SELECT tenure.push('jobs', 'c')", &[]).await.unwrap();
        transaction.commit().await.unwrap();
    }
    let queue = queue(&server).await;
    let received = queue.receive(&request(10)).await.unwrap();
    assert_eq!(texts(&received.deliveries), ["a", "c", "a", "c"]);
}
