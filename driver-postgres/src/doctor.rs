//! The health check of the server, and the consequences of its findings for locks.

use async_trait::async_trait;
use tenure_core::Result;
use tenure_core::driver::{Checkup, Concern, Doctor, Finding, Topic};
use tokio_postgres::{Client, Row};

use crate::driver::PostgresDriver;
use crate::error::odd;
use crate::schema::one_row;

/// Asks in one statement. What a user may not see is null.
const QUESTION: &str = "SELECT current_setting('server_version'), current_setting('server_version_num')::int, \
     current_setting('fsync') = 'on', current_setting('synchronous_commit'), \
     (SELECT count(*) FROM pg_stat_replication), \
     coalesce((SELECT max(extract(epoch FROM clock_timestamp() - xact_start)) FROM pg_stat_activity \
       WHERE state LIKE 'idle in transaction%'), 0)::float8, \
     pg_notification_queue_usage(), pg_backend_pid(), extract(epoch FROM clock_timestamp())::float8, pg_is_in_recovery(), \
     coalesce((SELECT sum(n_dead_tup) FROM pg_stat_all_tables WHERE schemaname = 'tenure'), 0)::int8, \
     coalesce((SELECT sum(n_live_tup) FROM pg_stat_all_tables WHERE schemaname = 'tenure'), 0)::int8";

/// Transactions that guard locks whose leases have ended: how many, for how long the oldest is open, and one of their sessions.
const GUARDS: &str = "SELECT count(*), coalesce(max(extract(epoch FROM clock_timestamp() - since)), 0)::float8, min(pid) \
     FROM tenure.guards() WHERE lapsed";

/// So many dead rows are nothing to speak of.
const DEAD_ROWS: i64 = 20_000;

/// A few statements over one connection.
#[async_trait]
impl Doctor for PostgresDriver {
    async fn examine(&self) -> Result<Checkup> {
        let client = self.connections.first().await?;
        let place = self.connections.config().place.clone();
        let found = self.look(&client).await?;
        Ok(found.into_iter().map(|finding| finding.with_server(place.clone())).collect())
    }
}

impl PostgresDriver {
    async fn look(&self, client: &Client) -> Result<Vec<Finding>> {
        let row = one_row(client, QUESTION).await?;
        let mut seen = vec![Finding::judged(
            Topic::Reach,
            "the schema answers".into(),
            Concern::Fine,
            "locks and messages are kept",
            "",
        )];
        seen.extend(server(&row, self.installed.logged).ok_or_else(odd)?);
        let again = one_row(client, "SELECT pg_backend_pid()").await?;
        let session = |row: &Row, at| row.try_get::<_, i32>(at).map_err(|_| odd());
        if session(&again, 0)? != session(&row, 7)? {
            seen.push(Finding::judged(
                Topic::Reach,
                String::from("a pooler gives each statement another session"),
                Concern::Note.when(self.connections.config().prepare),
                "no statement is prepared",
                "set prepare=false unless it keeps prepared statements",
            ));
        }
        if !row.try_get::<_, bool>(9).map_err(|_| odd())? {
            seen.push(self.notifications().await);
            seen.push(guards(&one_row(client, GUARDS).await?).ok_or_else(odd)?);
        }
        Ok(seen)
    }

    async fn notifications(&self) -> Finding {
        let listened = self.connections.listen().await;
        let seen = match &listened {
            Ok(()) => String::from("notifications arrive"),
            Err(error) => format!("notifications do not arrive: {}", error.message()),
        };
        Finding::judged(
            Topic::Reach,
            seen,
            Concern::Danger.when(listened.is_err()),
            "releases wake waiters",
            "no task can wait: behind a pooler in transaction mode set listen=host:port of the server itself",
        )
    }
}

fn guards(row: &Row) -> Option<Finding> {
    let (count, oldest, session): (i64, f64, Option<i32>) =
        (row.try_get(0).ok()?, row.try_get(1).ok()?, row.try_get(2).ok()?);
    let of = session.map_or_else(|| String::from("prepared"), |session| format!("of session {session}"));
    let seen = match count {
        0 => String::from("no transaction guards a lock whose lease has ended"),
        _ => format!("{count} transactions guard locks whose leases have ended, one for {oldest:.0} s, one {of}"),
    };
    Some(Finding::judged(
        Topic::Storage,
        seen,
        Concern::Note.when(count > 0),
        "no lock has to wait for a transaction",
        "these locks are granted when their transactions end: SELECT * FROM tenure.guards() names them, and SELECT \
         pg_terminate_backend(pid) ends one",
    ))
}

fn server(row: &Row, logged: bool) -> Option<Vec<Finding>> {
    let mut seen = durability(row, logged)?;
    seen.extend(upkeep(row)?);
    Some(seen)
}

/// What a crash or a promotion takes away.
fn durability(row: &Row, logged: bool) -> Option<Vec<Finding>> {
    let (version, number): (String, i32) = (row.try_get(0).ok()?, row.try_get(1).ok()?);
    let (fsync, commit): (bool, String) = (row.try_get(2).ok()?, row.try_get(3).ok()?);
    let (standbys, standby): (i64, bool) = (row.try_get(4).ok()?, row.try_get(9).ok()?);
    Some(vec![
        Finding::judged(
            Topic::Version,
            format!("PostgreSQL {version}"),
            Concern::Danger.when(number < 140_000),
            "version 14 and later are supported",
            "version 14 or later is needed",
        ),
        Finding::judged(
            Topic::Replicas,
            String::from(if standby { "the server is a standby" } else { "the server is a primary" }),
            Concern::Danger.when(standby),
            "a primary grants locks",
            "a standby grants nothing",
        ),
        Finding::judged(
            Topic::Persistence,
            format!("fsync is {}", if fsync { "on" } else { "off" }),
            Concern::Danger.when(!fsync),
            "what is committed survives a crash of the machine",
            "without it a crash of the machine can damage everything",
        ),
        Finding::judged(
            Topic::Persistence,
            format!("synchronous_commit is {commit}, locks are {}", if logged { "logged" } else { "unlogged" }),
            Concern::Danger.when(logged && commit == "off"),
            "no lock is granted twice after a crash",
            "logged locks with commits that are not flushed can be granted twice after a crash",
        ),
        Finding::judged(
            Topic::Replicas,
            format!("{standbys} standbys"),
            Concern::Note.when(logged && standbys > 0),
            "after a promotion no lock is granted twice",
            "the promotion of an asynchronous standby loses the last grants of logged locks, and all of unlogged ones, after which none \
             is granted for the longest ttl",
        ),
    ])
}

/// What makes requests slow, or times look wrong.
fn upkeep(row: &Row) -> Option<Vec<Finding>> {
    let (oldest, notifications): (f64, f64) = (row.try_get(5).ok()?, row.try_get(6).ok()?);
    let (clock, dead, live): (f64, i64, i64) = (row.try_get(8).ok()?, row.try_get(10).ok()?, row.try_get(11).ok()?);
    let own =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
    let apart = tenths(clock - own);
    Some(vec![
        Finding::judged(
            Topic::Storage,
            format!("the oldest idle transaction is {oldest:.0} s old"),
            Concern::Note.when(oldest > 60.0),
            "no old transaction keeps rows from being cleaned up",
            "old transactions keep rows from being cleaned up: tables grow, and requests take longer",
        ),
        Finding::judged(
            Topic::Storage,
            format!("{dead} dead rows beside {live} living ones"),
            Concern::Note.when(dead > DEAD_ROWS && dead > live),
            "the tables of the schema are cleaned up in time",
            "autovacuum does not keep up with the tables of the schema, or an old transaction prevents it",
        ),
        Finding::judged(
            Topic::Alarms,
            format!("the queue of notifications is {:.0} % full", notifications * 100.0),
            Concern::Danger.when(notifications > 0.5),
            "notifications are read in time",
            "when it is full, releases with waiters fail: some session listens inside a long transaction",
        ),
        Finding::judged(
            Topic::Clock,
            format!("the server's clock is {apart:+.1} s from this machine's"),
            Concern::Note.when(apart.abs() > 5.0),
            "leases count by the server's clock alone",
            "leases count by the server's clock alone; due times that other programs compute are wrong",
        ),
    ])
}

/// Rounded to a tenth, and never a negative zero.
fn tenths(seconds: f64) -> f64 {
    (seconds * 10.0).round() / 10.0 + 0.0
}

#[cfg(test)]
mod tests {
    use tenure_testkit::{PostgresOptions, PostgresServer};
    use tokio_postgres::NoTls;

    use super::*;

    #[test]
    fn clocks_are_apart_by_tenths() {
        let shown = [-0.04, 0.04, -0.06, 7.26].map(|seconds| format!("{:+.1}", tenths(seconds)));
        assert_eq!(shown, ["+0.0", "+0.0", "-0.1", "+7.3"]);
    }

    /// Servers that are not available here: an old one, and one whose notifications are not read.
    #[tokio::test]
    async fn an_old_server_and_a_full_queue_of_notifications_are_dangers() {
        let there = PostgresServer::start(PostgresOptions::new()).unwrap();
        let (client, connection) = tokio_postgres::connect(&there.url("postgres"), NoTls).await.unwrap();
        tokio::spawn(connection);
        let seen = async |version: i32, full: f64| {
            let now = "extract(epoch FROM clock_timestamp())::float8";
            let row = format!(
                "SELECT 'x', {version}, true, 'on', 0::int8, 0::float8, {full}::float8, 1, {now}, false, 0::int8, 0::int8"
            );
            let of = |topic: Topic, all: &[Finding]| {
                all.iter().find(|finding| finding.topic == topic).map(|finding| finding.concern)
            };
            let all = server(&one_row(&client, &row).await.unwrap(), false).unwrap();
            (of(Topic::Version, &all).unwrap(), of(Topic::Alarms, &all).unwrap())
        };
        assert_eq!(seen(140_000, 0.5).await, (Concern::Fine, Concern::Fine));
        assert_eq!(seen(119_999, 0.51).await, (Concern::Danger, Concern::Danger));
    }
}
