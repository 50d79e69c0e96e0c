//! A server whose answer never ends: the timeouts hold, and the connection that it comes on is replaced.

mod common;

use std::time::{Duration, Instant};

use common::{Client, attempt, server};
use tenure_core::ErrorKind;
use tenure_redis::{RedisConfig, RedisDriver};
use tenure_testkit::{Link, RedisServer, TcpProxy};

const LIMIT: Duration = Duration::from_secs(1);
/// What a busy machine adds.
const SLACK: Duration = Duration::from_secs(2);

fn through(proxy: &TcpProxy, protocol: u32) -> RedisConfig {
    let url = format!("redis://127.0.0.1:{}/?protocol=resp{protocol}", proxy.port());
    let config = RedisConfig::from_url(&url).unwrap();
    config.connect_timeout(LIMIT).unwrap().response_timeout(LIMIT).unwrap()
}

fn before(server: &RedisServer) -> TcpProxy {
    TcpProxy::start(server.port()).unwrap()
}

#[tokio::test]
async fn connecting_ends_in_time() {
    let server = server();
    for link in [Link::EndlessLine, Link::EndlessString] {
        for protocol in [2, 3] {
            let proxy = before(&server);
            proxy.set_new(link);
            let began = Instant::now();
            let error = RedisDriver::connect(through(&proxy, protocol)).await.unwrap_err();
            let took = began.elapsed();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            assert!(took < LIMIT + SLACK, "{link:?} of protocol {protocol}: {took:?}");
        }
    }
}

#[tokio::test]
async fn a_request_ends_in_time_and_the_connection_is_replaced() {
    let server = server();
    for link in [Link::EndlessLine, Link::EndlessString] {
        for protocol in [2, 3] {
            let proxy = before(&server);
            let client = Client::with(through(&proxy, protocol)).await;
            proxy.set_present(link);
            let began = Instant::now();
            let error = client.locks.acquire(&attempt("a")).await.unwrap_err();
            let took = began.elapsed();
            assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate), "{error}");
            assert!(took < LIMIT + SLACK, "{link:?} of protocol {protocol}: {took:?}");
            let began = Instant::now();
            while client.locks.acquire(&attempt("b")).await.is_err() {
                assert!(began.elapsed() < 2 * LIMIT + SLACK, "the link is not mended");
            }
            client.locks.close().await;
        }
    }
}
