//! Messages in the user's own transactions, and rows that others keep.

use crate::common::{message, queue, receive, session, start};
use mysql_async::prelude::Queryable as _;
use tenure_core::driver::{DelayQueueExt as _, NewMessage, Settle, Settled, Settlement};
use tenure_core::queue::{ConcurrencyKey, QueueName};
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
    let refused = user.query_drop("CALL tenure_push('', 'x', 0, NULL, NULL, NULL, NULL)").await.unwrap_err();
    assert!(refused.to_string().contains("does not take"), "{refused}");
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
