//! Bad days of a server, and what is said about them.

use std::time::{Duration, Instant};

use crate::common::{Client, LONG, attempt, entry, hold, keys, server, server_with, ttl, waiter, woken};
use tenure_core::driver::{Acquisition, Backend, Exited, Released, Renewed};
use tenure_core::{Error, ErrorKind, OwnerId};
use tenure_redis::{RedisConfig, RedisDriver};
use tenure_testkit::{Link, RedisOptions, RedisServer, TcpProxy};

async fn refused(url: &str) -> Error {
    RedisDriver::connect_url(url).await.unwrap_err()
}

/// Asks until the link is back; every failure on the way has to be one of a link.
async fn eventually_acquired(client: &Client, lock: &str) {
    let started = Instant::now();
    loop {
        match client.locks.acquire(&attempt(lock)).await {
            Ok(_) => return,
            Err(error) => assert!(error.is_transient(), "{error}"),
        }
        assert!(started.elapsed() < LONG);
    }
}

#[tokio::test]
async fn forgotten_scripts_are_sent_again() {
    let server = server();
    let client = Client::of(&server).await;
    let mine = attempt("a");
    client.grant(&mine).await;
    server.cli(&["SCRIPT", "FLUSH"]).unwrap();
    assert_eq!(client.locks.release(&hold(&mine)).await.unwrap(), Released::Released);
    client.grant(&mine).await;
}

#[tokio::test]
async fn out_of_memory_nothing_is_granted_and_everything_can_be_undone() {
    let server = server();
    let client = Client::of(&server).await;
    let owner = OwnerId::new();
    let (plain, undone, outer, inner) = (attempt("a"), attempt("b"), attempt("r"), attempt("r"));
    client.grant(&plain).await;
    client.grant(&undone).await;
    client.enter(&owner, &outer).await;
    client.enter(&owner, &inner).await;
    let next = waiter("a");
    let mut watch = client.watch(&next).await;
    client.busy(&next).await;
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();

    for error in [
        client.locks.acquire(&attempt("c")).await.unwrap_err(),
        client.locks.acquire(&waiter("a")).await.unwrap_err(),
        client.reentrant.enter(&owner, &attempt("r")).await.unwrap_err(),
        client.reentrant.enter(&owner, &attempt("s")).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.message().contains("maxmemory"), "{error}");
    }
    let renewed = client.locks.renew(ttl(60_000), &[hold(&plain)]).await.remove(0).unwrap();
    assert_eq!(renewed, Renewed::Extended { ttl: Duration::from_secs(60) });
    assert_eq!(client.locks.release(&hold(&plain)).await.unwrap(), Released::Released);
    assert!(woken(&mut watch).await);
    client.locks.abandon(&hold(&undone)).await.unwrap();
    let late = attempt("late");
    client.locks.abandon(&hold(&late)).await.unwrap();
    assert_eq!(client.reentrant.exit(&entry(&owner, &inner)).await.unwrap(), Exited::Inside { depth: 1 });
    client.reentrant.abandon(&entry(&owner, &outer)).await.unwrap();
    assert!(!keys(&server).iter().any(|key| ["tenure:a", "tenure:b", "tenure:r"].contains(&key.as_str())));

    server.cli(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();
    for request in [&undone, &late] {
        let error = client.locks.acquire(request).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotHeld, "the tombstone was written all the same");
    }
    client.grant(&next).await;
}

#[tokio::test]
async fn a_replica_is_named() {
    let server = server();
    let client = Client::of(&server).await;
    server.cli(&["REPLICAOF", "127.0.0.1", "1"]).unwrap();
    let at_the_start = (refused(&server.url()).await, ErrorKind::Misconfigured);
    let later = (client.locks.acquire(&attempt("a")).await.unwrap_err(), ErrorKind::Unavailable);
    for (error, kind) in [at_the_start, later] {
        assert_eq!(error.kind(), kind);
        assert!(error.message().contains("replica"), "{error}");
    }
}

#[tokio::test]
async fn an_eviction_policy_is_named_and_can_be_allowed() {
    let server = server_with(RedisOptions::new().setting("maxmemory-policy", "volatile-lru"));
    let error = refused(&server.url()).await;
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    assert!(error.message().contains("volatile-lru"), "{error}");
    let driver = RedisDriver::connect_url(&format!("{}?allow_eviction=true", server.url())).await.unwrap();
    assert!(driver.notes().remarks()[0].contains("volatile-lru"), "{:?}", driver.notes());
}

#[tokio::test]
async fn wrong_credentials_are_named_and_not_repeated() {
    let server = server_with(RedisOptions::new().password("right"));
    Client::at(&server.url()).await;
    Client::at(&server.unix_url()).await;
    for url in [format!("redis://:s3cret@127.0.0.1:{}", server.port()), format!("redis://127.0.0.1:{}", server.port())]
    {
        let error = refused(&url).await;
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert!(error.message().contains("password"), "{error}");
        assert!(!format!("{error:?}").contains("s3cret"), "{error:?}");
    }
}

#[tokio::test]
async fn a_dead_server_and_a_silent_one_are_reported_in_bounded_time() {
    let mut server = server();
    let url = server.url();
    server.pause().unwrap();
    let started = Instant::now();
    let error = refused(&url).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.message().contains("within 1s"), "{error}");
    server.kill().unwrap();
    let error = refused(&url).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.reason().contains("refused"), "{error}");
    let error = refused(&server.unix_url()).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_full_server_is_named() {
    // Not one whose keys are listed at the end: it may still count the connection that this test closes.
    let server = RedisServer::start(RedisOptions::new().setting("maxclients", "1")).unwrap();
    let _only = server.connect().unwrap();
    let started = Instant::now();
    loop {
        // The server refuses and hangs up at once; the first request may meet the closed end before the refusal is read.
        let error = refused(&server.url()).await;
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        if error.message().contains("maxclients") {
            break;
        }
        assert!(started.elapsed() < LONG, "{error}");
    }
}

#[tokio::test]
async fn a_loading_server_is_named() {
    let slow =
        [("key-load-delay", "20000"), ("loading-process-events-interval-bytes", "1024"), ("rdbcompression", "no")];
    let options = slow.into_iter().fold(RedisOptions::new(), |options, (name, value)| options.setting(name, value));
    let mut server = server_with(options);
    for i in 0..60 {
        server.cli(&["SET", &format!("key-{i}"), &"x".repeat(1000), "PX", "600000"]).unwrap();
    }
    server.cli(&["SAVE"]).unwrap();
    server.kill().unwrap();
    let url = server.url();
    let restarting = tokio::task::spawn_blocking(move || server.restart().map(|()| server));
    let error = loop {
        let error = refused(&url).await; // until it is up it refuses the connection
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        if error.message().contains("loading") {
            break error;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    assert!(error.is_transient());
    let _server = restarting.await.unwrap().unwrap();
    Client::at(&url).await.grant(&attempt("a")).await;
}

#[tokio::test]
async fn a_node_of_a_cluster_is_named() {
    let server = server_with(RedisOptions::new().setting("cluster-enabled", "yes"));
    let error = refused(&server.url()).await;
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    assert!(error.message().contains("cluster"), "{error}");
}

#[tokio::test]
async fn a_killed_subscription_is_made_again() {
    let server = server();
    let client = Client::of(&server).await;
    let mut watch = client.watch(&waiter("a")).await;
    server.cli(&["CLIENT", "KILL", "TYPE", "pubsub"]).unwrap();
    assert!(woken(&mut watch).await);
    let channels = server.cli(&["PUBSUB", "CHANNELS", "tenure:wake:*"]).unwrap();
    assert_eq!(channels.items().len(), 1);
}

#[test]
fn a_driver_outlives_its_runtime() {
    let server = server();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    let client = first.block_on(Client::of(&server));
    drop(first);
    runtime().block_on(client.grant(&attempt("a")));
}

#[tokio::test]
async fn a_busy_server_is_named() {
    let server = server_with(RedisOptions::new().setting("lua-time-limit", "20"));
    let client = Client::of(&server).await;
    let mut other = server.connect().unwrap();
    other.send(&["EVAL", "while true do end", "0"]).unwrap();
    let started = Instant::now();
    let error = loop {
        // The request may arrive before the endless script does, or before that counts as long.
        match client.locks.acquire(&attempt("a")).await {
            Err(error) if error.kind() == ErrorKind::Unavailable => break error,
            _ => assert!(started.elapsed() < LONG),
        }
    };
    assert!(error.message().contains("busy"), "{error}");
    server.cli(&["SCRIPT", "KILL"]).unwrap();
    eventually_acquired(&client, "a").await;
}

#[tokio::test]
async fn a_restarted_server_is_found_again_and_waiters_ask() {
    let mut server = server_with(RedisOptions::new().append_only());
    let client = Client::at(&server.url()).await;
    let (mine, next) = (attempt("a"), waiter("a"));
    client.grant(&mine).await;
    let mut watch = client.watch(&next).await;
    client.busy(&next).await;
    server.kill().unwrap();
    let error = client.locks.acquire(&attempt("b")).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    let error = client.locks.acquire(&attempt("b")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "nothing is sent over a link that is known to be down");
    assert!(error.message().contains("is down"), "{error}");
    server.restart().unwrap();
    assert!(woken(&mut watch).await);
    client.busy(&next).await;
    assert_eq!(client.locks.release(&hold(&mine)).await.unwrap(), Released::Released);
    assert!(woken(&mut watch).await, "the new link is subscribed");
    client.grant(&next).await;
}

#[tokio::test]
async fn a_link_that_goes_silent_under_requests_is_replaced() {
    let server = server();
    let proxy = TcpProxy::start(server.port()).unwrap();
    let client = Client::at(&server.url_through(proxy.port())).await;
    let next = waiter("a");
    let mut watch = client.watch(&next).await;
    proxy.set_present(Link::Silent);
    let started = Instant::now();
    let error = client.locks.acquire(&next).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}");
    assert!(woken(&mut watch).await);
    eventually_acquired(&client, "a").await;
    assert!(started.elapsed() < Duration::from_secs(6), "{:?}", started.elapsed());
    assert_eq!(proxy.accepted(), 2);
}

#[tokio::test]
async fn a_link_that_goes_silent_is_replaced_also_when_requests_are_dropped_first() {
    let server = server();
    let proxy = TcpProxy::start(server.port()).unwrap();
    let client = Client::at(&server.url_through(proxy.port())).await;
    let next = waiter("a");
    let mut watch = client.watch(&next).await;
    proxy.set_present(Link::Silent);
    let request = client.locks.acquire(&next);
    assert!(tokio::time::timeout(Duration::from_millis(300), request).await.is_err());
    assert!(woken(&mut watch).await);
    assert_eq!(proxy.accepted(), 2);
}

#[tokio::test]
async fn an_idle_link_that_goes_silent_is_replaced() {
    let server = server();
    let proxy = TcpProxy::start(server.port()).unwrap();
    let config = RedisConfig::from_url(&server.url_through(proxy.port())).unwrap();
    let client = Client::with(config.ping_interval(Duration::from_millis(200)).unwrap()).await;
    let mut watch = client.watch(&waiter("a")).await;
    proxy.set_present(Link::Silent);
    assert!(woken(&mut watch).await);
    client.grant(&attempt("a")).await;
}

#[tokio::test]
async fn a_link_without_traffic_is_tried_and_kept() {
    let server = server();
    let proxy = TcpProxy::start(server.port()).unwrap();
    let config = RedisConfig::from_url(&server.url_through(proxy.port())).unwrap();
    let client = Client::with(config.ping_interval(Duration::from_millis(10)).unwrap()).await;
    let pings = || -> Option<u32> {
        let stats = server.cli(&["INFO", "commandstats"]).unwrap().text();
        stats.lines().find_map(|line| line.strip_prefix("cmdstat_ping:calls=")?.split(',').next())?.parse().ok()
    };
    let (before, started) = (pings().unwrap_or(0), Instant::now());
    while pings().unwrap_or(0) < before + 5 {
        assert!(started.elapsed() < LONG);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    client.grant(&attempt("a")).await;
    assert_eq!(proxy.accepted(), 1);
}

#[tokio::test]
async fn a_lost_reply_is_an_unknown_outcome_that_can_be_undone() {
    let server = server();
    let proxy = TcpProxy::start(server.port()).unwrap();
    let client = Client::at(&server.url_through(proxy.port())).await;
    client.grant(&attempt("b")).await; // the server knows the script from here on
    proxy.set_present(Link::LosesReplies);
    let mine = attempt("a");
    let error = client.locks.acquire(&mine).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Indeterminate);
    assert!(keys(&server).contains(&"tenure:a".to_owned()), "it was applied");
    let started = Instant::now();
    while let Err(error) = client.locks.abandon(&hold(&mine)).await {
        assert!(error.is_transient() && started.elapsed() < LONG, "{error}");
    }
    client.grant(&attempt("a")).await;
}

#[tokio::test]
async fn a_cut_link_is_replaced_at_once() {
    let server = server();
    let proxy = TcpProxy::start(server.port()).unwrap();
    let client = Client::at(&server.url_through(proxy.port())).await;
    let mut watch = client.watch(&waiter("a")).await;
    proxy.cut();
    assert!(woken(&mut watch).await);
    client.grant(&attempt("a")).await;
}

#[tokio::test]
async fn a_paused_server_loses_nothing_that_was_abandoned() {
    let mut server = server();
    let client = Client::at(&server.url()).await;
    let mine = attempt("a");
    server.pause().unwrap();
    let request = client.locks.acquire(&mine);
    assert!(tokio::time::timeout(Duration::from_millis(100), request).await.is_err());
    server.resume().unwrap();
    let started = Instant::now();
    while let Err(error) = client.locks.abandon(&hold(&mine)).await {
        assert!(error.is_transient() && started.elapsed() < LONG, "{error}");
    }
    assert!(matches!(client.locks.acquire(&attempt("a")).await.unwrap(), Acquisition::Granted(_)));
}

#[tokio::test]
async fn closing_does_not_wait_for_a_dead_server() {
    let mut server = server();
    let client = Client::at(&server.url()).await;
    let mut watch = client.watch(&waiter("a")).await;
    server.kill().unwrap();
    tokio::time::timeout(LONG, client.locks.close()).await.unwrap();
    assert!(woken(&mut watch).await, "waiters ask, and learn it");
    assert_eq!(client.locks.acquire(&waiter("a")).await.unwrap_err().kind(), ErrorKind::Closed);
}

#[tokio::test]
async fn a_dropped_driver_leaves_no_connection() {
    let server = server();
    let backend = Backend::from(RedisDriver::connect_url(&server.url()).await.unwrap());
    drop(backend);
    let deadline = Instant::now() + LONG;
    while server.cli(&["CLIENT", "LIST"]).unwrap().text().lines().count() > 1 {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_clock_that_steps_back_does_not_make_fences_fall() {
    let server = server_with(RedisOptions::new().movable_clock());
    let client = Client::of(&server).await;
    let first = client.grant(&attempt("a")).await.fence;
    server.set_clock_offset(-3_600_000_000).unwrap();
    let second = client.grant(&attempt("b")).await.fence;
    assert_eq!(second.get(), first.get() + 8, "behind those that the grant before reserved");
    server.set_clock_offset(3_600_000_000).unwrap();
    let third = client.grant(&attempt("c")).await.fence;
    assert!(third.get() > second.get() + 3_000_000_000);
}
