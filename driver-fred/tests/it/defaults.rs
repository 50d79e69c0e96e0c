//! What the client library's defaults would do to locks, one test for each line of the table in `src/tuning.rs`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::server;
use tenure_core::driver::{AcquireRequest, Acquisition, Backend, DistributedLock, Hold, Ttl, Watch};
use tenure_core::{ErrorKind, LockName, OwnerToken};
use tenure_fred::FredDriver;
use tenure_testkit::{Link, RedisOptions, RedisServer, TcpProxy};

/// Longer than any test waits for something that does happen.
const LONG: Duration = Duration::from_secs(20);

async fn locks(url: &str) -> Arc<dyn DistributedLock> {
    let driver = FredDriver::connect_url(&format!("fred+{url}")).await.unwrap();
    Arc::clone(Backend::from(driver).locks())
}

fn attempt(name: &str) -> AcquireRequest {
    AcquireRequest::new(LockName::new(name).unwrap(), OwnerToken::random(), Ttl::new(Duration::from_secs(10)).unwrap())
}

async fn eventually_granted(locks: &Arc<dyn DistributedLock>, name: &str) {
    let (request, started) = (attempt(name), Instant::now());
    loop {
        match locks.acquire(&request).await {
            Ok(Acquisition::Granted(_)) => return,
            Ok(busy) => panic!("{busy:?}"),
            Err(error) => assert!(error.is_transient() && started.elapsed() < LONG, "{error}"),
        }
    }
}

async fn woken(watch: &mut Watch) -> bool {
    tokio::time::timeout(LONG, watch.next()).await.is_ok()
}

/// How often the server has run a script.
fn scripts_run(server: &RedisServer) -> u64 {
    let stats = server.cli(&["INFO", "commandstats"]).unwrap().text();
    let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls=")?.split(',').next());
    calls.and_then(|calls| calls.parse().ok()).unwrap_or(0)
}

#[tokio::test]
async fn a_restarted_server_is_found_again() {
    let mut server = server();
    let locks = locks(&server.url()).await;
    let request = attempt("a");
    let mut watch = locks.watch(&request.name, &request.token).await.unwrap();
    server.kill().unwrap();
    let error = locks.acquire(&request).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    server.restart().unwrap();
    assert!(woken(&mut watch).await, "waiters learn of the gap");
    eventually_granted(&locks, "a").await;
}

/// A request may arrive when the client has ended and nobody has noticed: at one of many steps of the runtime.
#[tokio::test]
async fn a_request_does_not_outlive_its_client() {
    let mut server = server();
    let locks = locks(&format!("{}/?response_timeout_ms=30000", server.url())).await;
    server.restart().unwrap();
    let mut asked = tokio::task::JoinSet::new();
    for steps in 0..50 {
        let locks = Arc::clone(&locks);
        asked.spawn(async move {
            for _ in 0..steps {
                tokio::task::yield_now().await;
            }
            if let Err(error) = locks.acquire(&attempt(&steps.to_string())).await {
                assert!(error.is_transient(), "{error}");
            }
        });
    }
    tokio::time::timeout(LONG, asked.join_all()).await.expect("none waits for the response timeout");
}

#[tokio::test]
async fn a_server_that_stands_still_holds_nobody_up() {
    let mut server = server();
    let locks = locks(&format!("{}/?response_timeout_ms=300", server.url())).await;
    server.pause().unwrap();
    let request = attempt("a");
    let answer = tokio::time::timeout(LONG, locks.acquire(&request)).await.expect("in bounded time");
    assert_eq!(answer.unwrap_err().kind(), ErrorKind::Indeterminate);
    server.resume().unwrap();
    eventually_granted(&locks, "b").await;
}

#[tokio::test]
async fn a_lost_reply_is_reported_and_the_request_not_repeated() {
    let server = server();
    let proxy = TcpProxy::start(server.port()).unwrap();
    let locks = locks(&server.url_through(proxy.port())).await;
    eventually_granted(&locks, "b").await; // the server knows the script from here on
    let before = scripts_run(&server);
    proxy.set_present(Link::LosesReplies);
    let mine = attempt("a");
    assert_eq!(locks.acquire(&mine).await.unwrap_err().kind(), ErrorKind::Indeterminate);
    let started = Instant::now();
    while proxy.accepted() < 2 {
        assert!(started.elapsed() < LONG, "the link is replaced");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let next = attempt("c");
    let mut watch = locks.watch(&next.name, &next.token).await.unwrap();
    proxy.cut(); // a second fresh link proves that the first one had its time
    assert!(woken(&mut watch).await);
    assert_eq!(scripts_run(&server), before + 1);
    let again = loop {
        match locks.acquire(&mine).await {
            Err(error) if error.is_transient() && started.elapsed() < 2 * LONG => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            answer => break answer,
        }
    };
    assert!(matches!(again, Ok(Acquisition::Granted(_))), "the same token may ask again: {again:?}");
}

#[tokio::test]
async fn a_silent_connection_is_replaced() {
    let server = server();
    let proxy = TcpProxy::start(server.port()).unwrap();
    let locks = locks(&format!("{}/?ping_interval_ms=200", server.url_through(proxy.port()))).await;
    let request = attempt("a");
    let mut watch = locks.watch(&request.name, &request.token).await.unwrap();
    proxy.set_present(Link::Silent);
    assert!(woken(&mut watch).await);
    eventually_granted(&locks, "a").await;
}

#[tokio::test]
async fn a_burst_of_wake_ups_reaches_all() {
    let server = server();
    let locks = locks(&server.url()).await;
    let mut watches = Vec::new();
    let mut publish: Vec<String> =
        ["EVAL", "for i = 1, #ARGV do redis.call('PUBLISH', KEYS[1], ARGV[i]) end", "1"].map(String::from).to_vec();
    publish.push(server.cli(&["PUBSUB", "CHANNELS", "tenure:wake:*"]).unwrap().items()[0].text());
    for _ in 0..3000 {
        let request = attempt("a");
        publish.push(request.token.expose().as_str().to_owned());
        watches.push(locks.watch(&request.name, &request.token).await.unwrap());
    }
    server.cli(&publish).unwrap();
    for watch in &mut watches {
        assert!(woken(watch).await);
    }
}

#[tokio::test]
async fn a_refused_subscription_is_named() {
    let user = ["on", ">password", "~*", "+@all"]; // and no channel
    let server = RedisServer::start(RedisOptions::new().user("u", &user).user("v", &[&user[..], &["&*"]].concat()));
    let server = server.unwrap();
    for protocol in ["resp2", "resp3"] {
        let url = |user: &str| format!("redis://{user}:password@127.0.0.1:{}/?protocol={protocol}", server.port());
        let error = FredDriver::connect_url(&format!("fred+{}", url("u"))).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{protocol}: {error}");
        assert!(error.message().contains("&tenure:*"), "{protocol}: {error}");
        let locks = locks(&url("v")).await;
        let mine = attempt(protocol);
        assert!(matches!(locks.acquire(&mine).await, Ok(Acquisition::Granted(_))));
        locks.release(&Hold::new(mine.name, mine.token)).await.unwrap();
    }
}

#[tokio::test]
async fn a_closed_or_dropped_driver_leaves_no_connection() {
    let server = server();
    let clients = || server.cli(&["CLIENT", "LIST"]).unwrap().text().lines().count();
    let before = clients();
    let one = locks(&server.url()).await;
    let two = locks(&format!("{}/?protocol=resp2", server.url())).await;
    assert_eq!(clients(), before + 3);
    one.close().await;
    assert_eq!(one.acquire(&attempt("a")).await.unwrap_err().kind(), ErrorKind::Closed);
    drop(two);
    let started = Instant::now();
    while clients() > before {
        assert!(started.elapsed() < LONG);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn urls_begin_with_the_name_of_the_library() {
    let error = FredDriver::connect_url("redis://127.0.0.1/").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().contains("fred+"), "{error}");
}

#[tokio::test]
async fn connections_have_the_name_that_was_asked_for() {
    let server = server();
    for (protocol, count) in [("resp3", 1), ("resp2", 2)] {
        let _locks = locks(&format!("{}/?protocol={protocol}&name=billing-7", server.url())).await;
        let list = server.cli(&["CLIENT", "LIST"]).unwrap().text();
        assert_eq!(list.matches("name=billing-7").count(), 1, "{list}");
        assert_eq!(list.lines().filter(|line| line.contains("cmd=")).count(), count + 1, "{list}");
    }
}

/// The library tells that a connection is up a moment before it sends on it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_is_up_takes_commands() {
    let server = server();
    for _ in 0..200 {
        FredDriver::connect_url(&format!("fred+{}", server.url())).await.unwrap();
    }
}
