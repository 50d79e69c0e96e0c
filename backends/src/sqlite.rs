//! The `sqlite` driver, on a file of its own for each case.

use std::fs::File;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::{Connection, OpenFlags};
use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;
use tenure_conformance::{
    BoxError, CaseContext, Declared, Fault, FaultKind, Harness, HarnessMaker, Healer, Inspector, Residue,
};
use tenure_core::driver::Backend;
use tenure_core::{FenceFloor, LockName};
use tenure_sqlite::{SqliteConfig, SqliteDriver};

use crate::defaults::{self, Defaults};

/// Within reach of the cases that fill a queue.
const MAX_WAITERS: u32 = 100;
const MAX_DEPTH: u32 = 50;
/// Few enough to be filled.
const MAX_DEAD_LETTERS: u64 = 200;

/// The backend `sqlite/file`.
#[derive(Clone, Copy, Debug)]
pub struct SqliteMaker;

#[async_trait]
impl HarnessMaker for SqliteMaker {
    fn id(&self) -> &str {
        "sqlite/file"
    }

    /// The driver's defaults, and caps that the suite can reach. The suite compares it with the live driver.
    fn declared(&self) -> Declared {
        let Defaults { locks, reentrant, permits, queue, census } = defaults::sqlite();
        let queue = queue.map(|queue| queue.with_dead_letters(MAX_DEAD_LETTERS));
        let declared =
            Declared::new(locks.with_max_waiters(Some(MAX_WAITERS))).reentrant(reentrant.with_max_depth(MAX_DEPTH));
        let permits = permits.map(|permits| permits.with_max_waiters(Some(MAX_WAITERS)));
        let declared = permits.into_iter().fold(declared, Declared::permits);
        let declared = queue.into_iter().fold(declared, Declared::queue);
        census
            .into_iter()
            .fold(declared, Declared::census)
            .several_processes()
            .past_killed_waiters(Duration::from_millis(500))
            .visible_leftovers()
            .fence_floors()
            .faults([FaultKind::ExpireLease, FaultKind::PauseServer])
    }

    fn server(&self) -> String {
        format!("SQLite {}", rusqlite::version())
    }

    async fn make(&self, _context: CaseContext) -> Result<Box<dyn Harness>, BoxError> {
        let folder = TempDir::new()?;
        let file = folder.path().join("locks.db");
        Ok(Box::new(SqliteHarness { folder, file, opened: Vec::new() }))
    }
}

struct SqliteHarness {
    folder: TempDir,
    file: PathBuf,
    opened: Vec<Backend>,
}

#[async_trait]
impl Harness for SqliteHarness {
    async fn backend(&mut self) -> Result<Backend, BoxError> {
        self.backend_beyond(FenceFloor::NONE).await
    }

    async fn backend_beyond(&mut self, floor: FenceFloor) -> Result<Backend, BoxError> {
        let config = SqliteConfig::new(&self.file)?
            .max_waiters(MAX_WAITERS)?
            .max_depth(MAX_DEPTH)?
            .max_dead_letters(MAX_DEAD_LETTERS)?;
        let backend = Backend::from(SqliteDriver::connect_with(config.fence_floor(floor)).await?);
        self.opened.push(backend.clone());
        Ok(backend)
    }

    async fn inject(&mut self, fault: Fault) -> Result<Healer, BoxError> {
        match fault {
            Fault::ExpireLease(name) => {
                let db = Connection::open(&self.file)?;
                db.busy_timeout(Duration::from_secs(5))?;
                let ended = db.execute("UPDATE hold SET until = since WHERE name = ?1", [name.as_bytes()])?;
                if ended == 1 { Ok(Healer::nothing()) } else { Err("no client holds the lock".into()) }
            }
            Fault::PauseServer => {
                // Writers wait behind the gate.
                let mut gate = self.file.clone().into_os_string();
                gate.push("-gate");
                let gate = File::options().write(true).open(gate)?;
                flock(&gate, FlockOperation::LockExclusive)?;
                Ok(Healer::new(async move { Ok(flock(&gate, FlockOperation::Unlock)?) }))
            }
            other => Err(format!("a file cannot {other:?}").into()),
        }
    }

    fn inspector(&self) -> Option<Arc<dyn Inspector>> {
        Some(Arc::new(SqliteInspector(self.file.clone())))
    }

    fn worker_command(&self) -> Option<Command> {
        let mut command = Command::new(std::env::current_exe().ok()?);
        let url = format!(
            "sqlite:{}?max_waiters={MAX_WAITERS}&max_depth={MAX_DEPTH}&max_dead_letters={MAX_DEAD_LETTERS}",
            self.file.display()
        );
        command.arg("--worker").arg(url);
        Some(command)
    }

    async fn teardown(self: Box<Self>) -> Result<(), BoxError> {
        for backend in &self.opened {
            backend.locks().close().await;
        }
        Ok(self.folder.close()?)
    }
}

/// A look at the rows, past the driver.
struct SqliteInspector(PathBuf);

impl SqliteInspector {
    fn open(&self) -> Result<Connection, BoxError> {
        let db = Connection::open_with_flags(&self.0, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        db.busy_timeout(Duration::from_secs(5))?;
        Ok(db)
    }
}

#[async_trait]
impl Inspector for SqliteInspector {
    async fn residue(&self, name: &LockName) -> Result<Residue, BoxError> {
        let db = self.open()?;
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let now = time.tv_sec * 1_000_000 + time.tv_nsec / 1_000;
        let count = |rows: &str| -> Result<usize, BoxError> {
            let count = format!("SELECT count(*) FROM {rows} > ?2");
            let count: i64 = db.query_row(&count, (name.as_bytes(), now), |row| row.get(0))?;
            Ok(usize::try_from(count)?)
        };
        Ok(Residue {
            leases: count("hold WHERE name = ?1 AND until")? + count("permit WHERE name = ?1 AND ends")?,
            waiters: count("waiter WHERE name = ?1 AND present")?,
            tombstones: count("grave WHERE name = ?1 AND until")?,
            ..Residue::default()
        })
    }

    async fn names(&self) -> Result<usize, BoxError> {
        let count = "SELECT (SELECT count(*) FROM hold) + (SELECT count(*) FROM permit)";
        let count: i64 = self.open()?.query_row(count, (), |row| row.get(0))?;
        Ok(usize::try_from(count)?)
    }
}
