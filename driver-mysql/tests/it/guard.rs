//! Fences that are checked in the user's own transaction: exact exclusion for work in that database, without clocks.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{DATABASE, granted, hold, locks, request, session, start};
use mysql_async::Conn;
use mysql_async::prelude::Queryable as _;
use tenure_core::driver::{
    Acquisition, Backend, Concern, DistributedLock, Finding, ForceReleased, Renewed, Topic, Ttl,
};
use tenure_core::{Client, ErrorKind, HoldState, LockName};
use tenure_mysql::MysqlDriver;
use tenure_testkit::{MariaDbOptions, MariaDbServer};

const SHORT: Duration = Duration::from_millis(500);
const MINUTE: Duration = Duration::from_secs(60);

async fn with_account() -> (MariaDbServer, Arc<dyn DistributedLock>, Conn) {
    let server = start(MariaDbOptions::new());
    server.sql(DATABASE, "CREATE TABLE account (balance int); INSERT INTO account VALUES (0)").unwrap();
    let (locks, user) = (locks(&server).await, session(&server).await);
    (server, locks, user)
}

async fn guard(user: &mut Conn, fence: u64) -> Result<(), String> {
    user.exec_drop("CALL tenure_guard('account', ?)", (fence,)).await.map_err(|error| match error {
        mysql_async::Error::Server(server) => server.state,
        other => other.to_string(),
    })
}

/// The holder stands still past its lease, inside its transaction: the next is granted after the commit, not before.
#[tokio::test]
async fn a_holder_that_pauses_in_its_transaction_delays_the_next() {
    let (_server, locks, mut user) = with_account().await;
    let fence = granted(&locks, &request("account", SHORT)).await.fence;
    // In whatever isolation, and behind a snapshot that is older than the grant.
    user.query_drop("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ; BEGIN").await.unwrap();
    guard(&mut user, fence.get()).await.unwrap();
    user.query_drop("UPDATE account SET balance = balance + 1").await.unwrap();
    tokio::time::sleep(SHORT + Duration::from_millis(100)).await;
    let next = request("account", MINUTE);
    for _ in 0..3 {
        let answer = locks.acquire(&next).await.unwrap();
        assert!(matches!(answer, Acquisition::Busy(_)), "granted beside a transaction that is guarded");
    }
    user.query_drop("COMMIT").await.unwrap();
    assert!(granted(&locks, &next).await.fence > fence);
    assert_eq!(guard(&mut user, fence.get()).await.unwrap_err(), "TN001");
}

/// The holder stands still before it asks: its transaction fails, and writes nothing, although its snapshot shows it the lock.
#[tokio::test]
async fn a_holder_that_comes_late_changes_nothing() {
    let (server, locks, mut user) = with_account().await;
    let fence = granted(&locks, &request("account", SHORT)).await.fence;
    user.query_drop("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ; BEGIN").await.unwrap();
    user.query_drop("SELECT * FROM tenure_lock; UPDATE account SET balance = 99").await.unwrap();
    tokio::time::sleep(SHORT + Duration::from_millis(100)).await;
    let next = request("account", MINUTE);
    granted(&locks, &next).await;
    assert_eq!(guard(&mut user, fence.get()).await.unwrap_err(), "TN001");
    let renewed = locks.renew(Ttl::new(MINUTE).unwrap(), &[hold(&next)]).await;
    assert!(
        matches!(renewed[..], [Ok(Renewed::Extended { .. })]),
        "the refused transaction keeps the row: {renewed:?}"
    );
    user.query_drop("COMMIT").await.unwrap();
    assert_eq!(server.sql(DATABASE, "SELECT balance FROM account").unwrap().trim(), "0");
}

/// A transaction that reads as of a moment before the grant would overwrite what the last holder wrote.
#[tokio::test]
async fn a_guard_refuses_a_snapshot_that_is_older_than_the_grant() {
    for (isolation, refused) in [("REPEATABLE READ", true), ("READ COMMITTED", false), ("SERIALIZABLE", false)] {
        let (server, locks, mut user) = with_account().await;
        server.sql(DATABASE, "CREATE TABLE other (x int)").unwrap();
        user.query_drop(format!("SET SESSION TRANSACTION ISOLATION LEVEL {isolation}; BEGIN; SELECT * FROM other"))
            .await
            .unwrap();
        let first = request("account", MINUTE);
        let mut last = session(&server).await;
        let fence = granted(&locks, &first).await.fence.get();
        last.query_drop("BEGIN").await.unwrap();
        guard(&mut last, fence).await.unwrap();
        last.query_drop("UPDATE account SET balance = balance + 10; COMMIT").await.unwrap();
        locks.release(&hold(&first)).await.unwrap();
        let fence = granted(&locks, &request("account", MINUTE)).await.fence.get();
        match guard(&mut user, fence).await {
            Err(code) => assert!(refused && code == "TN002", "{isolation}: {code}"),
            Ok(()) => assert!(!refused, "{isolation}: the guard lets a lost update through"),
        }
        let seen: Option<i32> = user.query_first("SELECT balance FROM account").await.unwrap();
        assert_eq!(seen, Some(10), "{isolation}: it reads what the last holder wrote");
        // After the refusal, or in a transaction of its own.
        user.query_drop("COMMIT; BEGIN; SELECT * FROM account").await.unwrap();
        guard(&mut user, fence).await.unwrap();
    }
}

/// XA: the next is granted after XA COMMIT, not after XA PREPARE.
#[tokio::test]
async fn a_prepared_transaction_guards_until_it_is_committed() {
    let (server, locks, mut user) = with_account().await;
    let first = request("account", SHORT * 6);
    let fence = granted(&locks, &first).await.fence;
    user.query_drop("XA START 'x'").await.unwrap();
    guard(&mut user, fence.get()).await.unwrap();
    user.query_drop("UPDATE account SET balance = balance + 1").await.unwrap();
    let mut second = session(&server).await;
    second.query_drop("SET SESSION innodb_lock_wait_timeout = 1; BEGIN").await.unwrap();
    guard(&mut second, fence.get()).await.expect_err("it waits for the transaction with the same fence");
    second.query_drop("ROLLBACK").await.unwrap();
    user.query_drop("XA END 'x'").await.unwrap();
    user.query_drop("XA PREPARE 'x'").await.unwrap();
    tokio::time::sleep(SHORT * 6 + Duration::from_millis(100)).await;
    let next = request("account", MINUTE);
    let answer = locks.acquire(&next).await.unwrap();
    assert!(matches!(answer, Acquisition::Busy(_)), "granted beside a prepared transaction");
    user.query_drop("XA COMMIT 'x'").await.unwrap();
    assert!(granted(&locks, &next).await.fence > fence);
}

#[tokio::test]
async fn every_fence_of_a_range_is_good_and_none_beside_it() {
    let (_server, locks, mut user) = with_account().await;
    let fence = granted(&locks, &request("account", MINUTE).with_fences(8)).await.fence.get();
    for (offset, good) in [(-1, false), (0, true), (7, true), (8, false)] {
        let answer = guard(&mut user, fence.checked_add_signed(offset).unwrap()).await;
        assert_eq!(answer.is_ok(), good, "{offset}");
    }
}

/// Its lease is not renewed meanwhile, which is told as such; other leases of the same request are.
#[tokio::test]
async fn a_guarded_row_holds_up_no_other_lease() {
    let (_server, locks, mut user) = with_account().await;
    let (guarded, free) = (request("account", MINUTE), request("other", MINUTE));
    let fence = granted(&locks, &guarded).await.fence;
    granted(&locks, &free).await;
    user.query_drop("BEGIN").await.unwrap();
    guard(&mut user, fence.get()).await.unwrap();
    let both = [hold(&guarded), hold(&free)];
    let began = std::time::Instant::now();
    let answers = locks.renew(Ttl::new(MINUTE).unwrap(), &both).await;
    assert!(began.elapsed() < Duration::from_secs(1), "it waited for the row");
    assert_eq!(answers[0].as_ref().unwrap_err().kind(), ErrorKind::Unavailable);
    assert!(matches!(answers[1], Ok(Renewed::Extended { .. })), "{answers:?}");
    user.query_drop("COMMIT").await.unwrap();
    let answers = locks.renew(Ttl::new(MINUTE).unwrap(), &both).await;
    assert!(answers.iter().all(|answer| matches!(answer, Ok(Renewed::Extended { .. }))), "{answers:?}");
}

/// Guarded transactions that outlast their leases: what the client gives back meanwhile waits for none of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guarded_transactions_that_last_cost_no_other_lock() {
    const TTL: Duration = Duration::from_secs(2);
    let (server, ..) = with_account().await;
    let driver = MysqlDriver::connect(&format!("{}?connections=2", server.url(DATABASE))).await.unwrap();
    let client = Client::builder(driver).ttl(TTL).build().unwrap();
    let mut others = Vec::new();
    for number in 0..16 {
        others.push(client.lock(format!("other {number}")).acquire().await.unwrap());
    }
    let (mut guarded, mut users) = (Vec::new(), Vec::new());
    for number in 0..4 {
        let lock = client.lock(format!("guarded {number}")).acquire().await.unwrap();
        let mut user = session(&server).await;
        user.query_drop("BEGIN").await.unwrap();
        let fence = lock.fence().get();
        user.exec_drop("CALL tenure_guard(?, ?)", (format!("guarded {number}"), fence)).await.unwrap();
        guarded.push(lock);
        users.push(user);
    }
    tokio::time::sleep(3 * TTL).await;
    drop(guarded); // to be given back, as those that were lost are
    tokio::time::sleep(TTL).await;
    let held = others.iter().filter(|lock| lock.state() == HoldState::Held).count();
    assert_eq!(held, others.len(), "locks that no transaction guards");
    drop(users);
}

/// The lease is over, and the transaction is still open: an operator sees that.
#[tokio::test]
async fn a_guarded_lock_whose_lease_is_over_is_seen_and_named() {
    let (_server, locks, mut user) = with_account().await;
    let first = request("account", SHORT);
    let fence = granted(&locks, &first).await.fence;
    user.query_drop("BEGIN").await.unwrap();
    guard(&mut user, fence.get()).await.unwrap();
    tokio::time::sleep(SHORT + Duration::from_millis(100)).await;
    let holder = locks.inspect(&first.name).await.unwrap().holder.expect("the transaction guards it");
    assert_eq!((holder.fence, holder.remaining), (Some(fence), None));
    let began = std::time::Instant::now();
    let error = locks.force_release(&first.name, None).await.unwrap_err();
    assert!(
        error.kind() == ErrorKind::Unavailable && error.to_string().contains("another transaction keeps"),
        "{error}"
    );
    locks.abandon(&hold(&first)).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(1), "it waited for the row");
    user.query_drop("COMMIT").await.unwrap();
    assert!(locks.inspect(&first.name).await.unwrap().holder.is_none());
    assert_eq!(locks.force_release(&first.name, None).await.unwrap(), ForceReleased::NotHeld);
}

/// What the doctor says about open transactions.
async fn of_transactions(client: &Client) -> Finding {
    let checkup = client.doctor().await.unwrap();
    let is = |finding: &&Finding| finding.topic == Topic::Storage && finding.seen.contains("open transaction");
    checkup.findings().iter().find(is).unwrap().clone()
}

async fn until_its_lease_is_over(locks: &Arc<dyn DistributedLock>, name: &LockName) {
    while locks.inspect(name).await.unwrap().holder.unwrap().remaining.is_some() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// By a user with the documented right. Its transaction ends with its session, which an administrator ends, or the server since it is idle.
#[tokio::test]
async fn a_transaction_that_keeps_a_lapsed_lock_is_named_by_the_doctor_and_ended_with_its_session() {
    let (server, locks, _) = with_account().await;
    server.create_user("worker", "secret").unwrap();
    server.sql("", "GRANT EXECUTE ON app.* TO worker").unwrap();
    let client = Client::new(MysqlDriver::connect(&server.url_for("worker", "secret", DATABASE)).await.unwrap());
    for ended_by in ["an administrator", "the server"] {
        assert_eq!(of_transactions(&client).await.concern, Concern::Fine, "{ended_by}");
        let held = request("account", SHORT);
        let fence = granted(&locks, &held).await.fence;
        let mut user = session(&server).await;
        user.query_drop("BEGIN").await.unwrap();
        guard(&mut user, fence.get()).await.unwrap();
        until_its_lease_is_over(&locks, &held.name).await;
        let found = of_transactions(&client).await;
        assert_eq!(found.concern, Concern::Note, "{found:?}");
        let thread = format!("thread {} for ", user.id());
        assert!(found.seen.contains("account") && found.seen.contains(&thread), "{found:?}");
        let free = tokio::spawn({
            let lock = client.lock("account");
            async move { lock.until_free().await }
        });
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(!free.is_finished(), "no client is granted it");
        match ended_by {
            "the server" => user.query_drop("SET SESSION wait_timeout = 1").await.unwrap(),
            _ => drop(server.sql("", &format!("KILL {}", user.id())).unwrap()),
        }
        tokio::time::timeout(Duration::from_secs(30), free).await.expect(ended_by).unwrap().unwrap();
    }
}

/// Procedures run with the rights of the user who made them.
#[tokio::test]
async fn the_doctor_says_which_right_shows_the_transactions() {
    let server = start(MariaDbOptions::new());
    server.create_database("own").unwrap();
    server.create_user("maker", "secret").unwrap();
    server.sql("", "GRANT ALL ON own.* TO maker").unwrap();
    let url = format!("{}?migrate=true", server.url_for("maker", "secret", "own"));
    let backend: Backend = MysqlDriver::connect(&url).await.unwrap().into();
    let (locks, held) = (Arc::clone(backend.locks()), request("account", SHORT));
    let fence = granted(&locks, &held).await.fence;
    let mut user = session(&server).await;
    user.query_drop("USE own; BEGIN").await.unwrap();
    guard(&mut user, fence.get()).await.unwrap();
    until_its_lease_is_over(&locks, &held.name).await;
    let client = Client::new(backend);
    let found = of_transactions(&client).await;
    assert!(found.concern == Concern::Note && found.seen.contains("account"), "{found:?}");
    assert!(found.seen.contains("GRANT PROCESS ON *.* TO"), "{found:?}");
    server.sql("", "GRANT PROCESS ON *.* TO maker").unwrap();
    let url = server.url_for("maker", "secret", "own"); // rights are read when a session begins
    let client = Client::new(MysqlDriver::connect(&url).await.unwrap());
    assert!(of_transactions(&client).await.seen.contains(&format!("thread {} for ", user.id())));
}
