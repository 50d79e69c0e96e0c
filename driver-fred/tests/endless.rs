//! A server whose answer never ends: the timeouts hold, and the connection that it comes on is replaced.

mod common;

use std::time::{Duration, Instant};

use common::server;
use tenure_core::{Client, ErrorKind};
use tenure_fred::{FredDriver, RedisConfig};
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
            let error = FredDriver::connect(through(&proxy, protocol)).await.unwrap_err();
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
            let driver = FredDriver::connect(through(&proxy, protocol)).await.unwrap();
            let client = Client::new(driver);
            proxy.set_present(link);
            let began = Instant::now();
            let error = client.lock("a").unwrap().try_acquire().await.unwrap_err();
            let took = began.elapsed();
            assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate), "{error}");
            assert!(took < LIMIT + SLACK, "{link:?} of protocol {protocol}: {took:?}");
            let began = Instant::now();
            while client.lock("b").unwrap().try_acquire().await.is_err() {
                assert!(began.elapsed() < 2 * LIMIT + SLACK, "the link is not mended");
            }
            client.close(LIMIT).await.unwrap();
        }
    }
}
