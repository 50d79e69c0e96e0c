//! A file instead of a server: faults block its users.

use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use rustix::fs::{FlockOperation, flock};
use rustix::time::{ClockId, clock_gettime};
use tempfile::TempDir;
use tenure_conformance::{BoxError, Rng};

use super::Servers;

/// For a lock that another process may hold.
const PATIENCE: Duration = Duration::from_millis(200);

/// A file in a folder of its own.
pub(crate) struct SqliteFile {
    folder: TempDir,
    /// While a process is stopped in the middle of a transaction.
    gate: Option<File>,
    /// While another program, which knows nothing of the gate, keeps the file locked.
    stranger: Option<Connection>,
}

impl SqliteFile {
    pub(crate) fn new() -> Result<Self, BoxError> {
        Ok(Self { folder: TempDir::new()?, gate: None, stranger: None })
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("locks.db")
    }

    /// A connection past the driver.
    fn raw(&self) -> Result<Connection, BoxError> {
        let db = Connection::open(self.path())?;
        db.busy_timeout(Duration::from_secs(5))?;
        Ok(db)
    }
}

impl Servers for SqliteFile {
    /// There is no listener: the clients use the URL.
    fn ports(&self) -> Vec<u16> {
        vec![1]
    }

    fn url(&self) -> Option<String> {
        Some(format!("sqlite:{}", self.path().display()))
    }

    fn leader(&self) -> Option<usize> {
        None
    }

    fn stop(&mut self, _node: usize) -> Result<(), BoxError> {
        let gate =
            File::options().create(true).truncate(false).write(true).open(self.folder.path().join("locks.db-gate"))?;
        // A client that is stopped behind the gate keeps it, and would never continue if this waited for it.
        let deadline = Instant::now() + PATIENCE;
        while flock(&gate, FlockOperation::NonBlockingLockExclusive).is_err() {
            if Instant::now() > deadline {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.gate = Some(gate);
        Ok(())
    }

    fn go_on(&mut self, _node: usize) -> Result<(), BoxError> {
        self.gate = None; // closing it opens the way
        Ok(())
    }

    fn kill(&mut self, _node: usize) -> Result<(), BoxError> {
        let stranger = self.raw()?;
        stranger.busy_timeout(PATIENCE)?;
        // A client that is stopped in the middle of a transaction does the same.
        self.stranger = stranger.execute_batch("BEGIN IMMEDIATE").is_ok().then_some(stranger);
        Ok(())
    }

    fn start(&mut self, _node: usize) -> Result<(), BoxError> {
        self.stranger = None;
        Ok(())
    }

    /// Others look at the file and clean it up. A conflict makes that fail, which is not an error here.
    fn disturb(&mut self, _node: usize, rng: &mut Rng) -> Result<String, BoxError> {
        let (how, what) = [
            ("checkpoint", "PRAGMA wal_checkpoint(TRUNCATE)"),
            ("vacuum", "VACUUM"),
            ("backup", "SELECT count(*) FROM hold; SELECT count(*) FROM message"),
        ][rng.below(3) as usize];
        let db = Connection::open(self.path())?;
        db.busy_timeout(Duration::from_millis(200))?;
        let mut outcome = Ok(());
        for statement in what.split("; ") {
            outcome = outcome.and_then(|()| db.query_row(statement, [], |_| Ok(())).or_else(empty_is_fine));
        }
        Ok(outcome.map_or_else(|error| format!("{how} that failed ({error})"), |()| how.into()))
    }

    fn left(&mut self) -> Result<Vec<String>, BoxError> {
        let db = self.raw()?;
        let time = clock_gettime(ClockId::Boottime);
        let now = time.tv_sec * 1_000_000 + time.tv_nsec / 1_000;
        let mut left = Vec::new();
        for (what, rows) in [("holds", "hold WHERE until"), ("waiters", "waiter WHERE present")] {
            let count: i64 = db.query_row(&format!("SELECT count(*) FROM {rows} > ?1"), [now], |row| row.get(0))?;
            left.extend((count > 0).then(|| format!("{count} {what}")));
        }
        let whole: String = db.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
        left.extend((whole != "ok").then(|| format!("a database that is damaged: {whole}")));
        Ok(left)
    }

    fn counters(&mut self) -> Result<String, BoxError> {
        let pages: i64 = self.raw()?.query_row("PRAGMA page_count", [], |row| row.get(0))?;
        Ok(format!("the file has {pages} pages"))
    }
}

fn empty_is_fine(error: rusqlite::Error) -> rusqlite::Result<()> {
    if error == rusqlite::Error::QueryReturnedNoRows { Ok(()) } else { Err(error) }
}
