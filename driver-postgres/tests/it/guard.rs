//! Fences that are checked in the user's own transaction: exact exclusion for work in that database, without clocks.

use std::time::Duration;

use crate::sql::{Answer, Request, Tables, code, guard, installed, session};
use tenure_testkit::PostgresServer;
use tokio_postgres::Client;

const STALE: &str = "TN001";

async fn with_account() -> (PostgresServer, Client, Client) {
    let server = installed(Tables::Unlogged);
    server.sql("postgres", "CREATE TABLE account (balance int); INSERT INTO account VALUES (0)").unwrap();
    server.sql("postgres", "GRANT ALL ON account TO app").unwrap();
    let (one, other) = (session(&server).await, session(&server).await);
    (server, one, other)
}

fn short(token: &str) -> Request {
    Request::new("account", token).ttl(Duration::from_millis(300))
}

/// The holder stands still past its lease, inside its transaction: the next is granted after the commit, not before.
#[tokio::test]
async fn a_holder_that_pauses_in_its_transaction_delays_the_next() {
    let (_server, one, other) = with_account().await;
    let fence = short("first").granted(&one).await;
    one.batch_execute("BEGIN").await.unwrap();
    guard(&one, b"account", fence).await.unwrap();
    one.batch_execute("UPDATE account SET balance = balance + 1").await.unwrap();
    tokio::time::sleep(Duration::from_millis(400)).await;
    for _ in 0..3 {
        let answer = short("second").ask(&other).await.unwrap();
        assert_eq!(answer, Answer::Busy { ahead: -1 }, "granted beside a transaction that is guarded");
    }
    let forced = "SELECT tenure.force_release('account'::bytea, NULL, 0)";
    assert_eq!(other.query_one(forced, &[]).await.unwrap().get::<_, i32>(0), 0, "its lease has ended");
    one.batch_execute("COMMIT").await.unwrap();
    assert!(short("second").granted(&other).await > fence);
    let late = guard(&one, b"account", fence).await.unwrap_err();
    assert_eq!(code(&late).code(), STALE);
}

/// The holder stands still before it asks: its transaction fails, and writes nothing.
#[tokio::test]
async fn a_holder_that_comes_late_changes_nothing() {
    let (_server, one, other) = with_account().await;
    let fence = short("first").granted(&one).await;
    one.batch_execute("BEGIN; UPDATE account SET balance = 99").await.unwrap();
    tokio::time::sleep(Duration::from_millis(400)).await;
    short("second").granted(&other).await;
    let late = guard(&one, b"account", fence).await.unwrap_err();
    assert_eq!(code(&late).code(), STALE);
    one.batch_execute("COMMIT").await.unwrap();
    let balance: i32 = other.query_one("SELECT balance FROM account", &[]).await.unwrap().get(0);
    assert_eq!(balance, 0);
}

#[tokio::test]
async fn every_fence_of_a_range_is_good_and_none_beside_it() {
    let (_server, one, _) = with_account().await;
    let fence = Request::new("account", "first").granted(&one).await;
    for good in [fence, fence + 7] {
        guard(&one, b"account", good).await.unwrap();
    }
    for bad in [fence - 1, fence + 8, 0, -1, i64::MAX, i64::MIN] {
        assert_eq!(code(&guard(&one, b"account", bad).await.unwrap_err()).code(), STALE, "{bad}");
    }
    assert_eq!(code(&guard(&one, b"nobody's", fence).await.unwrap_err()).code(), STALE);
}

/// Force release says that it cannot, while the holder works.
#[tokio::test]
async fn a_guarded_transaction_is_not_forced() {
    let (_server, one, other) = with_account().await;
    let fence = Request::new("account", "first").granted(&one).await;
    one.batch_execute("BEGIN").await.unwrap();
    guard(&one, b"account", fence).await.unwrap();
    let force = || async {
        let row = other.query_one("SELECT tenure.force_release('account'::bytea, $1, 0)", &[&fence]).await.unwrap();
        row.get::<_, i32>(0)
    };
    assert_eq!(force().await, -2);
    one.batch_execute("COMMIT").await.unwrap();
    assert_eq!(force().await, 1);
}

/// A transaction may see the database as it was before the lock went to somebody else. Its guard may not.
#[tokio::test]
async fn a_guard_does_not_believe_an_old_snapshot() {
    for isolation in ["REPEATABLE READ", "SERIALIZABLE"] {
        let (_server, one, other) = with_account().await;
        let held = Request::new("account", "first");
        let fence = held.granted(&one).await;
        one.batch_execute(&format!("BEGIN ISOLATION LEVEL {isolation}; SELECT balance FROM account")).await.unwrap();
        other.execute("SELECT tenure.force_release('account'::bytea, $1, 0)", &[&fence]).await.unwrap();
        Request::new("account", "second").granted(&other).await;
        let stale =
            guard(&one, b"account", fence).await.expect_err("the lock is another's, and the old fence is let in");
        assert_eq!(code(&stale).code(), "TN002", "{isolation}");
    }
}
