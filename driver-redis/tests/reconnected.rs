//! A server that changed while the link to it was down is looked at again.

mod common;

use std::time::{Duration, Instant};

use common::queue::{message, queue, up_to};
use common::{Client, LONG, attempt, calls, server};
use tenure_core::{Error, ErrorKind, OwnerId};
use tenure_testkit::{RedisServer, RespClient, TcpProxy};

/// The connections of the driver end.
fn cut(server: &RedisServer) {
    RespClient::unix(&server.socket()).unwrap().call(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).unwrap();
    let _ = server.cli(&["CLIENT", "KILL", "TYPE", "pubsub"]);
}

/// Asks until it is refused.
async fn refused(c: &Client) -> Error {
    let began = Instant::now();
    loop {
        match c.locks.acquire(&attempt("a")).await {
            Err(error) if error.kind() == ErrorKind::Misconfigured => return error,
            Err(error) => assert!(error.is_transient(), "{error}"),
            Ok(_) => {}
        }
        assert!(began.elapsed() < LONG, "never refused");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_server_that_may_evict_by_now_is_refused_until_it_is_mended() {
    let server = server();
    let c = Client::of(&server).await;
    c.grant(&attempt("before")).await;
    server.cli(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).unwrap();
    c.grant(&attempt("on the same connection")).await;
    cut(&server);
    let error = refused(&c).await;
    assert!(error.message().contains("allkeys-lru"), "{error}");
    let jobs = queue("jobs");
    let of_all = [
        c.reentrant.enter(&OwnerId::new(), &attempt("b")).await.map(drop),
        c.queues.push(&jobs, &[message("a", 0)]).await.map(drop),
        c.queues.receive(&up_to(&jobs, 1)).await.map(drop),
    ];
    for result in of_all {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Misconfigured);
    }
    server.cli(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).unwrap();
    c.grant(&attempt("mended")).await;
    server.cli(&["CONFIG", "RESETSTAT"]).unwrap();
    c.grant(&attempt("and known to be")).await;
    assert_eq!(calls(&server, "fcall"), 1, "nothing else is asked for");
    let told = server.cli(&["INFO", "commandstats"]).unwrap().text();
    assert!(told.contains("cmdstat_info:calls=1,") || !told.contains("cmdstat_info"), "{told}");
}

/// The name of the server leads to another one, that may evict.
#[tokio::test]
async fn a_successor_that_may_evict_is_refused() {
    let (old, new) = (server(), server());
    new.cli(&["CONFIG", "SET", "maxmemory-policy", "volatile-lru"]).unwrap();
    let name = TcpProxy::start(old.port()).unwrap();
    let c = Client::at(&format!("redis://127.0.0.1:{}/", name.port())).await;
    c.grant(&attempt("before")).await;
    name.lead_to(new.port());
    cut(&old);
    let error = refused(&c).await;
    assert!(error.message().contains("volatile-lru"), "{error}");
}
