//! Databases: ours, what they offer as a lock, and what programs write by hand.

mod files;
mod mysql;
mod postgres;

pub(super) use files::{BareFile, FileLock, Sqlite, SqliteEachAsks};
pub(super) use mysql::{BareMysqlRow, Mysql, NamedLock};
pub(super) use postgres::{BareRow, Postgres, PostgresEachAsks, SessionLock, SqlxLock, notify, postgres, url};

pub(super) use files::sqlite;
