//! What an operator should know about the server, and what it means for locks.

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

/// So many dead rows are nothing to speak of.
const DEAD_ROWS: i64 = 20_000;

type Seen = (Topic, Concern, String, &'static str);

/// A few statements over one connection.
#[async_trait]
impl Doctor for PostgresDriver {
    async fn examine(&self) -> Result<Checkup> {
        let client = self.connections.first().await?;
        let place = self.connections.config().place.clone();
        let seen = self.look(&client).await?;
        let finding = |(topic, concern, seen, meaning): Seen| {
            Finding::new(place.clone(), topic, concern, seen, String::from(meaning))
        };
        Ok(seen.into_iter().map(finding).collect())
    }
}

impl PostgresDriver {
    async fn look(&self, client: &Client) -> Result<Vec<Seen>> {
        let row = one_row(client, QUESTION).await?;
        let mut seen =
            vec![(Topic::Reach, Concern::Fine, String::from("the schema answers"), "locks and messages are kept")];
        seen.extend(server(&row, self.installed.logged).ok_or_else(odd)?);
        let again = one_row(client, "SELECT pg_backend_pid()").await?;
        let session = |row: &Row, at| row.try_get::<_, i32>(at).map_err(|_| odd());
        if session(&again, 0)? != session(&row, 7)? {
            let prepared = self.connections.config().prepare;
            let concern = if prepared { Concern::Note } else { Concern::Fine };
            let text = String::from("a pooler gives each statement another session");
            seen.push((Topic::Reach, concern, text, "set prepare=false unless it keeps prepared statements"));
        }
        Ok(seen)
    }
}

fn server(row: &Row, logged: bool) -> Option<Vec<Seen>> {
    let (version, number): (String, i32) = (row.try_get(0).ok()?, row.try_get(1).ok()?);
    let (fsync, commit): (bool, String) = (row.try_get(2).ok()?, row.try_get(3).ok()?);
    let (standbys, oldest): (i64, f64) = (row.try_get(4).ok()?, row.try_get(5).ok()?);
    let (notifications, clock): (f64, f64) = (row.try_get(6).ok()?, row.try_get(8).ok()?);
    let (standby, dead, live): (bool, i64, i64) = (row.try_get(9).ok()?, row.try_get(10).ok()?, row.try_get(11).ok()?);
    let old = number < 140_000;
    let concern = |danger: bool| if danger { Concern::Danger } else { Concern::Fine };
    let note = |noted: bool| if noted { Concern::Note } else { Concern::Fine };
    let own =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
    Some(vec![
        (Topic::Version, concern(old), format!("PostgreSQL {version}"), "version 14 or later is needed"),
        (
            Topic::Replicas,
            concern(standby),
            String::from(if standby { "the server is a standby" } else { "the server is a primary" }),
            "a standby grants nothing",
        ),
        (
            Topic::Persistence,
            concern(!fsync),
            format!("fsync is {}", if fsync { "on" } else { "off" }),
            "without it a crash of the machine can damage everything",
        ),
        (
            Topic::Persistence,
            concern(logged && commit == "off"),
            format!("synchronous_commit is {commit}, locks are {}", if logged { "logged" } else { "unlogged" }),
            "logged locks with commits that are not flushed can be granted twice after a crash",
        ),
        (
            Topic::Replicas,
            note(logged && standbys > 0),
            format!("{standbys} standbys"),
            "the promotion of an asynchronous standby loses the last grants of logged locks, and all of unlogged ones, after which none \
             is granted for the longest ttl",
        ),
        (
            Topic::Storage,
            note(oldest > 60.0),
            format!("the oldest idle transaction is {oldest:.0} s old"),
            "old transactions keep rows from being cleaned up: tables grow, and requests take longer",
        ),
        (
            Topic::Storage,
            note(dead > DEAD_ROWS && dead > live),
            format!("{dead} dead rows beside {live} living ones"),
            "autovacuum does not keep up with the tables of the schema, or an old transaction keeps it from it",
        ),
        (
            Topic::Alarms,
            concern(notifications > 0.5),
            format!("the queue of notifications is {:.0} % full", notifications * 100.0),
            "when it is full, releases with waiters fail: some session listens inside a long transaction",
        ),
        (
            Topic::Clock,
            note((clock - own).abs() > 5.0),
            format!("the server's clock is {:+.1} s from this machine's", clock - own),
            "leases count by the server's clock alone",
        ),
    ])
}

#[cfg(test)]
mod tests {
    use tenure_testkit::{PostgresOptions, PostgresServer};
    use tokio_postgres::NoTls;

    use super::*;

    /// Servers that cannot be had here: an old one, and one whose notifications nobody reads.
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
            let of = |topic: Topic, all: &[Seen]| all.iter().find(|seen| seen.0 == topic).map(|seen| seen.1);
            let all = server(&one_row(&client, &row).await.unwrap(), false).unwrap();
            (of(Topic::Version, &all).unwrap(), of(Topic::Alarms, &all).unwrap())
        };
        assert_eq!(seen(140_000, 0.5).await, (Concern::Fine, Concern::Fine));
        assert_eq!(seen(119_999, 0.51).await, (Concern::Danger, Concern::Danger));
    }
}
