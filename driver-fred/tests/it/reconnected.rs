//! A server that changed while the link to it was down is looked at again.

use std::time::{Duration, Instant};

use crate::common::server;
use tenure_core::{Client, Error, ErrorKind};
use tenure_fred::FredDriver;
use tenure_testkit::{RedisServer, RespClient};

/// Longer than any test waits for something that does happen.
const LONG: Duration = Duration::from_secs(20);

/// The connections of the driver end.
fn cut(server: &RedisServer) {
    RespClient::unix(&server.socket()).unwrap().call(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).unwrap();
    let _ = server.cli(&["CLIENT", "KILL", "TYPE", "pubsub"]);
}

/// Asks until it is refused.
async fn refused(client: &Client) -> Error {
    let began = Instant::now();
    loop {
        match client.lock("a").try_acquire().await {
            Err(error) if error.kind() == ErrorKind::Misconfigured => return error,
            Err(error) => assert!(error.is_transient(), "{error}"),
            Ok(guard) => drop(guard),
        }
        assert!(began.elapsed() < LONG, "never refused");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_server_that_may_evict_by_now_is_refused_until_it_is_mended() {
    let server = server();
    let client = Client::new(FredDriver::connect(&format!("fred+{}", server.url())).await.unwrap());
    let take = async |name: &str| client.lock(name).try_acquire().await.unwrap().unwrap().release().await;
    take("before").await.unwrap();
    server.cli(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).unwrap();
    take("on the same connection").await.unwrap();
    cut(&server);
    let error = refused(&client).await;
    assert!(error.message().contains("allkeys-lru"), "{error}");
    server.cli(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).unwrap();
    take("mended").await.unwrap();
}

#[tokio::test]
async fn a_changed_password_is_denied_until_it_is_changed_back() {
    let server = server();
    let user = |password: &str| {
        server.cli(&["ACL", "SETUSER", "app", "reset", "on", password, "allkeys", "allchannels", "+@all"]).unwrap();
    };
    user(">old");
    let url = format!("fred+redis://app:old@127.0.0.1:{}/", server.port());
    let client = Client::new(FredDriver::connect(&url).await.unwrap());
    client.ping().await.unwrap();
    user(">new");
    cut(&server);
    let began = Instant::now();
    loop {
        match client.ping().await {
            Err(error) if error.kind() == ErrorKind::Denied => break,
            Err(error) => assert!(error.is_transient() && began.elapsed() < LONG, "{error}"),
            Ok(()) => {}
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    user(">old");
    let began = Instant::now();
    while let Err(error) = client.ping().await {
        assert!(began.elapsed() < LONG, "it does not come back: {error}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
