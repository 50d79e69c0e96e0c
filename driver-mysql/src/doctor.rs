//! The health check of the server, and the consequences of its findings for locks.

use async_trait::async_trait;
use mysql_async::Row;
use tenure_core::Result;
use tenure_core::driver::{Checkup, Concern, Doctor, Finding, Topic};

use crate::driver::MysqlDriver;
use crate::error::odd;
use crate::row::column;

/// Asks in one statement, of variables that all users may read and both kinds of servers have.
const QUESTION: &str = "SELECT CONCAT(@@version), @@innodb_flush_log_at_trx_commit, @@log_bin, @@sync_binlog, \
     CONCAT(@@binlog_format), @@max_allowed_packet, CONCAT(@@innodb_doublewrite), UNIX_TIMESTAMP(SYSDATE(6)), \
     (SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE COMMAND LIKE 'Binlog Dump%')";

/// The locks that open transactions keep although their leases have ended.
const KEPT: &str = "CALL tenure_kept()";

/// What a request may need: messages of 2 MiB with their names.
const PACKET: u64 = 4 * 1024 * 1024;

/// Two statements over one connection.
#[async_trait]
impl Doctor for MysqlDriver {
    async fn examine(&self) -> Result<Checkup> {
        let rows = self.connections.ask(b"", QUESTION, Vec::new()).await?;
        let kept = self.connections.ask(b"", KEPT, Vec::new()).await?;
        let place = self.connections.config().place();
        let seen = server(rows.first().ok_or_else(odd)?)?.into_iter().chain([kept_locks(&kept)?]);
        Ok(seen.map(|finding| finding.with_server(place.clone())).collect())
    }
}

fn server(row: &Row) -> Result<Vec<Finding>> {
    let mut seen = vec![Finding::judged(
        Topic::Reach,
        "the server answers".into(),
        Concern::Fine,
        "locks and messages are kept",
        "",
    )];
    seen.extend(durability(row)?);
    seen.extend(upkeep(row)?);
    Ok(seen)
}

/// What a crash takes away.
fn durability(row: &Row) -> Result<Vec<Finding>> {
    let (version, flush, logs): (String, i64, i64) = (column(row, 0)?, column(row, 1)?, column(row, 2)?);
    let (sync, format, doublewrite): (i64, String, String) = (column(row, 3)?, column(row, 4)?, column(row, 6)?);
    Ok(vec![
        Finding::judged(
            Topic::Version,
            version.clone(),
            Concern::Danger.when(is_old(&version)),
            "MySQL 8.0, MariaDB 10.6 and later are supported",
            "MySQL 8.0 or MariaDB 10.6 is needed, or later",
        ),
        Finding::judged(
            Topic::Persistence,
            format!("innodb_flush_log_at_trx_commit is {flush}"),
            Concern::Danger.when(flush != 1),
            "what is committed survives a crash",
            "other than 1, a crash can lose the last grants, so that locks are granted twice, and the last messages",
        ),
        Finding::judged(
            Topic::Persistence,
            format!("innodb_doublewrite is {doublewrite}"),
            Concern::Note.when(doublewrite == "0" || doublewrite == "OFF"),
            "a crash of the machine damages no page",
            "without it a crash of the machine can damage pages, unless its file system writes them whole",
        ),
        Finding::judged(
            Topic::Persistence,
            format!("the binary log is {}, sync_binlog is {sync}", if logs == 1 { "on" } else { "off" }),
            Concern::Note.when(logs == 1 && sync != 1),
            "a crash leaves no replica with other data than its source",
            "other than 1, a crash can leave replicas with other data than their source",
        ),
        Finding::judged(
            Topic::Persistence,
            format!("binlog_format is {format}"),
            Concern::Danger.when(logs == 1 && format == "STATEMENT"),
            "no request fails because of the binary log",
            "requests fail if the binary log has statements: set ROW or MIXED",
        ),
    ])
}

/// What a promotion takes away, and what refuses requests or makes times look wrong.
fn upkeep(row: &Row) -> Result<Vec<Finding>> {
    let (packet, clock, replicas): (u64, f64, i64) = (column(row, 5)?, column(row, 7)?, column(row, 8)?);
    let own =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
    let apart = tenths(clock - own);
    Ok(vec![
        Finding::judged(
            Topic::Replicas,
            format!("{replicas} replicas, as far as the user may see"),
            Concern::Note.when(replicas > 0),
            "there is no replica, so no promotion can lose grants",
            "the promotion of a replica that has not received the last grants can lead to two holders",
        ),
        Finding::judged(
            Topic::Storage,
            format!("max_allowed_packet is {} KiB", packet / 1024),
            Concern::Note.when(packet < PACKET),
            "the largest push fits",
            "larger pushes fail",
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

/// Locks that are guarded beyond their leases, and the transactions that may guard them.
fn kept_locks(rows: &[Row]) -> Result<Finding> {
    let (mut names, mut sessions) = (Vec::new(), Vec::new());
    for row in rows {
        let (name, thread, age): (Option<Vec<u8>>, i64, i64) = (column(row, 0)?, column(row, 1)?, column(row, 2)?);
        match (name, thread) {
            (Some(name), _) => names.push(name.escape_ascii().to_string()),
            (None, -1) => sessions.push(UNSEEN.to_owned()),
            (None, 0) => sessions.push(format!("a prepared one (XA RECOVER) for {age} s")),
            (None, thread) => sessions.push(format!("thread {thread} for {age} s")),
        }
    }
    let seen = match names.as_slice() {
        [] => String::from("no open transaction blocks a lock whose lease has ended"),
        names => format!(
            "open transactions block locks whose leases have ended: {}; the open transactions that lock rows: {}",
            names.join(", "),
            sessions.join(", ")
        ),
    };
    Ok(Finding::judged(
        Topic::Storage,
        seen,
        Concern::Note.when(!names.is_empty()),
        "a transaction that guards a lock blocks it until the transaction ends",
        "no client is granted these locks before those transactions end; KILL ends a thread, see the README of tenure-mysql",
    ))
}

/// The finding where transactions are not visible.
const UNSEEN: &str = "those of unknown threads: GRANT PROCESS ON *.* TO the user who created tenure's procedures";

fn is_old(version: &str) -> bool {
    let mut parts = version.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let number = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    number < if version.contains("MariaDB") { (10, 6) } else { (8, 0) }
}

#[cfg(test)]
mod tests {
    use super::is_old;

    #[test]
    fn each_kind_of_server_has_its_oldest_version() {
        for (version, old) in [
            ("10.5.27-MariaDB", true),
            ("10.6.0-MariaDB-log", false),
            ("11.4.2-MariaDB", false),
            ("5.7.44-log", true),
            ("8.0.11", false),
            ("8.4.3", false),
        ] {
            assert_eq!(is_old(version), old, "{version}");
        }
    }
}
