//! Nodes that are away when the client starts: they join later, and only a majority is needed.

use std::time::{Duration, Instant};

use crate::common::{attempt, grant, hold, quiet, refused};
use tenure_core::ErrorKind;
use tenure_core::driver::{Acquisition, DistributedLock as _};
use tenure_redis::{RedisConfig, RedisDriver};
use tenure_redlock::{Redlock, Restarts};
use tenure_testkit::{Link, RedisOptions, RedisServer, RespClient, TcpProxy};

/// A refused connection takes no time, and a silent server this long.
const CONNECT_WITHIN: Duration = Duration::from_millis(700);

fn servers(n: usize) -> Vec<RedisServer> {
    (0..n).map(|_| RedisServer::start(RedisOptions::new()).unwrap()).collect()
}

async fn connect(servers: &[RedisServer]) -> tenure_core::Result<Redlock> {
    let hosts: Vec<_> = servers.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect();
    connect_to(&hosts).await
}

async fn connect_to(hosts: &[String]) -> tenure_core::Result<Redlock> {
    let timeout = CONNECT_WITHIN.as_millis();
    let url = format!("redis://{}?ping_interval_ms=200&connect_timeout_ms={timeout}", hosts.join(","));
    let nodes = RedisDriver::connect_nodes(&RedisConfig::nodes_from_url(&url)?).await?;
    let builder = Redlock::builder().nodes(nodes).restarts(Restarts::Durable);
    builder.node_timeout(Duration::from_secs(1)).build()
}

/// How many nodes keep a hold once all of them have answered; none while it is not granted.
async fn kept_by(driver: &Redlock) -> usize {
    let request = attempt("a");
    let answer = driver.acquire(&request).await;
    quiet(driver).await; // what a failed attempt left at some nodes would keep the next one from others
    if !matches!(answer, Ok(Acquisition::Granted(_))) {
        return 0;
    }
    let healthy = driver.healthy_nodes(&request.token).unwrap().len();
    driver.release(&hold(&request)).await.unwrap();
    quiet(driver).await;
    healthy
}

async fn eventually_kept_by(driver: &Redlock, nodes: usize) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while kept_by(driver).await != nodes {
        assert!(Instant::now() < deadline, "the node does not join");
    }
}

#[tokio::test]
async fn a_dead_and_a_silent_node_join_when_they_come_back() {
    let mut servers = servers(5);
    servers[0].kill().unwrap();
    servers[3].pause().unwrap();
    let asked = Instant::now();
    let driver = connect(&servers).await.unwrap();
    assert!(asked.elapsed() < CONNECT_WITHIN + Duration::from_secs(5), "{:?}", asked.elapsed());
    let request = attempt("a");
    grant(&driver, &request).await;
    driver.release(&hold(&request)).await.unwrap();
    servers[0].restart().unwrap();
    servers[3].resume().unwrap();
    eventually_kept_by(&driver, 5).await;
    driver.close().await;
}

#[tokio::test]
async fn without_a_majority_at_the_start_the_nodes_are_named() {
    let mut servers = servers(3);
    servers[0].kill().unwrap();
    servers[2].pause().unwrap();
    let error = connect(&servers).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let text = error.to_string();
    assert!(text.contains("2 of 3 nodes are needed"), "{text}");
    for (server, named) in servers.iter().zip([true, false, true]) {
        assert_eq!(text.contains(&format!("127.0.0.1:{}: ", server.port())), named, "{text}");
    }
}

#[tokio::test]
async fn a_node_that_comes_back_unfit_does_not_vote() {
    let mut servers = servers(2);
    let evicting = RedisOptions::new().setting("maxmemory-policy", "allkeys-lru");
    servers.push(RedisServer::start(evicting).unwrap());
    let error = connect(&servers).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    let port = servers[2].port().to_string();
    assert!(error.to_string().contains(&port) && error.to_string().contains("allkeys-lru"), "{error}");

    servers[2].kill().unwrap();
    let driver = connect(&servers).await.unwrap();
    servers[2].restart().unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    servers[0].kill().unwrap();
    loop {
        let answer = driver.acquire(&attempt("a")).await;
        assert!(!matches!(answer, Ok(Acquisition::Granted(_))), "the unfit node voted: {answer:?}");
        if answer.is_err_and(|error| error.to_string().contains("allkeys-lru")) {
            break;
        }
        assert!(Instant::now() < deadline, "the node was never looked at");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    servers[0].restart().unwrap();
    eventually_kept_by(&driver, 2).await;
    driver.close().await;
}

#[tokio::test]
async fn one_server_under_several_names_is_no_quorum() {
    let mut servers = servers(2);
    let [one, other] = [servers[0].port(), servers[1].port()];
    let hosts = [format!("127.0.0.1:{one}"), format!("localhost:{one}"), format!("127.0.0.1:{other}")];
    let error = connect_to(&hosts).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    let text = error.to_string();
    assert!(text.contains(&hosts[0]) && text.contains(&hosts[1]) && !text.contains(&hosts[2]), "{text}");

    // Also one that is away at the start, and is another's server when it comes.
    let way = TcpProxy::start(one).unwrap();
    way.set_new(Link::Silent);
    let hosts = [format!("127.0.0.1:{one}"), format!("127.0.0.1:{}", way.port()), format!("127.0.0.1:{other}")];
    let driver = connect_to(&hosts).await.unwrap();
    way.set_new(Link::Open);
    way.cut();
    servers[1].kill().unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let answer = driver.acquire(&attempt("a")).await;
        assert!(!matches!(answer, Ok(Acquisition::Granted(_))), "one server voted twice: {answer:?}");
        let text = answer.map_or_else(|error| error.to_string(), |_| String::new());
        if text.contains("the same server") {
            assert!(text.contains(&hosts[0]) && text.contains(&hosts[1]), "{text}");
            break;
        }
        assert!(Instant::now() < deadline, "the node was never looked at: {text}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    driver.close().await;
}

/// The connections to the server end, and are made anew.
fn cut(server: &RedisServer) {
    let mut admin = RespClient::unix(&server.socket()).unwrap();
    for kind in ["normal", "pubsub"] {
        admin.call(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]).unwrap();
    }
}

/// The others go on without it, and it is looked at before its next vote.
#[tokio::test]
async fn a_node_that_may_evict_after_a_reconnect_does_not_vote_until_it_is_mended() {
    let mut servers = servers(3);
    let driver = connect(&servers).await.unwrap();
    eventually_kept_by(&driver, 3).await;
    servers[1].cli(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).unwrap();
    cut(&servers[1]);
    eventually_kept_by(&driver, 2).await;
    servers[0].pause().unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    let error = loop {
        let error = refused(&driver, &attempt("a")).await;
        if error.to_string().contains("allkeys-lru") {
            break error;
        }
        assert!(Instant::now() < deadline, "{error}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert!(error.to_string().contains(&servers[1].port().to_string()), "{error}");
    servers[0].resume().unwrap();
    servers[1].cli(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).unwrap();
    eventually_kept_by(&driver, 3).await;
}
