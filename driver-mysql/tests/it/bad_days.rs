//! Wrong places, replicas, connections that are killed, and servers that go away.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{DATABASE, backend, granted, hold, locks, message, receive, request, session, start};
use mysql_async::prelude::Queryable as _;
use tenure_core::driver::{Acquisition, Backend, DeadSelection, Delay, DelayQueueExt as _, Pushed, Released};
use tenure_core::queue::{ConcurrencyKey, QueueLimits, QueueName};
use tenure_core::{ErrorKind, OwnerId};
use tenure_mysql::MysqlDriver;
use tenure_testkit::{ClosedPort, MariaDbOptions, MariaDbServer, TcpProxy, eventually};

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_wrong_place_is_named() {
    let server = start(MariaDbOptions::new());
    server.create_user("worker", "secret").unwrap();
    let closed = ClosedPort::new().unwrap();
    let nobody = server.url_through(closed.number(), DATABASE);
    for (url, kind, words) in [
        (server.url("nowhere"), ErrorKind::Misconfigured, "no such database"),
        (server.url_for("worker", "wrong", DATABASE), ErrorKind::Denied, "the user or the password"),
        (server.url_for("stranger", "secret", DATABASE), ErrorKind::Denied, "the user or the password"),
        (nobody, ErrorKind::Unavailable, "cannot connect"),
    ] {
        let error = MysqlDriver::connect(&url).await.unwrap_err();
        assert!(error.kind() == kind && error.to_string().contains(words), "{url}: {error}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}

/// The client library panics at this one.
#[tokio::test]
async fn a_method_to_sign_in_that_is_not_known_is_named() {
    let server = MariaDbServer::start(MariaDbOptions::new()).unwrap(); // MySQL does not have the method
    server.create_database(DATABASE).unwrap();
    let user = "INSTALL SONAME 'auth_ed25519'; CREATE USER worker IDENTIFIED VIA ed25519 USING PASSWORD('secret');
      GRANT ALL ON app.* TO worker";
    server.sql("", user).unwrap();
    let error = MysqlDriver::connect(&server.url_for("worker", "secret", DATABASE)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    assert!(error.to_string().contains("for caching_sha2_password or mysql_native_password"), "{error}");
}

/// A replica refuses at once. A primary that becomes one refuses from then on, although procedures run with the rights of an
/// administrator, whom a read-only server does not refuse.
#[tokio::test]
async fn a_read_only_server_grants_nothing() {
    let server = start(MariaDbOptions::new());
    let backend = backend(&server).await;
    let (jobs, owner) = (QueueName::new("jobs").unwrap(), OwnerId::new());
    let (queue, reentrant) = (backend.queue().unwrap(), backend.reentrant().unwrap());
    let Pushed::Stored(id) = queue.push(&jobs, &[message("x")]).await.unwrap().remove(0) else { panic!("not stored") };
    let held = request("held", MINUTE);
    assert!(matches!(reentrant.enter(&owner, &held).await.unwrap(), Acquisition::Granted(_)));
    server.sql("", "SET GLOBAL read_only = 1").unwrap();
    let error = MysqlDriver::connect(&server.url(DATABASE)).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Misconfigured && error.to_string().contains("read-only"), "{error}");
    let refused = [
        backend.locks().acquire(&request("a", MINUTE)).await.map(drop),
        reentrant.enter(&owner, &request("held", MINUTE)).await.map(drop),
        backend.locks().force_release(&held.name, None).await.map(drop),
        queue.push(&jobs, &[message("x")]).await.map(drop),
        queue.cancel(&jobs, &id).await.map(drop),
        queue.reschedule(&jobs, &id, Delay::ZERO).await.map(drop),
        queue.limit(&jobs, &QueueLimits::default()).await,
        queue.pause(&jobs).await,
        queue.purge(&jobs, 1, None).await.map(drop),
        queue.dead_purge(&jobs, &DeadSelection::Oldest(1)).await.map(drop),
    ];
    for (number, refused) in refused.into_iter().enumerate() {
        let error = refused.expect_err(&format!("request {number} was carried out"));
        assert!(error.kind() == ErrorKind::Unavailable && error.to_string().contains("read-only"), "{error}");
    }
    server.sql("", "SET GLOBAL read_only = 0").unwrap();
    granted(backend.locks(), &request("a", MINUTE)).await;
}

/// After a failover the address leads to another server, and connections to the old one stay open.
#[tokio::test]
async fn a_demoted_server_is_left_for_the_new_primary() {
    let (old, new) = (start(MariaDbOptions::new()), start(MariaDbOptions::new()));
    let proxy = TcpProxy::start(old.port()).unwrap();
    let url = format!("{}?connections=1", old.url_through(proxy.port(), DATABASE));
    let backend: Backend = MysqlDriver::connect(&url).await.unwrap().into();
    granted(backend.locks(), &request("before", MINUTE)).await;
    old.sql("", "SET GLOBAL read_only = 1").unwrap();
    proxy.lead_to(new.port());
    let began = std::time::Instant::now();
    let mut failed = 0;
    while let Err(error) = backend.locks().acquire(&request("after", MINUTE)).await {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(began.elapsed() < Duration::from_secs(5), "after {failed} requests: {error}");
        failed += 1;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(failed > 0, "the first request finds out");
}

/// A user may have fewer connections than the client is set to: names share them.
#[tokio::test]
async fn a_user_with_two_connections_has_every_name() {
    let server = start(MariaDbOptions::new());
    server.create_user("few", "secret").unwrap();
    server.sql("", &format!("GRANT ALL ON {DATABASE}.* TO few; ALTER USER few WITH MAX_USER_CONNECTIONS 2")).unwrap();
    let backend: Backend = MysqlDriver::connect(&server.url_for("few", "secret", DATABASE)).await.unwrap().into();
    let take = |number| {
        let (locks, request) = (backend.locks().clone(), request(&format!("few/{number}"), MINUTE));
        tokio::spawn(async move { granted(&locks, &request).await })
    };
    for taken in (0..16).map(take).collect::<Vec<_>>() {
        taken.await.unwrap();
    }
}

/// Proxies close connections that are idle. No request is lost by that.
#[tokio::test]
async fn a_connection_that_was_closed_while_it_was_idle_costs_no_error() {
    let server = start(MariaDbOptions::new());
    let proxy = TcpProxy::start(server.port()).unwrap();
    let url = format!("{}?connections=1", server.url_through(proxy.port(), DATABASE));
    let backend: Backend = MysqlDriver::connect(&url).await.unwrap().into();
    for name in ["a", "b", "c"] {
        granted(backend.locks(), &request(name, MINUTE)).await;
        tokio::time::sleep(Duration::from_millis(600)).await; // longer than connections are trusted without a trial
        proxy.cut();
    }
    granted(backend.locks(), &request("last", MINUTE)).await;
}

/// Until a request of the driver waits for what another session keeps.
async fn waiting(server: &MariaDbServer) -> String {
    let find =
        "SELECT id FROM information_schema.processlist WHERE command = 'Execute' AND info LIKE '%tenure_%' LIMIT 1";
    loop {
        let found = server.sql("", find).unwrap();
        if !found.trim().is_empty() {
            return found.trim().to_owned();
        }
        tokio::task::yield_now().await;
    }
}

/// What ends in the middle is not known; the next request has a new connection.
#[tokio::test]
async fn a_request_whose_connection_is_killed_is_indeterminate_and_the_next_works() {
    let server = start(MariaDbOptions::new());
    let (locks, mut user) = (locks(&server).await, session(&server).await);
    let held = request("a", MINUTE);
    granted(&locks, &held).await;
    for kill in ["KILL", "KILL QUERY"] {
        user.query_drop("LOCK TABLES tenure_lock WRITE").await.unwrap();
        let killed = async {
            let id = waiting(&server).await;
            server.sql("", &format!("{kill} {id}")).unwrap();
        };
        let held = hold(&held);
        let (answer, ()) = tokio::join!(locks.release(&held), killed);
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::Indeterminate, "{kill}");
        user.query_drop("UNLOCK TABLES").await.unwrap();
        assert!(locks.inspect(&held.name).await.unwrap().holder.is_some(), "{kill}");
    }
    assert_eq!(locks.release(&hold(&held)).await.unwrap(), Released::Released);
}

#[tokio::test]
async fn a_server_that_dies_and_comes_back_is_reported_and_used_again() {
    let mut server = start(MariaDbOptions::new());
    let (locks, mut user) = (locks(&server).await, session(&server).await);
    let held = request("a", MINUTE);
    granted(&locks, &held).await;
    user.query_drop("LOCK TABLES tenure_lock WRITE").await.unwrap();
    let its = hold(&held);
    let asked = tokio::spawn({
        let locks = locks.clone();
        async move { locks.release(&its).await }
    });
    waiting(&server).await;
    server.kill().unwrap();
    assert_eq!(asked.await.unwrap().unwrap_err().kind(), ErrorKind::Indeterminate);
    let error = locks.acquire(&request("b", MINUTE)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    server.restart().unwrap();
    assert!(locks.inspect(&held.name).await.unwrap().holder.is_some(), "leases outlive a restart");
    assert_eq!(locks.release(&hold(&held)).await.unwrap(), Released::Released);
}

/// A future that is dropped leaves the connection where it was: the next answer is that of the next request.
#[tokio::test]
async fn a_dropped_request_does_not_shift_the_answers() {
    let server = start(MariaDbOptions::new());
    let locks = locks(&server).await;
    for round in 0..60_u64 {
        let (dropped, kept) = (request("dropped", MINUTE), request("kept", MINUTE));
        let limit = Duration::from_micros(round * 20);
        let _ = tokio::time::timeout(limit, locks.acquire(&dropped)).await;
        let grant = granted(&locks, &kept).await;
        assert_eq!(locks.inspect(&kept.name).await.unwrap().holder.unwrap().fence, Some(grant.fence));
        assert_eq!(locks.release(&hold(&kept)).await.unwrap(), Released::Released);
        locks.abandon(&hold(&dropped)).await.unwrap();
        assert!(locks.inspect(&dropped.name).await.unwrap().holder.is_none(), "round {round}");
    }
}

/// The server ends one of two transactions that wait for each other. A request that it ends was not carried out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadlock_with_another_transaction_is_an_outage_that_passes() {
    let server = start(MariaDbOptions::new());
    let (backend, mut user) = (backend(&server).await, session(&server).await);
    let (queue, jobs) = (Arc::clone(backend.queue().unwrap()), QueueName::new("jobs").unwrap());
    queue.push(&jobs, &[message("first")]).await.unwrap();
    // The server spares the transaction that has written more.
    user.query_drop("CREATE TABLE ballast (n INT) ENGINE=InnoDB").await.unwrap();
    user.query_drop("BEGIN; SELECT * FROM tenure_message WHERE ckey = 'k' AND queue = 'jobs' FOR UPDATE")
        .await
        .unwrap();
    user.query_drop("INSERT INTO ballast WITH RECURSIVE seq (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM seq WHERE n < 1000) SELECT n FROM seq").await.unwrap();
    // A push writes its first message, then waits for the place of the second among the keys.
    let keyed = message("third").with_key(Some(ConcurrencyKey::new("k").unwrap()));
    let asked = tokio::spawn({
        let (queue, jobs) = (Arc::clone(&queue), jobs.clone());
        async move { queue.push(&jobs, &[message("second"), keyed]).await }
    });
    waiting(&server).await;
    // It waits for that first message.
    user.query_drop("SELECT * FROM tenure_message WHERE number = 2 FOR UPDATE").await.unwrap();
    let error = asked.await.unwrap().unwrap_err();
    assert!(error.kind() == ErrorKind::Unavailable && error.to_string().contains("deadlock"), "{error}");
    user.query_drop("COMMIT").await.unwrap();
    let received = queue.receive(&receive(&jobs, 10)).await.unwrap().deliveries;
    assert_eq!(received.len(), 1, "all or none of a push is stored");
}

#[tokio::test]
async fn sessions_end_with_the_driver() {
    let server = start(MariaDbOptions::new());
    let driver = locks(&server).await;
    granted(&driver, &request("a", MINUTE)).await;
    driver.close().await;
    assert_eq!(driver.acquire(&request("b", MINUTE)).await.unwrap_err().kind(), ErrorKind::Closed);
    let count = "SELECT COUNT(*) FROM information_schema.processlist WHERE db = 'app'";
    tokio::task::yield_now().await;
    tokio::task::spawn_blocking(move || {
        eventually("the sessions to end", || (server.sql("", count).unwrap().trim() == "0").then_some(())).unwrap();
    })
    .await
    .unwrap();
}
