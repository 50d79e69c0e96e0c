//! How much of an answer without end is kept. A process of its own, whose memory is measured.

#![cfg(target_os = "linux")]

use std::time::Duration;

use tenure_core::driver::Backend;
use tenure_core::{Client, ErrorKind};
use tenure_redis::{RedisConfig, RedisDriver};
use tenure_testkit::{Link, RedisOptions, RedisServer, TcpProxy};

/// Long enough for gigabytes on loopback.
const LIMIT: Duration = Duration::from_secs(5);

/// 256 MiB of one answer, as much again while its buffer grows, and the process besides.
const MOST: u64 = 600 << 20;

/// The most memory that this process has had, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

async fn through(proxy: &TcpProxy, protocol: u32) -> Client {
    let url = format!("redis://127.0.0.1:{}/?protocol=resp{protocol}", proxy.port());
    let config = RedisConfig::from_url(&url).unwrap().response_timeout(LIMIT).unwrap();
    let driver: Backend = RedisDriver::connect_with(config).await.unwrap().into();
    Client::builder(driver).op_timeout(LIMIT).build().unwrap()
}

#[tokio::test]
async fn an_answer_without_end_is_given_up_when_it_is_longer_than_any() {
    let server = RedisServer::start(RedisOptions::new()).unwrap();
    for (link, protocol) in [(Link::EndlessString, 2), (Link::EndlessString, 3), (Link::EndlessLine, 3)] {
        let proxy = TcpProxy::start(server.port()).unwrap();
        let client = through(&proxy, protocol).await;
        proxy.set_present(link);
        let error = client.lock("a").try_acquire().await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate), "{error}");
        assert!(peak() < MOST, "{link:?} of protocol {protocol}: {} MiB", peak() >> 20);
        client.close(12 * LIMIT).await.unwrap(); // what is left to undo waits for a new link
    }
}

#[tokio::test]
async fn an_answer_that_is_nested_without_end_is_an_error() {
    let server = RedisServer::start(RedisOptions::new()).unwrap();
    for protocol in [2, 3] {
        let proxy = TcpProxy::start(server.port()).unwrap();
        let client = through(&proxy, protocol).await;
        proxy.set_present(Link::EndlessNesting);
        let error = client.lock("a").try_acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
        client.close(12 * LIMIT).await.unwrap();
    }
}
