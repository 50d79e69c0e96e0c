//! What an operator should know about the server, and what it means for locks.

use async_trait::async_trait;
use mysql_async::Row;
use tenure_core::Result;
use tenure_core::driver::{Checkup, Concern, Doctor, Finding, Topic};

use crate::driver::MysqlDriver;
use crate::error::odd;
use crate::row::column;

/// Asks in one statement, of variables that everybody may read and both kinds of servers have.
const QUESTION: &str = "SELECT CONCAT(@@version), @@innodb_flush_log_at_trx_commit, @@log_bin, @@sync_binlog, \
     CONCAT(@@binlog_format), @@max_allowed_packet, CONCAT(@@innodb_doublewrite), UNIX_TIMESTAMP(SYSDATE(6)), \
     (SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE COMMAND LIKE 'Binlog Dump%')";

/// What a request may need: messages of 2 MiB with their names.
const PACKET: u64 = 4 * 1024 * 1024;

type Seen = (Topic, Concern, String, &'static str);

/// One statement over one connection.
#[async_trait]
impl Doctor for MysqlDriver {
    async fn examine(&self) -> Result<Checkup> {
        let rows = self.connections.ask(b"", QUESTION, Vec::new()).await?;
        let place = self.connections.config().place();
        let finding = |(topic, concern, seen, meaning): Seen| {
            Finding::new(place.clone(), topic, concern, seen, String::from(meaning))
        };
        Ok(server(rows.first().ok_or_else(odd)?)?.into_iter().map(finding).collect())
    }
}

fn server(row: &Row) -> Result<Vec<Seen>> {
    let (version, flush, logs): (String, i64, i64) = (column(row, 0)?, column(row, 1)?, column(row, 2)?);
    let (sync, format, packet): (i64, String, u64) = (column(row, 3)?, column(row, 4)?, column(row, 5)?);
    let (doublewrite, clock, replicas): (String, f64, i64) = (column(row, 6)?, column(row, 7)?, column(row, 8)?);
    let concern = |danger: bool| if danger { Concern::Danger } else { Concern::Fine };
    let note = |noted: bool| if noted { Concern::Note } else { Concern::Fine };
    let own =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
    Ok(vec![
        (Topic::Reach, Concern::Fine, String::from("the server answers"), "locks and messages are kept"),
        (Topic::Version, concern(is_old(&version)), version.clone(), "MySQL 8.0 or MariaDB 10.6 is needed, or later"),
        (
            Topic::Persistence,
            concern(flush != 1),
            format!("innodb_flush_log_at_trx_commit is {flush}"),
            "other than 1, a crash can forget the last grants, which are then granted again, and the last messages",
        ),
        (
            Topic::Persistence,
            note(doublewrite == "0" || doublewrite == "OFF"),
            format!("innodb_doublewrite is {doublewrite}"),
            "without it a crash of the machine can damage pages, unless its file system writes them whole",
        ),
        (
            Topic::Persistence,
            note(logs == 1 && sync != 1),
            format!("the binary log is {}, sync_binlog is {sync}", if logs == 1 { "on" } else { "off" }),
            "other than 1, a crash can leave replicas with other data than their source",
        ),
        (
            Topic::Persistence,
            concern(logs == 1 && format == "STATEMENT"),
            format!("binlog_format is {format}"),
            "requests fail where the binary log has statements: ROW or MIXED is needed",
        ),
        (
            Topic::Replicas,
            note(replicas > 0),
            format!("{replicas} replicas, as far as the user may see"),
            "the promotion of a replica that had not seen the last grants can bring two holders",
        ),
        (
            Topic::Storage,
            note(packet < PACKET),
            format!("max_allowed_packet is {} KiB", packet / 1024),
            "pushes that are larger fail",
        ),
        (
            Topic::Clock,
            note((clock - own).abs() > 5.0),
            format!("the server's clock is {:+.1} s from this machine's", clock - own),
            "leases count by the server's clock alone",
        ),
    ])
}

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
