//! Fences that are checked in the user's own transaction: exact exclusion for work in that database, without clocks.

use std::time::Duration;

use tenure_core::Client;
use tenure_core::driver::{Concern, Finding};
use tenure_postgres::PostgresDriver;
use tenure_testkit::{PostgresOptions, PostgresServer};
use tokio::time::Instant;
use tokio_postgres::Client as Session;

use crate::sql::{Answer, LONGEST, Listener, Request, Tables, code, guard, installed, installed_with, session};

const STALE: &str = "TN001";

async fn with_account() -> (PostgresServer, Session, Session) {
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
    assert_eq!(other.query_one(forced, &[]).await.unwrap().get::<_, i32>(0), -2, "its transaction is open");
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

/// What the holder's own client does while the transaction is open: it gives the lock back, or undoes its request.
#[tokio::test]
async fn a_guarded_transaction_outlives_its_hold() {
    for waits in [false, true] {
        for undo in [false, true] {
            let (server, one, other) = with_account().await;
            let held = Request::new("account", "first");
            let fence = held.granted(&one).await;
            let mut listener = Listener::new(&server, 7).await;
            let next = Request::new("account", "second");
            let next = if waits { next.waiting(listener.number, true) } else { next };
            if waits {
                assert_eq!(next.ask(&other).await.unwrap(), Answer::Busy { ahead: 0 });
            }
            one.batch_execute("BEGIN").await.unwrap();
            guard(&one, b"account", fence).await.unwrap();
            match undo {
                true => held.abandon(&other).await,
                false => assert!(held.release(&other).await),
            }
            for _ in 0..3 {
                assert!(
                    matches!(next.ask(&other).await.unwrap(), Answer::Busy { .. }),
                    "granted beside the transaction"
                );
            }
            assert_eq!(held.renew(&other).await, None, "it was given back");
            assert!(waits || listener.heard().await.is_none());
            // Another one that begins with the same fence waits for this one, and is refused then.
            let late = tokio::spawn({
                let session = session(&server).await;
                async move { guard(&session, b"account", fence).await }
            });
            one.batch_execute("COMMIT").await.unwrap();
            let late = tokio::time::timeout(LONGEST, late).await.unwrap().unwrap().unwrap_err();
            assert_eq!(code(&late).code(), STALE);
            // A server tells of an error before it has given up the locks of the transaction.
            let until = Instant::now() + LONGEST;
            let granted = loop {
                match next.ask(&other).await.unwrap() {
                    Answer::Granted { fence } => break fence,
                    _ => assert!(Instant::now() < until, "the transactions have ended"),
                }
            };
            assert!(granted > fence);
        }
    }
}

/// An entry that is not the last frees nothing, so it ends as always.
#[tokio::test]
async fn an_inner_entry_ends_inside_a_guarded_transaction() {
    let (_server, one, other) = with_account().await;
    let enter = |token: &'static str| {
        let other = &other;
        async move {
            let sql = "SELECT * FROM tenure.acquire('account', 'me', $1, 60000000, 1, NULL, NULL, false, 0, 9, 9, 0)";
            other.query_one(sql, &[&token]).await.unwrap()
        }
    };
    let fence: i64 = enter("outer").await.get("fence");
    enter("inner").await;
    one.batch_execute("BEGIN").await.unwrap();
    guard(&one, b"account", fence).await.unwrap();
    let leave = |token: &'static str| {
        let other = &other;
        async move {
            let sql = "SELECT tenure.release('account', 'me', $1, 0)";
            other.query_one(sql, &[&token]).await.unwrap().get::<_, i32>(0)
        }
    };
    assert_eq!(leave("inner").await, 1);
    assert_eq!(leave("outer").await, 0);
    let next = Request::new("account", "second");
    assert_eq!(next.ask(&other).await.unwrap(), Answer::Busy { ahead: -1 });
    one.batch_execute("ROLLBACK").await.unwrap();
    assert!(next.granted(&other).await > fence);
}

/// Two-phase commit: the guard lasts until COMMIT PREPARED, also when the server forgot who holds the lock.
#[tokio::test]
async fn a_prepared_transaction_guards_through_a_crash() {
    for tables in [Tables::Unlogged, Tables::Logged] {
        let options = PostgresOptions::new().setting("max_prepared_transactions", "5");
        let mut server = installed_with(options, tables);
        let (one, other) = (session(&server).await, session(&server).await);
        let held = Request::new("account", "first");
        let fence = held.granted(&one).await;
        one.batch_execute("BEGIN").await.unwrap();
        guard(&one, b"account", fence).await.unwrap();
        one.batch_execute("PREPARE TRANSACTION 'p'").await.unwrap();
        assert!(held.release(&other).await);
        assert!(matches!(short("second").ask(&other).await.unwrap(), Answer::Busy { .. }));
        server.kill().unwrap();
        server.restart().unwrap();
        let other = session(&server).await;
        let until = Instant::now() + LONGEST * 2;
        while let Answer::Forgotten(_) = short("second").ask(&other).await.unwrap() {
            assert!(Instant::now() < until, "the server grants nothing");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(short("second").ask(&other).await.unwrap(), Answer::Busy { ahead: -1 }, "{tables:?}");
        server.sql("postgres", "COMMIT PREPARED 'p'").unwrap();
        assert!(short("second").granted(&other).await > fence, "{tables:?}");
    }
}

/// The lease is over and a transaction of the holder guards the lock: whoever asks is told so, and by what session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_is_guarded_beyond_its_lease_is_reported() {
    let options = PostgresOptions::new().setting("max_prepared_transactions", "5");
    let server = installed_with(options, Tables::Unlogged);
    let (one, other) = (session(&server).await, session(&server).await);
    let client = Client::new(PostgresDriver::connect(&server.url_for("app", None, "postgres")).await.unwrap());
    let lock = client.lock("account").ttl(LONGEST);
    let note = async || {
        let checkup = client.doctor().await.unwrap();
        let reported = |finding: &&Finding| finding.seen.contains("whose lease");
        let finding = checkup.findings().iter().find(reported).unwrap().clone();
        (finding.concern, finding.seen)
    };
    let guards = async || {
        let rows =
            other.query("SELECT convert_from(name, 'UTF8'), fence, lapsed, pid, prepared FROM tenure.guards()", &[]);
        rows.await.unwrap()
    };
    let held = Request::new("account", "first");
    let fence = held.granted(&one).await;
    one.batch_execute("BEGIN").await.unwrap();
    guard(&one, b"account", fence).await.unwrap();
    assert!(!guards().await[0].get::<_, bool>(2) && note().await.0 == Concern::Fine, "the lease is not over");
    assert!(held.release(&other).await);

    let pid: i32 = one.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    let row = &guards().await[0];
    let seen: (&str, i64, bool, Option<i32>) = (row.get(0), row.get(1), row.get(2), row.get(3));
    assert_eq!(seen, ("account", fence, true, Some(pid)));
    let holder = lock.inspect().await.unwrap().holder.expect("the name is not free");
    assert_eq!((holder.fence.map(|held| held.get()), holder.remaining), (Some(fence.cast_unsigned()), None));
    assert!(client.held_locks("").next().await.unwrap().is_some());
    let refused = lock.force_release().await.unwrap_err();
    assert!(refused.to_string().contains("tenure.guards()"), "{refused}");
    let (concern, text) = note().await;
    assert!(concern == Concern::Note && text.contains(&pid.to_string()), "{text}");
    let free = tokio::spawn({
        let lock = lock.clone();
        async move { lock.until_free().await }
    });

    one.batch_execute("PREPARE TRANSACTION 'p'").await.unwrap();
    let row = &guards().await[0];
    assert_eq!((row.get::<_, Option<i32>>(3), row.get::<_, &str>(4)), (None, "p"));
    assert!(lock.try_acquire().await.unwrap().is_none() && !free.is_finished());
    server.sql("postgres", "ROLLBACK PREPARED 'p'").unwrap();
    tokio::time::timeout(LONGEST * 5, free).await.expect("it is free").unwrap().unwrap();
    assert!(lock.inspect().await.unwrap().holder.is_none() && guards().await.is_empty());
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
