//! Locks through a client that somebody else made.

use std::sync::Arc;
use std::time::Duration;

use crate::common::server;
use fred::prelude::*;
use tenure_core::driver::Backend;
use tenure_core::{Client as Locks, ErrorKind};
use tenure_fred::{FredDriver, RedisConfig};
use tenure_testkit::{Link, RedisServer, TcpProxy};

/// Longer than any test waits for something that does happen.
const LONG: Duration = Duration::from_secs(20);

/// A client with the library's defaults: three attempts for each command. It reconnects.
async fn fred(url: &str) -> Client {
    let mut builder = Builder::from_config(Config::from_url(url).unwrap());
    let client = builder.set_policy(ReconnectPolicy::new_constant(0, 20)).build().unwrap();
    client.init().await.unwrap();
    client
}

fn config(server: &RedisServer) -> RedisConfig {
    RedisConfig::from_url(&server.url()).unwrap()
}

async fn on(client: &Client, server: &RedisServer) -> Locks {
    Locks::new(Backend::from(FredDriver::on(client.clone(), config(server)).await.unwrap()))
}

/// How often the server has run a script.
fn scripts_run(server: &RedisServer) -> u64 {
    let stats = server.cli(&["INFO", "commandstats"]).unwrap().text();
    let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls=")?.split(',').next());
    calls.and_then(|calls| calls.parse().ok()).unwrap_or(0)
}

#[tokio::test]
async fn a_given_client_serves_locks_and_stays_its_owners() {
    let server = server();
    let fred = fred(&server.url()).await;
    let given = on(&fred, &server).await;
    let own = FredDriver::connect(&format!("fred+{}", server.url())).await.unwrap();
    let own = Locks::new(Backend::from(own));
    let guard = given.lock("a").acquire().await.unwrap();
    assert!(own.lock("a").try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();

    let held = own.lock("a").acquire().await.unwrap();
    let waiting = tokio::spawn({
        let lock = given.lock("a");
        async move { lock.acquire().await }
    });
    tokio::time::sleep(Duration::from_millis(100)).await; // so that it waits, as a rule
    held.release().await.unwrap();
    let woken = tokio::time::timeout(Duration::from_secs(3), waiting).await; // it would ask after 5 s
    woken.expect("a wake-up").unwrap().unwrap().release().await.unwrap();
    given.close(LONG).await.unwrap();
    fred.ping::<()>(None).await.unwrap();
}

/// The library would send it again: it was told to try three times, and connects again by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_whose_reply_is_lost_is_not_sent_again() {
    let server = server();
    let proxy = TcpProxy::start(server.port()).unwrap();
    let fred = fred(&server.url_through(proxy.port())).await;
    let driver = FredDriver::on(fred.clone(), config(&server)).await.unwrap();
    let locks = Arc::clone(Backend::from(driver).locks());
    let request = tenure_core::driver::AcquireRequest::new(
        tenure_core::LockName::new("a").unwrap(),
        tenure_core::OwnerToken::random(),
        tenure_core::driver::Ttl::new(Duration::from_secs(10)).unwrap(),
    )
    .with_queue(tenure_core::driver::Queueing::None);
    let before = scripts_run(&server);
    proxy.set_present(Link::LosesReplies);
    let asking = tokio::spawn({
        let locks = Arc::clone(&locks);
        async move { locks.acquire(&request).await }
    });
    let arrived = async {
        while scripts_run(&server) == before {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(LONG, arrived).await.expect("it arrives");
    proxy.cut();
    let error = asking.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}");
    // What the library repeats, it repeats as soon as it is connected again, before anything else.
    fred.ping::<()>(None).await.unwrap();
    assert_eq!(scripts_run(&server) - before, 1);
}

/// Its owner's policy connects it again; the driver notices, and opens the connection that listens anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_given_client_that_reconnects_serves_locks_again() {
    let mut server = server();
    let fred = fred(&server.url()).await;
    let (given, own) = (on(&fred, &server).await, FredDriver::connect_with(config(&server)).await.unwrap());
    let own = Locks::new(Backend::from(own));
    for _ in 0..3 {
        let guard = given.lock("a").acquire().await.unwrap();
        server.restart().unwrap();
        drop(guard); // the server has forgotten it
        let served = async |client: &Locks| {
            let mut kinds = Vec::new();
            loop {
                match client.lock("b").try_acquire().await {
                    Ok(Some(guard)) => break guard.release().await.unwrap(),
                    Ok(None) => {}
                    Err(error) => {
                        assert!(error.is_transient(), "{error}");
                        kinds.push(error.kind());
                    }
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(LONG, served(&given)).await.expect("it serves locks again");
        tokio::time::timeout(LONG, served(&own)).await.expect("it serves locks again");
        let held = own.lock("c").acquire().await.unwrap();
        let waiting = tokio::spawn({
            let lock = given.lock("c");
            async move { lock.acquire().await }
        });
        tokio::time::sleep(Duration::from_millis(100)).await; // so that it waits, as a rule
        held.release().await.unwrap();
        let woken = tokio::time::timeout(Duration::from_secs(3), waiting).await; // it would ask after 5 s
        woken.expect("a wake-up").unwrap().unwrap().release().await.unwrap();
    }
    given.close(LONG).await.unwrap();
    fred.ping::<()>(None).await.unwrap();
}

#[tokio::test]
async fn a_given_client_that_is_not_connected_is_said_to_be() {
    let server = server();
    let fred = fred(&server.url()).await;
    let client = on(&fred, &server).await;
    let guard = client.lock("a").acquire().await.unwrap();
    fred.quit().await.unwrap();
    let error = client.lock("b").try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "nothing was sent: {error}");
    assert!(error.message().contains("not connected"), "{error}");
    assert!(guard.is_held(), "a lease lasts until its deadline, whatever the connection does");

    let error = FredDriver::on(fred, config(&server)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

#[tokio::test]
async fn what_does_not_fit_the_configuration_is_refused() {
    let (one, other) = (server(), server());
    let fred = fred(&one.url()).await;
    let refused = async |config| FredDriver::on(fred.clone(), config).await.unwrap_err();
    let error = refused(config(&other)).await;
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    assert!(error.message().contains("different servers"), "{error}");
    let error = refused(config(&one).database(3)).await;
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().contains("database 0"), "{error}");
}
