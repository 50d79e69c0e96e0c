//! How large the tables of queues become.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::common::{queue, start};
use tenure_core::driver::{Lease, NewMessage, Payload, ReceiveRequest, Settle, Settlement};
use tenure_core::queue::QueueName;
use tenure_testkit::{PostgresOptions, PostgresServer};

/// Sizes in bytes: the table, all of its indexes; and how often it was vacuumed by the server itself.
fn sizes(server: &PostgresServer) -> (u64, u64, u64) {
    let look = "SELECT pg_relation_size('tenure.message'), pg_indexes_size('tenure.message'), autovacuum_count \
                FROM pg_stat_all_tables WHERE relid = 'tenure.message'::regclass";
    let answer = server.sql("postgres", look).unwrap();
    let numbers: Vec<u64> = answer.split('|').map(|number| number.parse().unwrap()).collect();
    (numbers[0], numbers[1], numbers[2])
}

/// A million messages go through a queue (`TENURE_MESSAGES` names another number), a few thousand at a time. With the
/// settings that its tables are made with, autovacuum bounds them by what goes through between two of its rounds; without, they
/// grow by half a MiB with each thousand messages.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes"]
async fn tables_stay_small_while_a_million_messages_go_through() {
    const BACKLOG: usize = 5_000;
    const BATCH: usize = 100;
    let count: usize = std::env::var("TENURE_MESSAGES").map_or(1_000_000, |count| count.parse().unwrap());
    // The server's own is a minute; nothing else differs from it.
    let server = Arc::new(start(PostgresOptions::new().setting("autovacuum_naptime", "10s")).unwrap());
    let jobs = QueueName::new("jobs").unwrap();
    let (pushed, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let began = Instant::now();
    let mut tasks = Vec::new();
    {
        let (queue, jobs, pushed, done) = (queue(&server).await, jobs.clone(), Arc::clone(&pushed), Arc::clone(&done));
        tasks.push(tokio::spawn(async move {
            let batch = vec![NewMessage::new(Payload::new(vec![7; 100]).unwrap()); BATCH];
            while pushed.load(Ordering::Relaxed) < count {
                if pushed.load(Ordering::Relaxed) - done.load(Ordering::Relaxed) > BACKLOG {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                    continue;
                }
                queue.push(&jobs, &batch).await.unwrap();
                pushed.fetch_add(BATCH, Ordering::Relaxed);
            }
        }));
    }
    for _ in 0..4 {
        let (queue, jobs, done) = (queue(&server).await, jobs.clone(), Arc::clone(&done));
        tasks.push(tokio::spawn(async move {
            let request = ReceiveRequest::new(jobs, BATCH, Lease::DEFAULT);
            let mut settles = Vec::new();
            while done.load(Ordering::Relaxed) < count {
                let exchanged = queue.exchange(&settles, &request).await.unwrap();
                done.fetch_add(settles.len(), Ordering::Relaxed);
                let deliveries = exchanged.received.deliveries;
                if deliveries.is_empty() {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                settles = deliveries.iter().map(|one| Settle::new(one.receipt, Settlement::Ack)).collect();
            }
        }));
    }
    let (watched, looks) = (Arc::clone(&server), Arc::clone(&done));
    let watcher = tokio::task::spawn_blocking(move || {
        let mut most = (0, 0);
        while looks.load(Ordering::Relaxed) < count {
            let (table, indexes, vacuums) = sizes(&watched);
            most = (most.0.max(table), most.1.max(indexes));
            let seconds = began.elapsed().as_secs_f64();
            let done = looks.load(Ordering::Relaxed);
            let rate = done as f64 / seconds;
            eprintln!(
                "{seconds:5.0} s {done:8} done, {rate:6.0}/s: table {table}, indexes {indexes}, {vacuums} vacuums"
            );
            std::thread::sleep(Duration::from_secs(5));
        }
        most
    });
    for task in tasks {
        task.await.unwrap();
    }
    let most = watcher.await.unwrap();
    let (table, indexes, vacuums) = sizes(&server);
    eprintln!("after {:?}: table {table}, indexes {indexes}, {vacuums} vacuums; most {most:?}", began.elapsed());
    assert!(vacuums > 0, "autovacuum did not come by");
    assert_eq!(queue(&server).await.stats(&jobs).await.unwrap().ready, 0);
    let most = most.0.max(table) + most.1.max(indexes);
    assert!(most < 256 << 20, "{} MiB for {BACKLOG} messages at a time", most >> 20);
}
