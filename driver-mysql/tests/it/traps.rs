//! What servers of this kind do to those who do not know it.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::common::{DATABASE, backend, granted, hold, locks, message, receive, request, session, start};
use mysql_async::prelude::Queryable as _;
use tenure_core::ErrorKind;
use tenure_core::driver::{Delay, DelayQueueExt as _, Due, Released, Settle, Settlement, Ttl};
use tenure_core::queue::QueueName;
use tenure_mysql::MysqlDriver;
use tenure_testkit::MariaDbOptions;

const MINUTE: Duration = Duration::from_secs(60);

/// NOW() is that of the call, and stands still while the call waits for a table: a lease that ended meanwhile would be released.
#[tokio::test]
async fn a_request_that_waited_goes_by_the_time_after_it() {
    let server = start(MariaDbOptions::new());
    let (locks, mut user) = (locks(&server).await, session(&server).await);
    let short = request("a", Duration::from_millis(700));
    granted(&locks, &short).await;
    user.query_drop("LOCK TABLES tenure_lock WRITE").await.unwrap();
    let release = async { locks.release(&hold(&short)).await.unwrap() };
    let commit = async {
        tokio::time::sleep(Duration::from_millis(1_000)).await; // past the lease, and the table still locked
        user.query_drop("UNLOCK TABLES").await.unwrap();
    };
    let (released, ()) = tokio::join!(release, commit);
    assert_eq!(released, Released::NotHeld, "its lease had ended before it could look");
}

#[tokio::test]
async fn a_clock_that_is_made_to_stand_still_is_named() {
    let server = start(MariaDbOptions::new().setting("sysdate-is-now", "1"));
    let error = MysqlDriver::connect(&server.url(DATABASE)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured);
    assert!(error.to_string().contains("--sysdate-is-now"), "{error}");
}

/// UNIX_TIMESTAMP and SYSDATE are of the session's zone.
#[tokio::test]
async fn the_zone_of_a_session_does_not_matter() {
    let server = start(MariaDbOptions::new().setting("default-time-zone", "+05:00"));
    let (locks, mut user) = (locks(&server).await, session(&server).await);
    let first = request("a", MINUTE);
    let grant = granted(&locks, &first).await;
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros();
    assert!(clock.abs_diff(u128::from(grant.fence.get())) < 60_000_000, "the fence is {}", grant.fence);
    for zone in ["-11:00", "+00:00", "+13:00"] {
        user.query_drop(format!("SET time_zone = '{zone}'")).await.unwrap();
        user.exec_drop("CALL tenure_guard('a', ?)", (grant.fence.get(),)).await.unwrap();
        let left: Option<mysql_async::Row> = user.query_first("CALL tenure_inspect('a')").await.unwrap();
        let left: i64 = left.unwrap().get(5).unwrap();
        assert!((1..=60_000_000).contains(&left), "{left} us are left in {zone}");
    }
}

/// Locks of missing rows are locks of gaps, and two of them wait for each other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_names_at_once_do_not_deadlock() {
    let server = start(MariaDbOptions::new());
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..6_usize {
        let locks = locks(&server).await;
        clients.spawn(async move {
            for number in 0..40 {
                // Each name is new to most of them.
                let asked = request(&format!("name {}", (number * 7 + client * 3) % 60), MINUTE);
                locks.acquire(&asked).await.expect("no deadlock");
                locks.abandon(&hold(&asked)).await.expect("no deadlock");
            }
        });
    }
    while let Some(client) = clients.join_next().await {
        client.unwrap();
    }
}

/// Transactions that nobody commits, that see old rows, or whose commit ends the session.
#[tokio::test]
async fn the_defaults_of_a_server_do_not_matter() {
    let server = start(
        MariaDbOptions::new()
            .setting("autocommit", "0")
            .setting("transaction-isolation", "SERIALIZABLE")
            .setting("completion-type", "2")
            .setting("wait-timeout", "1")
            .setting("innodb-lock-wait-timeout", "50")
            .setting("sql-mode", "ANSI,PAD_CHAR_TO_FULL_LENGTH,NO_BACKSLASH_ESCAPES"),
    );
    let (one, other) = (backend(&server).await, backend(&server).await);
    let first = request("a", MINUTE);
    granted(one.locks(), &first).await;
    assert!(other.locks().inspect(&first.name).await.unwrap().holder.is_some(), "it was committed");
    one.locks().release(&hold(&first)).await.unwrap();
    granted(other.locks(), &request("a", MINUTE)).await;
    let jobs = QueueName::new("jobs").unwrap();
    one.queue().unwrap().push(&jobs, &[message("x")]).await.unwrap();
    assert_eq!(other.queue().unwrap().receive(&receive(&jobs, 1)).await.unwrap().deliveries.len(), 1);
}

/// A row or a table that a user's transaction keeps: by default one waits for it 50 s, or a day.
#[tokio::test]
async fn nobody_waits_long_for_what_another_transaction_keeps() {
    let server = start(MariaDbOptions::new());
    let (locks, mut user) = (locks(&server).await, session(&server).await);
    let held = request("a", MINUTE);
    granted(&locks, &held).await;
    for (begin, end) in [
        ("BEGIN; SELECT * FROM tenure_lock WHERE name = 'a' FOR UPDATE", "COMMIT"),
        ("LOCK TABLES tenure_lock WRITE", "UNLOCK TABLES"),
    ] {
        user.query_drop(begin).await.unwrap();
        let began = Instant::now();
        let error = locks.release(&hold(&held)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("another transaction keeps"), "{error}");
        assert!(began.elapsed() < Duration::from_secs(12), "{:?}", began.elapsed());
        user.query_drop(end).await.unwrap();
    }
    assert_eq!(locks.release(&hold(&held)).await.unwrap(), Released::Released, "nothing was changed");
}

/// InnoDB does not write under READ COMMITTED where the binary log has statements.
#[tokio::test]
async fn a_binary_log_of_statements_is_named_and_one_of_rows_is_fine() {
    let server = start(MariaDbOptions::new().setting("log-bin", "binlog").setting("server-id", "1"));
    for (format, fine) in [("ROW", true), ("MIXED", true), ("STATEMENT", false)] {
        server.sql("", &format!("SET GLOBAL binlog_format = {format}")).unwrap();
        let locks = locks(&server).await; // sessions keep the format that they began with
        match locks.acquire(&request(format, MINUTE)).await {
            Ok(_) => assert!(fine, "{format}"),
            Err(error) => {
                assert!(!fine && error.kind() == ErrorKind::Misconfigured, "{format}: {error}");
                assert!(error.to_string().contains("binlog_format"), "{error}");
            }
        }
    }
}

/// A user variable in the text of a statement makes proxies keep the session for its client, and a pool that resets sessions doubles
/// the round trips.
#[tokio::test]
async fn what_is_sent_are_calls_without_variables() {
    let server = start(MariaDbOptions::new());
    let (backend, jobs) = (backend(&server).await, QueueName::new("jobs").unwrap());
    let (locks, queue) = (backend.locks(), backend.queue().unwrap());
    let all = async || {
        let (first, other) = (request("a", MINUTE), request("a", MINUTE));
        granted(locks, &first).await;
        locks.acquire(&other).await.unwrap();
        locks.inspect(&first.name).await.unwrap();
        locks.renew(Ttl::new(MINUTE).unwrap(), &[hold(&first)]).await.remove(0).unwrap();
        locks.release(&hold(&first)).await.unwrap();
        queue.push(&jobs, &[message("x")]).await.unwrap();
        let receipt = queue.receive(&receive(&jobs, 1)).await.unwrap().deliveries[0].receipt;
        queue.settle(&jobs, &[Settle::new(receipt, Settlement::Ack)]).await.unwrap();
    };
    all().await; // connects, and prepares
    server.sql("", "SET GLOBAL log_output = 'TABLE'; SET GLOBAL general_log = 1").unwrap();
    all().await;
    server.sql("", "SET GLOBAL general_log = 0").unwrap();
    let log = "SELECT command_type, CONVERT(argument USING utf8mb4) FROM mysql.general_log
      WHERE thread_id IN (SELECT id FROM information_schema.processlist WHERE db = 'app') ORDER BY event_time";
    let sent = server.sql("", log).unwrap();
    let sent: Vec<&str> = sent.lines().collect();
    assert_eq!(sent.len(), 8, "one for each request: {sent:#?}");
    for line in sent {
        assert!(line.starts_with("Execute\tCALL tenure_") && !line.contains('@'), "{line}");
    }
}

/// SYSDATE in a condition is no bound of an index: a receive would look at all that is not due.
#[tokio::test]
async fn a_receive_does_not_look_at_what_is_not_due() {
    const LATER: usize = 5_000;
    let server = start(MariaDbOptions::new());
    let (queue, jobs) = (crate::common::queue(&server).await, QueueName::new("jobs").unwrap());
    let later = Due::After(Delay::new(Duration::from_secs(3_600)).unwrap());
    for _ in 0..LATER / 250 {
        queue.push(&jobs, &vec![message("later").with_due(later); 250]).await.unwrap();
    }
    queue.push(&jobs, &[message("now")]).await.unwrap();
    let read = || -> u64 {
        let status = server.sql(DATABASE, "SHOW GLOBAL STATUS LIKE 'Handler_read%'").unwrap();
        status.lines().filter_map(|line| line.rsplit('\t').next()?.trim().parse::<u64>().ok()).sum()
    };
    let own = read().abs_diff(read()); // MySQL counts the rows of its counters as well
    for expected in [1, 0] {
        let before = read() + own;
        assert_eq!(queue.receive(&receive(&jobs, 10)).await.unwrap().deliveries.len(), expected);
        let rows = read() - before;
        assert!(rows < 300, "{rows} rows were read, {LATER} are not due");
    }
}

/// Each new name removes up to two that were idle for more than a day, wherever they are in the order of names; names in use, and those with
/// a fence of the future, are in the way of none.
#[tokio::test]
async fn idle_names_are_removed_in_whatever_order_they_sort() {
    let server = start(MariaDbOptions::new());
    let locks = locks(&server).await;
    let rows = "INSERT INTO tenure_lock (name, fence, first, token, since, until, reported)
        WITH RECURSIVE seq (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM seq WHERE n <";
    let old = format!("{rows} 100) SELECT CONCAT('job ', LPAD(n, 6, '0')), 1e15 + n, 1e15 + n, 'x', 1, 0, 1 FROM seq");
    let ahead = format!("{rows} 10) SELECT CONCAT('ahead ', n), 4e18, 4e18, 'x', 1, 0, 1 FROM seq");
    server.sql(DATABASE, &format!("{old}; {ahead}")).unwrap();
    for number in 0..60 {
        for prefix in ["a", "job 1"] {
            granted(&locks, &request(&format!("{prefix} {number}"), MINUTE)).await;
        }
    }
    let left = server.sql(DATABASE, "SELECT COUNT(*), SUM(name LIKE 'ahead %') FROM tenure_lock").unwrap();
    assert_eq!(left.trim(), "130\t10");
}
