//! The portable client over this driver: hand-overs between two clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{LONG, calls, server};
use tenure_core::Client;
use tenure_redis::RedisDriver;

#[tokio::test]
async fn sixteen_waiters_on_two_clients_take_turns_without_polling() {
    const WAITERS: u64 = 16;
    let server = server();
    let mut clients = Vec::new();
    for _ in 0..2 {
        let driver = RedisDriver::connect(&server.url()).await.unwrap();
        clients.push(Client::builder(driver).holders_per_grant(0).build().unwrap()); // every waiter stands in the queue
    }
    let guard = clients[0].lock("hot").acquire().await.unwrap();
    let last_fence = Arc::new(AtomicU64::new(guard.fence().get()));
    let mut waiting = Vec::new();
    for i in 0..WAITERS {
        let lock = clients[usize::try_from(i % 2).unwrap()].lock("hot");
        let last_fence = Arc::clone(&last_fence);
        waiting.push(tokio::spawn(async move {
            let guard = lock.acquire().await.unwrap();
            let before = last_fence.swap(guard.fence().get(), Ordering::SeqCst);
            assert!(before < guard.fence().get());
            guard.release().await.unwrap();
        }));
        let joined = || server.cli(&["ZCARD", "{tenure:hot}:q"]).unwrap().int() == i64::try_from(i + 1).ok();
        let deadline = std::time::Instant::now() + LONG;
        while !joined() {
            assert!(std::time::Instant::now() < deadline);
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    }
    server.cli(&["CONFIG", "RESETSTAT"]).unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert_eq!(calls(&server, "evalsha"), 0, "nobody asks while nothing happens");
    guard.release().await.unwrap();
    for task in waiting {
        tokio::time::timeout(LONG, task).await.unwrap().unwrap();
    }
    let asked = calls(&server, "evalsha");
    assert!(asked <= 1 + 4 * WAITERS, "{asked} requests for {WAITERS} hand-overs");
    assert_eq!(calls(&server, "publish"), WAITERS);
}

#[tokio::test]
async fn cancelled_acquisitions_leave_nothing_behind_over_a_pause_of_the_server() {
    let mut server = server();
    let driver = RedisDriver::connect(&server.url()).await.unwrap();
    let client = Client::new(driver);
    let mut tasks = Vec::new();
    for i in 0..300_u64 {
        let lock = client.lock(format!("lock-{}", i % 7));
        let patience = std::time::Duration::from_micros(i * 7919 % 3000);
        tasks.push(tokio::spawn(async move {
            // Granted, waiting or not yet sent: whatever it is, it is dropped.
            let _ = tokio::time::timeout(patience, lock.acquire()).await;
        }));
        if i == 100 {
            server.pause().unwrap();
        }
        if i == 200 {
            server.resume().unwrap();
        }
        tokio::time::sleep(std::time::Duration::from_micros(i * 31 % 500)).await;
    }
    for task in tasks {
        tokio::time::timeout(LONG, task).await.unwrap().unwrap();
    }
    let deadline = std::time::Instant::now() + LONG;
    let left = || -> Vec<String> {
        let lasting = |key: &String| !key.contains(":x:") && key != "tenure:{fence}";
        crate::common::keys(&server).into_iter().filter(lasting).collect()
    };
    while client.stats().cleanups > 0 || client.stats().waiters > 0 || !left().is_empty() {
        assert!(std::time::Instant::now() < deadline, "{:?} {:?}", client.stats(), left());
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    client.close(LONG).await.unwrap();
}
