//! Requests that arrive after their token was abandoned: the network kept them while a newer connection was in use.

use std::time::Duration;

use crate::common::{Client, attempt, calls, hold, keys, server};
use tenure_core::ErrorKind;
use tenure_redis::RedisConfig;
use tenure_testkit::{Link, TcpProxy, eventually};

/// `SET NX` in a transaction would be granted here, to nobody: see `docs/adr/0028-no-transaction-for-a-free-lock.md`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_its_abandonment_has_overtaken_is_granted_nothing() {
    let server = server();
    let proxy = TcpProxy::start(server.port()).unwrap();
    let config = RedisConfig::from_url(&server.url_through(proxy.port())).unwrap();
    let client = Client::with(config.response_timeout(Duration::from_millis(200)).unwrap()).await;
    client.grant(&attempt("b")).await; // the server knows the script from here on
    proxy.set_present(Link::Jammed);
    let late = attempt("a");
    let error = client.locks.acquire(&late).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Indeterminate);
    while let Err(error) = client.locks.abandon(&hold(&late)).await {
        assert!(error.is_transient(), "{error}");
    }
    assert_eq!(proxy.accepted(), 2, "it was abandoned on another connection");

    let before = calls(&server, "evalsha");
    proxy.set_present(Link::Open);
    eventually("the late request arrives", || (calls(&server, "evalsha") > before).then_some(())).unwrap();
    assert!(!keys(&server).contains(&"tenure:a".to_owned()), "{:?}", keys(&server));
    client.grant(&attempt("a")).await;
}
