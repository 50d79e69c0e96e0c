//! Locks on a connection that somebody else opened.

use std::time::Duration;

use crate::common::{LONG, server};
use redis::aio::MultiplexedConnection;
use tenure_core::driver::Backend;
use tenure_core::{Client, Error, ErrorKind};
use tenure_redis::{RedisConfig, RedisDriver};
use tenure_testkit::{Link, RedisServer, TcpProxy};

async fn connection(server: &RedisServer) -> MultiplexedConnection {
    redis::Client::open(server.url()).unwrap().get_multiplexed_async_connection().await.unwrap()
}

fn config(server: &RedisServer) -> RedisConfig {
    RedisConfig::from_url(&server.url()).unwrap()
}

async fn on(connection: &MultiplexedConnection, server: &RedisServer) -> Client {
    let driver = RedisDriver::on(connection.clone(), config(server).name("tenure")).await.unwrap();
    Client::new(Backend::from(driver))
}

/// The connections of the server, as it lists them.
fn connections(server: &RedisServer) -> Vec<String> {
    server.cli(&["CLIENT", "LIST"]).unwrap().text().lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn commands_leave_on_the_given_connection_and_wake_ups_come_on_another() {
    let server = server();
    let mut given = connection(&server).await;
    let number: u64 = redis::cmd("CLIENT").arg("ID").query_async(&mut given).await.unwrap();
    let client = on(&given, &server).await;
    client.lock("a").acquire().await.unwrap().release().await.unwrap(); // now the server knows the script
    let guard = client.lock("a").acquire().await.unwrap();

    let connections = connections(&server);
    let listening = connections.iter().filter(|line| line.contains(" sub=1 ")).count();
    assert_eq!(
        (connections.len(), listening),
        (3, 1),
        "the given one, one that listens, and this one: {connections:#?}"
    );
    let ours = connections.iter().find(|line| line.starts_with(&format!("id={number} "))).unwrap();
    assert!(ours.contains(" cmd=evalsha ") && ours.contains(" name= "), "{ours}");

    let other = Client::new(Backend::from(RedisDriver::connect(&server.url()).await.unwrap()));
    assert!(other.lock("a").try_acquire().await.unwrap().is_none());
    let waiting = tokio::spawn({
        let lock = client.lock("b");
        let held = other.lock("b").acquire().await.unwrap();
        async move {
            let waiting = tokio::spawn(async move { lock.acquire().await });
            tokio::time::sleep(Duration::from_millis(100)).await; // so that it waits, as a rule
            held.release().await.unwrap();
            waiting.await.unwrap()
        }
    });
    let woken = tokio::time::timeout(Duration::from_secs(3), waiting).await; // it would ask after 5 s
    woken.expect("a wake-up").unwrap().unwrap().release().await.unwrap();
    guard.release().await.unwrap();
    client.close(LONG).await.unwrap();
    let alive: String = redis::cmd("PING").query_async(&mut given).await.unwrap();
    assert_eq!(alive, "PONG", "the connection is its owner's");
}

#[tokio::test]
async fn a_given_connection_that_ends_is_said_to_have() {
    let server = server();
    let mut given = connection(&server).await;
    let number: u64 = redis::cmd("CLIENT").arg("ID").query_async(&mut given).await.unwrap();
    let client = on(&given, &server).await;
    let guard = client.lock("a").acquire().await.unwrap();
    server.cli(&["CLIENT", "KILL", "ID", &number.to_string()]).unwrap();

    let refused = async || -> Error { client.lock("b").try_acquire().await.unwrap_err() };
    let said = async {
        loop {
            let error = refused().await;
            assert!(error.is_transient(), "{error}");
            if error.kind() == ErrorKind::Unavailable
                && error.message().contains("the connection that was given has ended")
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await; // it fails at once, and the link has to have its turn
        }
    };
    tokio::time::timeout(LONG, said).await.expect("it is said in the end");
    assert_eq!(server.cli(&["EXISTS", "{tenure:b}"]).unwrap().int(), Some(0), "nothing was applied");
    assert!(guard.is_held(), "a lease lasts until its deadline, whatever the connection does");
}

#[tokio::test]
async fn a_connection_to_another_server_than_the_configuration_names_is_refused() {
    let (one, other) = (server(), server());
    let refused = async |config| RedisDriver::on(connection(&one).await, config).await.unwrap_err();
    let error = refused(config(&other)).await;
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    assert!(error.message().contains("different servers"), "{error}");
    let error = refused(config(&one).database(3)).await;
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.message().contains("database 0 is selected"), "{error}");
    let cluster = RedisConfig::from_url(&format!("redis+cluster://127.0.0.1:{}", one.port())).unwrap();
    assert_eq!(refused(cluster).await.kind(), ErrorKind::InvalidArgument);
}

/// The library's client is a recipe: the driver opens connections by it, and others when they end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_given_client_says_where_to_and_as_whom() {
    for protocol in ["resp2", "resp3"] {
        let mut server = server();
        let url = format!("redis://127.0.0.1:{}/3?protocol={protocol}", server.port());
        let elsewhere = RedisConfig::tcp("no-such-host.invalid", 1).database(5).name("tenure");
        let theirs = redis::Client::open(url).unwrap();
        let driver = RedisDriver::on(theirs, elsewhere).await.unwrap();
        let client = Client::new(Backend::from(driver));
        let guard = client.lock("a").acquire().await.unwrap();
        assert_eq!(server.cli(&["EXISTS", "{tenure:a}"]).unwrap().int(), Some(0), "in the database 0");
        let ours: Vec<_> = connections(&server).into_iter().filter(|line| line.contains(" db=3 ")).collect();
        assert_eq!(ours.len(), if protocol == "resp2" { 2 } else { 1 }, "{protocol}: {ours:#?}");
        assert!(ours.iter().any(|line| line.contains(" name=tenure ")), "{ours:#?}");
        guard.release().await.unwrap();

        server.restart().unwrap();
        let again = async {
            while client.lock("a").try_acquire().await.is_err() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(LONG, again).await.expect("it connects again");
        client.close(LONG).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_whose_reply_is_lost_is_not_sent_again() {
    let server = server();
    let proxy = TcpProxy::start(server.port()).unwrap();
    let theirs = redis::Client::open(server.url_through(proxy.port())).unwrap();
    let driver = RedisDriver::on(theirs, RedisConfig::default()).await.unwrap();
    let locks = std::sync::Arc::clone(Backend::from(driver).locks());
    let calls = || {
        let stats = server.cli(&["INFO", "commandstats"]).unwrap().text();
        stats
            .lines()
            .find_map(|line| line.strip_prefix("cmdstat_evalsha:calls=")?.split(',').next()?.parse::<u64>().ok())
    };
    let before = calls();
    proxy.set_present(Link::LosesReplies);
    let asking = tokio::spawn({
        let locks = std::sync::Arc::clone(&locks);
        async move { locks.acquire(&crate::common::attempt("a")).await }
    });
    let arrived = async {
        while calls() == before {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(LONG, arrived).await.expect("it arrives");
    proxy.cut();
    let error = asking.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}");
    let connected = async {
        while connections(&server).len() < 2 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(LONG, connected).await.expect("it connects again");
    assert_eq!(calls().unwrap_or(0) - before.unwrap_or(0), 1);
    let again =
        tokio::time::timeout(LONG, async { while locks.acquire(&crate::common::attempt("b")).await.is_err() {} });
    again.await.expect("it serves locks again");
}

#[tokio::test]
async fn a_given_client_leads_to_one_server() {
    let server = server();
    let theirs = redis::Client::open(server.url()).unwrap();
    let cluster = RedisConfig::from_url(&format!("redis+cluster://127.0.0.1:{}", server.port())).unwrap();
    let error = RedisDriver::on(theirs, cluster).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
}
