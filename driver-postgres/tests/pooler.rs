//! Through a pooler in transaction mode: each statement may meet another session of the server.

mod common;

use std::time::Duration;

use common::start;
use tenure_core::Client;
use tenure_postgres::PostgresDriver;
use tenure_testkit::{PgBouncer, PostgresOptions, PostgresServer};

async fn through(server: &PostgresServer, pooler: &PgBouncer) -> Client {
    let url = format!("{}?prepare=false&listen=127.0.0.1:{}", pooler.url("postgres"), server.port());
    Client::new(PostgresDriver::connect(&url).await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_waiters_and_queues_work_through_a_pooler() {
    let server = start(PostgresOptions::new()).unwrap();
    let pooler = PgBouncer::start(&server).unwrap();
    let (one, other) = (through(&server, &pooler).await, through(&server, &pooler).await);
    let held = one.lock("orders/42").acquire().await.unwrap();
    let (first, waiter) = (held.fence(), other.lock("orders/42"));
    let waiting = tokio::spawn(async move { waiter.acquire().await });
    let waits = async || one.lock("orders/42").inspect().await.unwrap().waiters == 1;
    let patience = tokio::time::timeout(Duration::from_secs(10), async {
        while !waits().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    patience.await.expect("the other waits");
    held.release().await.unwrap();
    let next = tokio::time::timeout(Duration::from_secs(5), waiting).await.expect("it is woken").unwrap().unwrap();
    assert!(next.fence() > first);
    next.release().await.unwrap();

    let (producer, consumer) = (one.queue_of_bytes("jobs").unwrap(), other.queue_of_bytes("jobs").unwrap());
    let receiving = tokio::spawn(async move { consumer.receive().await?.ack().await });
    producer.push(&b"a".to_vec()).await.unwrap();
    tokio::time::timeout(Duration::from_secs(10), receiving).await.expect("it comes").unwrap().unwrap();
    assert!(!one.doctor().await.unwrap().findings().is_empty(), "each statement of the check-up is one by itself");
}
