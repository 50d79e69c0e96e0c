//! A server that lets everybody connect and says nothing.

use std::time::{Duration, Instant};

use crate::common::{Client, LONG, attempt, server};
use tenure_core::ErrorKind;
use tenure_redis::{RedisConfig, RedisDriver};

/// How many sockets this process has open.
fn sockets() -> usize {
    let files = std::fs::read_dir("/proc/self/fd").unwrap();
    let targets = files.filter_map(|file| std::fs::read_link(file.unwrap().path()).ok());
    targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count()
}

#[tokio::test]
async fn attempts_to_connect_leave_nothing_open() {
    let mut server = server();
    let brief = Duration::from_millis(50);
    let config = RedisConfig::from_url(&server.url()).unwrap();
    let config = config.connect_timeout(brief).unwrap().response_timeout(brief).unwrap().ping_interval(brief).unwrap();
    let client = Client::with(config).await;
    let before = sockets();
    server.pause().unwrap();
    let started = Instant::now();
    let mut most = 0;
    while started.elapsed() < Duration::from_secs(4) {
        let error = client.locks.acquire(&attempt("a")).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate), "{error}");
        most = most.max(sockets());
    }
    assert!(most <= before + 2, "{before} sockets at first, {most} during the outage");
    server.resume().unwrap();
    let started = Instant::now();
    while client.locks.acquire(&attempt("a")).await.is_err() {
        assert!(started.elapsed() < LONG);
    }
    assert!(sockets() <= before + 1, "{before} sockets at first, {} now", sockets());
}

/// The request that a waiter had sent when the server fell silent is served when it wakes up, to nobody: its lease is
/// over for the waiter, who sent it long ago. The wait goes on all the same.
#[tokio::test]
async fn a_wait_survives_a_silence_longer_than_its_lease() {
    let mut server = server();
    let driver = RedisDriver::connect(&server.url()).await.unwrap();
    let presence = Duration::from_millis(60);
    let client = tenure_core::Client::builder(driver).presence(presence).build().unwrap();
    let ttl = Duration::from_millis(600);
    let holder = client.lock("a").fixed_ttl(ttl).acquire().await.unwrap();
    let lock = client.lock("a").ttl(ttl);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    while holder.remaining() > ttl / 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    server.pause().unwrap();
    tokio::time::sleep(3 * ttl).await;
    server.resume().unwrap();
    let guard = tokio::time::timeout(LONG, waiting).await.unwrap().unwrap().unwrap();
    assert!(guard.is_held() && guard.fence() > holder.fence());
}

#[tokio::test]
async fn a_driver_closes_at_once_while_it_connects() {
    let mut server = server();
    let config = RedisConfig::from_url(&server.url()).unwrap();
    let brief = Duration::from_millis(50);
    let config = config.response_timeout(brief).unwrap().ping_interval(brief).unwrap();
    let client = Client::with(config.connect_timeout(LONG).unwrap()).await;
    let before = sockets();
    server.pause().unwrap();
    while client.locks.acquire(&attempt("a")).await.unwrap_err().kind() != ErrorKind::Unavailable {}
    tokio::time::timeout(LONG / 2, client.locks.close()).await.unwrap();
    assert_eq!(client.locks.acquire(&attempt("a")).await.unwrap_err().kind(), ErrorKind::Closed);
    let started = Instant::now();
    while sockets() >= before {
        assert!(started.elapsed() < LONG, "the connection ends with the driver");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    server.resume().unwrap();
}
