//! Servers, as far as all of them can be harmed and looked at in the same way.

#[cfg(feature = "etcd")]
mod etcd;
mod mysql;
mod postgres;
mod redis;
mod sqlite;

use tenure_conformance::{BoxError, Rng};

#[cfg(feature = "etcd")]
pub(crate) use etcd::EtcdMembers;
pub(crate) use mysql::{DATABASE as MARIADB_DATABASE, MariaDbNode};
pub(crate) use postgres::PostgresNode;
pub(crate) use redis::RedisNodes;
pub(crate) use sqlite::SqliteFile;

/// Makes the numbers that guarded transactions add to, and a line for each commit.
const BOOKS: &str = "CREATE TABLE book (name varchar(30) PRIMARY KEY, value bigint NOT NULL); CREATE TABLE line (name varchar(30)); \
                     CREATE INDEX line_name ON line (name)";
/// A name, its commits, and its number.
const BALANCE: &str =
    "SELECT b.name, (SELECT count(*) FROM line l WHERE l.name = b.name), b.value FROM book b ORDER BY b.name";

/// One server or several.
pub(crate) trait Servers: Send {
    /// Where each listens.
    fn ports(&self) -> Vec<u16>;

    /// Where they are, if clients do not use a port: then there are no connections to be harmed.
    fn url(&self) -> Option<String> {
        None
    }

    /// The one that leads, if they have a leader and all of them work.
    fn leader(&self) -> Option<usize>;

    /// Stops a server where it is.
    fn stop(&mut self, node: usize) -> Result<(), BoxError>;

    /// Resumes it.
    fn go_on(&mut self, node: usize) -> Result<(), BoxError>;

    /// Kills it.
    fn kill(&mut self, node: usize) -> Result<(), BoxError>;

    /// Starts it again.
    fn start(&mut self, node: usize) -> Result<(), BoxError>;

    /// A short disturbance, typical of its kind, of a server that works; returns its description.
    fn disturb(&mut self, node: usize, rng: &mut Rng) -> Result<String, BoxError>;

    /// What no server may have after the last client has ended; nothing, once all is well.
    fn left(&mut self) -> Result<Vec<String>, BoxError>;

    /// For each name how many guarded transactions were committed, and what the number says that each of them added one to.
    fn books(&mut self) -> Result<String, BoxError> {
        Ok(String::new())
    }

    /// What the servers counted, for the report.
    fn counters(&mut self) -> Result<String, BoxError>;
}
