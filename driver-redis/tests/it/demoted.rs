//! A link that leads to another server than before: its primary became a replica.

use std::time::{Duration, Instant};

use crate::common::{LONG, PLACES, Server, attempt, commands, hold, server, user, waiter};
use tenure_core::driver::{Released, Signal};
use tenure_core::{Client, ErrorKind};
use tenure_redis::RedisDriver;
use tenure_testkit::{TcpProxy, eventually};

/// Makes it a replica of nobody who answers: it keeps its data, and takes no writes.
fn demote(server: &Server) {
    server.cli(&["REPLICAOF", "127.0.0.1", "1"]).unwrap();
}

async fn connect(port: u16) -> Client {
    let driver = RedisDriver::connect_url(&format!("redis://127.0.0.1:{port}/")).await.unwrap();
    Client::builder(driver).presence(Duration::from_secs(1)).build().unwrap()
}

#[tokio::test]
async fn the_connection_is_made_anew_where_the_name_leads_now() {
    let (old, new) = (server(), server());
    let name = TcpProxy::start(old.port()).unwrap();
    let client = connect(name.port()).await;
    let lock = client.lock("a");
    lock.try_acquire().await.unwrap().unwrap().release().await.unwrap(); // a replica can say that a lock is taken
    demote(&old);
    name.lead_to(new.port());
    let started = Instant::now();
    let guard = loop {
        match lock.try_acquire().await {
            Ok(guard) => break guard.unwrap(),
            Err(error) => assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate), "{error}"),
        }
        assert!(started.elapsed() < LONG);
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(new.cli(&["EXISTS", "tenure:a"]).unwrap().int(), Some(1));
    guard.release().await.unwrap();
    old.cli(&["REPLICAOF", "NO", "ONE"]).unwrap();
}

/// However many requests are refused.
#[tokio::test]
async fn a_connection_is_not_made_anew_for_each_refusal() {
    let server = server();
    let name = TcpProxy::start(server.port()).unwrap();
    let client = connect(name.port()).await;
    let lock = client.lock("a");
    demote(&server);
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(2) {
        assert!(lock.try_acquire().await.unwrap_err().is_transient());
    }
    let most = 3 + started.elapsed().as_secs() as usize;
    assert!((2..=most).contains(&name.accepted()), "{} connections in {:?}", name.accepted(), started.elapsed());
    server.cli(&["REPLICAOF", "NO", "ONE"]).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_outlasts_it() {
    let server = server();
    let client = connect(server.port()).await;
    let holder = client.lock("a").ttl(Duration::from_secs(60)).acquire().await.unwrap();
    let other = connect(server.port()).await;
    let waiting = tokio::spawn(async move { other.lock("a").acquire().await });
    let queued = || (server.cli(&["ZCARD", "{tenure:a}:q"]).unwrap().int() == Some(1)).then_some(());
    eventually("the other to wait", queued).unwrap();
    demote(&server);
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(3) {
        assert!(!waiting.is_finished(), "{:?}", waiting.await);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    server.cli(&["REPLICAOF", "NO", "ONE"]).unwrap();
    holder.release().await.unwrap();
    let guard = tokio::time::timeout(LONG, waiting).await.unwrap().unwrap().unwrap();
    guard.release().await.unwrap();
}

/// One that is a replica from the start is a mistake in the configuration, which nobody waits out.
#[tokio::test]
async fn a_replica_at_the_start_is_refused_also_where_its_role_is_not_reported() {
    let server = server();
    let rest: Vec<&str> = commands().into_iter().filter(|command| *command != "+info").collect();
    let url = user(&server, &PLACES, &rest);
    demote(&server);
    let error = RedisDriver::connect_url(&url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    assert!(error.message().contains("replica"), "{error}");
}

/// A waiter tells when its lease began by the clock that its last answer came from.
#[tokio::test]
async fn news_from_behind_a_gap_are_a_reason_to_ask_only() {
    let server = server();
    let name = TcpProxy::start(server.port()).unwrap();
    let client = crate::common::Client::at(&format!("redis://127.0.0.1:{}/", name.port())).await;
    let waiter = waiter("a");
    let mut watch = client.watch(&waiter).await;
    let channels = || server.cli(&["PUBSUB", "CHANNELS", "tenure:wake:*"]).unwrap();
    let channel = channels().items()[0].text();
    let news = format!("{};9;1;2000;8", waiter.token.expose().as_str());
    server.cli(&["PUBLISH", &channel, &news]).unwrap();
    assert!(matches!(watch.next().await, Signal::Handed(_)));

    name.cut();
    let started = Instant::now();
    while name.accepted() < 2 || client.locks.inspect(&waiter.name).await.is_err() || channels().items().len() != 1 {
        assert!(started.elapsed() < LONG);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    server.cli(&["PUBLISH", &channel, &news]).unwrap();
    client.locks.inspect(&waiter.name).await.unwrap(); // the news precede this reply
    assert_eq!(watch.next().await, Signal::Wake);
}

/// Too few replicas are attached: whatever only reads is served.
#[tokio::test]
async fn a_primary_that_may_not_write_still_answers_what_reads() {
    let server = server();
    let client = crate::common::Client::of(&server).await;
    let mine = attempt("a");
    client.grant(&mine).await;
    server.cli(&["CONFIG", "SET", "min-replicas-to-write", "3"]).unwrap();
    assert!(client.locks.inspect(&mine.name).await.unwrap().holder.is_some());
    let error = client.locks.acquire(&attempt("b")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    server.cli(&["CONFIG", "SET", "min-replicas-to-write", "0"]).unwrap();
    assert_eq!(client.locks.release(&hold(&mine)).await.unwrap(), Released::Released);
}
