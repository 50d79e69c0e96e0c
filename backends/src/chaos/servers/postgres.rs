//! A PostgreSQL server, alone or with a standby that takes over when it is killed.

use std::time::Duration;

use tenure_conformance::{BoxError, Rng};
use tenure_postgres::{Install, install_sql};
use tenure_testkit::{PostgresOptions, PostgresServer, TcpProxy};

use super::Servers;

const DATABASE: &str = "postgres";

pub(crate) struct PostgresNode {
    server: PostgresServer,
    follower: Option<Follower>,
    promotions: usize,
    restarts: usize,
}

/// The standby, and the address that leads to the server of the day.
struct Follower {
    standby: PostgresServer,
    front: TcpProxy,
}

impl PostgresNode {
    /// Leases are of at most that ttl. After a kill, a server with unlogged tables grants nothing for so long.
    pub(crate) fn start(logged: bool, ttl: Duration, with_standby: bool) -> Result<Self, BoxError> {
        // A transaction on a link that stays silent until another fault must not keep the one that does the harm waiting.
        let server = PostgresServer::start(PostgresOptions::new().setting("lock_timeout", "10s"))?;
        server.script(DATABASE, &install_sql(Install { logged, longest_ttl: ttl }))?;
        server.script(DATABASE, super::BOOKS)?;
        let follower = with_standby.then(|| -> Result<_, BoxError> {
            Ok(Follower { standby: follow(&server)?, front: TcpProxy::start(server.port())? })
        });
        Ok(Self { follower: follower.transpose()?, server, promotions: 0, restarts: 0 })
    }

    fn sql(&self, statements: &str) -> Result<String, BoxError> {
        Ok(self.server.sql(DATABASE, statements)?)
    }

    /// The standby takes over the address; another one follows it.
    fn promote(&mut self, follower: &mut Follower) -> Result<(), BoxError> {
        follower.standby.promote()?;
        std::mem::swap(&mut self.server, &mut follower.standby);
        follower.front.lead_to(self.server.port());
        follower.standby = follow(&self.server)?;
        self.promotions += 1;
        Ok(())
    }
}

/// A standby that has everything so far. What the server writes later may not have arrived when it is killed.
fn follow(server: &PostgresServer) -> Result<PostgresServer, BoxError> {
    let standby = server.standby()?;
    server.wait_for(&standby)?;
    Ok(standby)
}

impl Servers for PostgresNode {
    fn ports(&self) -> Vec<u16> {
        vec![self.follower.as_ref().map_or(self.server.port(), |follower| follower.front.port())]
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
        match self.follower.take() {
            None => Ok(self.server.restart()?),
            Some(mut follower) => {
                let promoted = self.promote(&mut follower);
                self.follower = Some(follower);
                promoted
            }
        }
    }

    /// Actions of administrators and other programs. A statement that fails because of a conflict is not an error here.
    fn disturb(&mut self, _node: usize, rng: &mut Rng) -> Result<String, BoxError> {
        let chosen = "FROM pg_stat_activity WHERE application_name = 'tenure'";
        let seconds = f64::from(u32::try_from(20 + rng.below(680))?) / 1_000.0;
        let (how, statements) = match rng.below(7) {
            0 => {
                self.server.shut_down()?;
                self.server.restart()?;
                self.restarts += 1;
                return Ok("clean restart".into());
            }
            1 => ("sessions terminated", format!("SELECT pg_terminate_backend(pid) {chosen}")),
            2 => {
                let listeners = "AND query LIKE 'LISTEN tenure%'";
                ("listeners terminated", format!("SELECT pg_terminate_backend(pid) {chosen} {listeners}"))
            }
            3 => ("statements cancelled", format!("SELECT pg_cancel_backend(pid) {chosen}")),
            4 => {
                let hold = format!("LOCK TABLE tenure.lock, tenure.message; SELECT pg_sleep({seconds})");
                ("tables locked", hold)
            }
            5 => ("rows locked", format!("SELECT FROM tenure.lock FOR UPDATE; SELECT pg_sleep({seconds})")),
            _ => ("vacuum", String::from("VACUUM FULL")),
        };
        let outcome = self.server.sql(DATABASE, &statements);
        Ok(outcome.map_or_else(|error| format!("{how} (failed: {error})"), |_| how.into()))
    }

    fn left(&mut self) -> Result<Vec<String>, BoxError> {
        let questions = [
            ("sessions of clients", "pg_stat_activity WHERE application_name = 'tenure'"),
            ("holds", "tenure.lock WHERE entries <> '{}' AND until > tenure.us()"),
            ("waiters", "tenure.waiter WHERE present > tenure.us()"),
            ("advisory locks", "pg_locks WHERE locktype = 'advisory'"),
            ("messages", "tenure.message"),
        ];
        let mut left = Vec::new();
        for (what, rows) in questions {
            let count = self.sql(&format!("SELECT count(*) FROM {rows}"))?;
            left.extend((count != "0").then(|| format!("{count} {what}")));
        }
        Ok(left)
    }

    fn books(&mut self) -> Result<String, BoxError> {
        Ok(self.sql(super::BALANCE)?.replace('|', "\t"))
    }

    fn counters(&mut self) -> Result<String, BoxError> {
        let sizes = "SELECT string_agg(relname || ' ' || pg_total_relation_size(oid) / 1024 || ' kB', ', ' ORDER BY relname) \
                     FROM pg_class WHERE relnamespace = 'tenure'::regnamespace AND relkind = 'r' AND \
                     pg_total_relation_size(oid) > 65536";
        let deadlocks = self.sql("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")?;
        let (promotions, restarts, sizes) = (self.promotions, self.restarts, self.sql(sizes)?);
        Ok(format!(
            "{promotions} promotions, {restarts} clean restarts; since its last start {deadlocks} deadlocks; {sizes}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_has_left_is_found() {
        let mut node = PostgresNode::start(false, Duration::from_secs(1), false).unwrap();
        assert_eq!(node.left().unwrap(), Vec::<String>::new());
        node.sql("SELECT tenure.acquire('a', NULL, 't', 1000000000, 1, NULL, NULL, false, 0, 10, 10, 0)").unwrap();
        node.sql("SELECT tenure.acquire('a', NULL, 'u', 1000000000, 1, NULL, 60000000, true, 7, 10, 10, 0)").unwrap();
        node.sql("SELECT tenure.push('jobs', 'x')").unwrap();
        assert_eq!(node.left().unwrap(), ["1 holds", "1 waiters", "1 messages"]);
    }

    #[test]
    fn a_standby_takes_over_the_address() {
        let mut node = PostgresNode::start(false, Duration::from_secs(1), true).unwrap();
        let (ports, first) = (node.ports(), node.server.port());
        node.sql("SELECT tenure.push('jobs', 'x')").unwrap();
        for _ in 0..2 {
            node.kill(0).unwrap();
            node.start(0).unwrap();
        }
        assert_eq!(node.ports(), ports);
        assert_ne!(node.server.port(), first);
        assert_eq!(node.sql("SELECT pg_is_in_recovery()").unwrap(), "f");
        assert_eq!(node.promotions, 2);
    }
}
