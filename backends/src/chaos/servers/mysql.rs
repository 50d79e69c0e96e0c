//! A MariaDB server.

use tenure_conformance::{BoxError, Rng};
use tenure_mysql::install_sql;
use tenure_testkit::{MariaDbOptions, MariaDbServer};

use super::Servers;

/// Where the tables are.
pub(crate) const DATABASE: &str = "chaos";
/// The clock of a row, as the driver's procedures read it.
const NOW: &str = "UNIX_TIMESTAMP(SYSDATE(6)) * 1000000";
/// The clients' sessions: this program's own come over the unix socket.
const CLIENTS: &str = "information_schema.processlist WHERE host LIKE '127.0.0.1:%'";

pub(crate) struct MariaDbNode {
    server: MariaDbServer,
    restarts: usize,
}

impl MariaDbNode {
    pub(crate) fn start() -> Result<Self, BoxError> {
        // A transaction on a link that stays silent until another fault must not keep the one that does the harm waiting.
        let server = MariaDbServer::start(MariaDbOptions::new().setting("lock_wait_timeout", "10"))?;
        server.create_database(DATABASE)?;
        server.script(DATABASE, &install_sql())?;
        server.sql(DATABASE, super::BOOKS)?;
        Ok(Self { server, restarts: 0 })
    }

    fn sql(&self, statements: &str) -> Result<String, BoxError> {
        Ok(self.server.sql(DATABASE, statements)?.trim().to_owned())
    }

    /// Kills `what` of every client: its connection, or the statement that it runs.
    fn kill_each(&self, what: &str) -> Result<(), BoxError> {
        let ids = self.sql(&format!("SELECT id FROM {CLIENTS}"))?;
        // One that has gone meanwhile is an error of its own, and keeps no other alive.
        ids.lines().for_each(|id| drop(self.sql(&format!("KILL {what} {id}"))));
        Ok(())
    }
}

impl Servers for MariaDbNode {
    fn ports(&self) -> Vec<u16> {
        vec![self.server.port()]
    }

    fn leader(&self) -> Option<usize> {
        None
    }

    fn stop(&mut self, _node: usize) -> Result<(), BoxError> {
        Ok(self.server.pause()?)
    }

    fn go_on(&mut self, _node: usize) -> Result<(), BoxError> {
        Ok(self.server.resume()?)
    }

    fn kill(&mut self, _node: usize) -> Result<(), BoxError> {
        Ok(self.server.kill()?)
    }

    fn start(&mut self, _node: usize) -> Result<(), BoxError> {
        self.restarts += 1;
        Ok(self.server.restart()?)
    }

    /// Actions of administrators and other programs. A statement that fails because of a conflict is not an error here.
    fn disturb(&mut self, _node: usize, rng: &mut Rng) -> Result<String, BoxError> {
        let seconds = f64::from(u32::try_from(20 + rng.below(680))?) / 1_000.0;
        let (how, statements) = match rng.below(5) {
            0 => {
                self.kill_each("CONNECTION")?;
                return Ok("sessions killed".into());
            }
            1 => {
                self.kill_each("QUERY")?;
                return Ok("statements killed".into());
            }
            2 => {
                let lock = "LOCK TABLES tenure_lock WRITE, tenure_message WRITE";
                ("tables locked", format!("{lock}; SELECT SLEEP({seconds}); UNLOCK TABLES"))
            }
            3 => {
                let lock = "START TRANSACTION; SELECT COUNT(*) FROM tenure_lock FOR UPDATE";
                ("rows locked", format!("{lock}; SELECT SLEEP({seconds}); ROLLBACK"))
            }
            _ => ("tables rebuilt", String::from("OPTIMIZE TABLE tenure_lock, tenure_message")),
        };
        let outcome = self.sql(&statements);
        Ok(outcome.map_or_else(|error| format!("{how} (failed: {error})"), |_| how.into()))
    }

    fn left(&mut self) -> Result<Vec<String>, BoxError> {
        let questions = [
            ("sessions of clients", CLIENTS.to_owned()),
            ("holds", format!("tenure_lock WHERE until > {NOW}")),
            ("messages", "tenure_message".to_owned()),
        ];
        let mut left = Vec::new();
        for (what, rows) in questions {
            let count = self.sql(&format!("SELECT COUNT(*) FROM {rows}"))?;
            left.extend((count != "0").then(|| format!("{count} {what}")));
        }
        Ok(left)
    }

    fn books(&mut self) -> Result<String, BoxError> {
        self.sql(super::BALANCE)
    }

    fn counters(&mut self) -> Result<String, BoxError> {
        let sizes = "SELECT GROUP_CONCAT(table_name, ' ', (data_length + index_length) DIV 1024, ' kB' SEPARATOR ', ') \
                     FROM information_schema.tables WHERE table_schema = DATABASE()";
        let deadlocks =
            "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'Innodb_deadlocks'";
        let (restarts, deadlocks, sizes) = (self.restarts, self.sql(deadlocks)?, self.sql(sizes)?);
        Ok(format!("{restarts} starts after a kill; since the last one {deadlocks} deadlocks; {sizes}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_has_left_is_found_also_after_a_kill() {
        let mut node = MariaDbNode::start().unwrap();
        assert_eq!(node.left().unwrap(), Vec::<String>::new());
        node.sql("CALL tenure_acquire('a', NULL, 't', 1000000000, 1, NULL, 10, 0)").unwrap();
        node.sql("CALL tenure_push('jobs', 'x', 0, NULL, NULL, NULL, NULL)").unwrap();
        assert_eq!(node.left().unwrap(), ["1 holds", "1 messages"]);
        node.kill(0).unwrap();
        node.start(0).unwrap();
        assert_eq!(node.left().unwrap(), ["1 holds", "1 messages"]);
        assert!(node.counters().unwrap().starts_with("1 starts"));
    }
}
