//! Between processes of one machine: ours on SQLite, a bare row of it, and locks of files.

use std::fs::File;
use std::time::Duration;

use fs4::{FileExt, TryLockError};
use rusqlite::Connection;
use tenure_core::Client;
use tenure_core::driver::Backend;
use tenure_sqlite::SqliteDriver;

use super::super::ours::{OurLane, client_of};
use super::super::subject::{Lane, Subject};
use crate::failure::Outcome;
use crate::job::Job;

/// What programs do while the file is locked.
const PERIOD: Duration = Duration::from_millis(5);

pub(crate) async fn sqlite(job: &Job) -> Outcome<Backend> {
    Ok(SqliteDriver::connect(&format!("sqlite:{}/ours.db", job.path)).await?.into())
}

client_of!(
    /// The SQLite driver.
    Sqlite,
    sqlite
);

/// The same, and every waiter asks for itself.
pub(crate) struct SqliteEachAsks(Client);

impl Subject for SqliteEachAsks {
    type Lane = OurLane;

    async fn open(job: &Job) -> Outcome<Self> {
        Ok(Self(Client::builder(sqlite(job).await?).holders_per_grant(0).build()?))
    }

    async fn lane(&self, name: &str) -> Outcome<OurLane> {
        OurLane::new(&self.0, name)
    }
}

/// A row of a token and a time, written by the thread that asks: no fence, and no order of waiters.
pub(crate) struct BareFile {
    path: String,
}

impl Subject for BareFile {
    type Lane = BareFileLane;

    async fn open(job: &Job) -> Outcome<Self> {
        Ok(Self { path: format!("{}/bare.db", job.path) })
    }

    async fn lane(&self, name: &str) -> Outcome<BareFileLane> {
        let db = Connection::open(&self.path)?;
        db.busy_timeout(Duration::from_secs(5))?;
        db.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
        db.execute_batch(
            "PRAGMA synchronous = NORMAL;
             CREATE TABLE IF NOT EXISTS bare (name TEXT PRIMARY KEY, token TEXT, until INTEGER) WITHOUT ROWID",
        )?;
        db.execute("INSERT OR IGNORE INTO bare (name, until) VALUES (?1, 0)", [name])?;
        Ok(BareFileLane { db, name: name.to_owned(), token: format!("{:x}", fastrand::u128(..)) })
    }
}

pub(crate) struct BareFileLane {
    db: Connection,
    name: String,
    token: String,
}

impl BareFileLane {
    fn write(&self, statement: &str) -> Outcome<usize> {
        Ok(self.db.prepare_cached(statement)?.execute([&self.name, &self.token])?)
    }
}

impl Lane for BareFileLane {
    type Held = ();

    async fn take(&mut self) -> Outcome<((), u64)> {
        let take = "UPDATE bare SET token = ?2, until = unixepoch() + 30
                    WHERE name = ?1 AND (token IS NULL OR until < unixepoch())";
        while self.write(take)? == 0 {
            tokio::time::sleep(PERIOD).await;
        }
        Ok(((), 0))
    }

    async fn give(&mut self, (): ()) -> Outcome {
        match self.write("UPDATE bare SET token = NULL WHERE name = ?1 AND token = ?2")? {
            1 => Ok(()),
            _ => Err("not given back".into()),
        }
    }
}

/// `flock` by `fs4`: tried every 5 ms, since to wait in it would block the thread. No lease, no fence; ends with the process.
pub(crate) struct FileLock {
    folder: String,
}

impl Subject for FileLock {
    type Lane = FileLane;

    async fn open(job: &Job) -> Outcome<Self> {
        Ok(Self { folder: job.path.clone() })
    }

    async fn lane(&self, name: &str) -> Outcome<FileLane> {
        let path = format!("{}/{}.lock", self.folder, name.replace('/', "-"));
        Ok(FileLane(File::options().create(true).truncate(false).write(true).open(path)?))
    }
}

pub(crate) struct FileLane(File);

impl Lane for FileLane {
    type Held = ();

    async fn take(&mut self) -> Outcome<((), u64)> {
        loop {
            match FileExt::try_lock(&self.0) {
                Ok(()) => return Ok(((), 0)),
                Err(TryLockError::WouldBlock) => tokio::time::sleep(PERIOD).await,
                Err(TryLockError::Error(error)) => return Err(error.into()),
            }
        }
    }

    async fn give(&mut self, (): ()) -> Outcome {
        Ok(FileExt::unlock(&self.0)?)
    }
}
