//! The open file: transactions, and the datagrams that the driver sends after them.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use rustix::fs::FlockOperation;
use tenure_core::driver::{CredibleFences, ErrorExt as _};
use tenure_core::{Error, ErrorKind, FencingToken, Result};

use crate::bell::{Belfry, Bell, Ear, Letter};
use crate::clock::Clock;
use crate::config::{Caps, MakeFolder, SqliteConfig};
use crate::error::{Done, damaged, misconfigured, of_commit, of_sqlite, of_system};
use crate::files::{Files, Paths};
use crate::place::check_place;
use crate::schema;

/// How long a program that locks the file without the gate is waited for.
const BUSY: Duration = Duration::from_millis(500);
/// After so many requests a sweep looks for ended rows, in as many rows of each table.
const SWEEP: i64 = 32;

/// How long the log may become before its commits are moved into the file: a thousand pages, as is SQLite's own default.
const LOG: u64 = 1_000 * (4_096 + 24);

/// The file of one client.
#[derive(Debug)]
pub(crate) struct Store {
    db: Connection,
    /// Writers wait here in turn. SQLite's own lock decides; this one spares its sleeping.
    gate: File,
    paths: Paths,
    files: Files,
    clock: Clock,
    caps: Caps,
    belfry: Arc<Belfry>,
    bell: Arc<Bell>,
    letters: Vec<(i64, Letter)>,
    sweep: Sweep,
    log: Log,
}

/// The log, as it was when commits were last moved into the file.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Log {
    /// In bytes.
    pub(crate) length: u64,
    /// How many of its pages had to stay, since a reader looks at the file as it was before them.
    pub(crate) kept: i64,
    /// Commits are moved after this transaction, however short the log is.
    asked: bool,
}

#[derive(Debug, Default)]
struct Sweep {
    requests: i64,
    name: Vec<u8>,
    permit: Vec<u8>,
    place: i64,
}

/// One request's part of a transaction, at one moment.
pub(crate) struct Turn<'a> {
    pub(crate) db: &'a Connection,
    /// Microseconds of the machine's clock.
    pub(crate) at: i64,
    pub(crate) caps: Caps,
    /// This client.
    pub(crate) client: i64,
    log: &'a mut Log,
    belfry: &'a Belfry,
    letters: &'a mut Vec<(i64, Letter)>,
}

impl Store {
    /// Opens the file and makes it what it has to be.
    pub(crate) fn open(config: &SqliteConfig) -> Result<Self> {
        let clock = Clock::find()?;
        make_folder(&config.path, config.make_folder)?;
        let path = real(&config.path)?;
        check_place(&path)?;
        let paths = Paths::of(&path);
        let gate = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&paths.gate)
            .map_err(|error| of_system(format_args!("open {}", paths.gate.display()), error))?;
        let closed = Gate::close(&gate)?;
        let (belfry, others) = Belfry::open(&paths.main)?;
        if others {
            paths.join(&gate)?;
        }
        match paths.main.exists() {
            true => paths.check_name()?, // before SQLite makes files beside it
            false => make_file(&paths.main)?,
        }
        let db = open_database(&paths.main)?;
        paths.check_name()?;
        db.execute_batch("BEGIN IMMEDIATE").map_err(of_sqlite)?;
        schema::prepare(&db, &clock, config.fence_floor, others).map_err(Error::from)?;
        db.execute_batch("COMMIT").map_err(of_commit)?;
        let files = paths.files()?;
        if !others {
            paths.note(&files, &gate)?;
        }
        let belfry = Arc::new(belfry);
        let bell = Arc::new(Bell::hang(Arc::clone(&belfry))?);
        drop(closed);
        let (caps, letters, sweep, log) = (config.caps, Vec::new(), Sweep::default(), Log::default());
        Ok(Self { db, gate, paths, files, clock, caps, belfry, bell, letters, sweep, log })
    }

    pub(crate) fn bell(&self) -> Arc<Bell> {
        Arc::clone(&self.bell)
    }

    /// Runs the queued requests as one transaction. The letters go out after it.
    pub(crate) fn transact(&mut self, work: impl FnOnce(&mut Self)) -> Result<()> {
        let gate = self.gate.try_clone().map_err(|error| of_system("reach the gate", error))?;
        let closed = Gate::close(&gate)?;
        self.paths.check(&self.files, &self.gate)?;
        let before = self.db.total_changes();
        self.db.execute_batch("BEGIN IMMEDIATE").map_err(of_sqlite)?;
        work(self);
        let ended = self.sweep().and_then(|()| Ok(self.db.execute_batch("COMMIT").map_err(of_commit)?));
        if ended.is_err() && !self.db.is_autocommit() {
            drop(self.db.execute_batch("ROLLBACK")); // if that fails too, the next BEGIN tells
        }
        let asked = std::mem::take(&mut self.log.asked);
        if ended.is_ok() && (asked || (self.db.total_changes() > before && self.paths.log_length() > LOG)) {
            self.checkpoint();
        }
        drop(closed);
        let letters = std::mem::take(&mut self.letters);
        if ended.is_ok() {
            for (client, letter) in letters {
                match client == self.bell.client {
                    true => self.bell.ring(&letter),
                    false => self.belfry.send(client, &letter),
                }
            }
        }
        ended.map_err(Error::from)
    }

    /// Moves commits from the log into the file. The gate is closed, and its file says that this library writes.
    ///
    /// The transaction before is committed, and its requests are answered, whether this succeeds or not: the next transaction that writes
    /// tries again.
    fn checkpoint(&mut self) {
        if self.paths.begin_checkpoint(&self.gate).is_ok() {
            let fence = self.db.query_row("SELECT fence FROM machine", [], |row| row.get::<_, i64>(0));
            // While another program moves commits, SQLite moves none, reports busy, and its counts are -1.
            let kept = |row: &rusqlite::Row<'_>| {
                let (busy, frames, moved): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
                Ok((busy == 0 && frames >= 0).then_some(frames - moved))
            };
            let kept = self.db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], kept).ok().flatten();
            let fence = fence.ok().filter(|_| kept == Some(0)).map(i64::cast_unsigned);
            drop(self.paths.end_checkpoint(&self.gate, fence));
            (self.log.length, self.log.kept) = (self.paths.log_length(), kept.unwrap_or(self.log.kept));
        }
    }

    /// One request inside a transaction: wholly done, or not at all.
    pub(crate) fn part<T>(&mut self, work: impl FnOnce(&mut Turn<'_>) -> Done<T>) -> Result<T> {
        if self.db.is_autocommit() {
            let text = "a request before this one in the same transaction made the database roll it back";
            return Err(Error::new(ErrorKind::Unavailable, text));
        }
        self.sweep.requests += 1;
        let written = self.letters.len();
        let mut turn = Turn {
            db: &self.db,
            at: self.clock.now(),
            caps: self.caps,
            client: self.bell.client,
            log: &mut self.log,
            belfry: &self.belfry,
            letters: &mut self.letters,
        };
        let whole = || -> Done<T> {
            self.db.execute_batch("SAVEPOINT part")?;
            let answer = work(&mut turn)?;
            self.db.execute_batch("RELEASE part")?;
            Ok(answer)
        };
        let done = whole();
        if done.is_err() {
            self.letters.truncate(written);
            if !self.db.is_autocommit() {
                // A full disk may have rolled back everything.
                self.db.execute_batch("ROLLBACK TO part; RELEASE part").map_err(of_sqlite)?;
            }
        }
        done.map_err(Error::from)
    }

    /// Deletes ended rows, a few at a time.
    fn sweep(&mut self) -> Done<()> {
        if self.sweep.requests < SWEEP {
            return Ok(());
        }
        let (db, at) = (&self.db, self.clock.now());
        let rows = self.sweep.requests;
        self.sweep.requests = 0;
        let names = "SELECT name FROM hold WHERE name > ?1 ORDER BY name LIMIT ?2";
        let names: Vec<Vec<u8>> = collect(db, names, (&self.sweep.name, rows))?;
        let mut forget = db.prepare_cached("DELETE FROM hold WHERE name = ?1 AND until <= ?2")?;
        for name in &names {
            forget.execute((name, at))?;
        }
        self.sweep.name = names.last().cloned().unwrap_or_default();
        let names = "SELECT DISTINCT name FROM permit WHERE name > ?1 ORDER BY name LIMIT ?2";
        let names: Vec<Vec<u8>> = collect(db, names, (&self.sweep.permit, rows))?;
        let mut forget = db.prepare_cached("DELETE FROM permit WHERE name = ?1 AND ends <= ?2")?;
        for name in &names {
            forget.execute((name, at))?;
        }
        self.sweep.permit = names.last().cloned().unwrap_or_default();
        let places = "SELECT place FROM waiter WHERE place > ?1 ORDER BY place LIMIT ?2";
        let places: Vec<i64> = collect(db, places, (self.sweep.place, rows))?;
        let mut forget = db.prepare_cached("DELETE FROM waiter WHERE place = ?1 AND present <= ?2")?;
        for place in &places {
            forget.execute((place, at))?;
        }
        self.sweep.place = places.last().copied().unwrap_or_default();
        // They are numbered in the order in which they end.
        let graves =
            "DELETE FROM grave WHERE until <= ?1 AND number IN (SELECT number FROM grave ORDER BY number LIMIT ?2)";
        db.prepare_cached(graves)?.execute((at, rows))?;
        let settled = "DELETE FROM settled WHERE (queue, name) IN \
                       (SELECT queue, name FROM settled WHERE until <= ?1 ORDER BY until LIMIT ?2)";
        db.prepare_cached(settled)?.execute((at, rows))?;
        db.prepare_cached("DELETE FROM watcher WHERE until <= ?1")?.execute([at])?;
        db.prepare_cached("UPDATE machine SET wall_ahead = ?1")?.execute([self.clock.wall_ahead()])?;
        Ok(())
    }
}

/// The last client that closes the file moves all commits into it, and SQLite removes the log.
impl Drop for Store {
    fn drop(&mut self) {
        let Ok(_closed) = Gate::close(&self.gate) else { return };
        if !self.belfry.others(self.bell.client)
            && let Ok(nothing) = Connection::open_in_memory()
        {
            drop(self.db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false));
            drop(std::mem::replace(&mut self.db, nothing));
        }
    }
}

impl Turn<'_> {
    /// Whether the client can receive letters.
    pub(crate) fn ear(&self, client: i64) -> Ear {
        if client == self.client { Ear::Open } else { self.belfry.ear(client) }
    }

    /// Asks for commits to be moved from the log into the file after this transaction.
    pub(crate) fn move_log(&mut self) {
        self.log.asked = true;
    }

    /// The log, as it was when commits were last moved.
    pub(crate) fn log(&self) -> Log {
        *self.log
    }

    /// Sends a client a letter once the transaction is committed.
    pub(crate) fn signal(&mut self, client: i64, letter: Letter) {
        self.letters.push((client, letter));
    }
}

/// The first of so many consecutive fences, greater than any before.
pub(crate) fn fences(db: &Connection, count: u32) -> Done<FencingToken> {
    let mut raise = db.prepare_cached("UPDATE machine SET fence = fence + ?1 RETURNING fence - ?1 + 1")?;
    let first: i64 = raise.query_row([count], |row| row.get(0))?;
    let first = u64::try_from(first).ok().and_then(FencingToken::new);
    match first.filter(|first| CredibleFences::now().contain(*first)) {
        Some(first) => Ok(first),
        None => Err(damaged("the counter of fences is not credible: table machine, column fence").into()),
    }
}

/// All rows of one column.
fn collect<T: rusqlite::types::FromSql>(db: &Connection, look: &str, by: impl rusqlite::Params) -> Done<Vec<T>> {
    let mut look = db.prepare_cached(look)?;
    let rows = look.query_map(by, |row| row.get(0))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// The gate, closed behind us until this ends.
struct Gate<'a>(&'a File);

impl<'a> Gate<'a> {
    fn close(gate: &'a File) -> Result<Self> {
        loop {
            match rustix::fs::flock(gate.as_fd(), FlockOperation::LockExclusive) {
                Ok(()) => return Ok(Self(gate)),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(of_system("close the gate", error.into())),
            }
        }
    }
}

impl Drop for Gate<'_> {
    fn drop(&mut self) {
        let _ = rustix::fs::flock(self.0.as_fd(), FlockOperation::Unlock); // it ends with the process at the latest
    }
}

fn open_database(path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let shown = path.display();
    let db = Connection::open_with_flags(path, flags).map_err(|error| of_sqlite(error).at(&shown))?;
    let set_up = || -> Result<()> {
        db.busy_timeout(BUSY).map_err(of_sqlite)?;
        db.set_prepared_statement_cache_capacity(128);
        schema::check(&db)?;
        db.execute_batch("BEGIN IMMEDIATE; ROLLBACK").map_err(of_sqlite)?;
        let set = |db: &Connection| db.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0));
        let mode: String = set(&db).map_err(of_sqlite)?;
        if mode != "wal" {
            return Err(misconfigured(format!(
                "the file system supports no write-ahead log: the journal stays {mode}"
            )));
        }
        // A process that opens and closes the file elsewhere in its code loses SQLite's locks on it. Another process that closes its
        // client then counts itself as the last one, and SQLite would remove the log.
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(of_sqlite)?;
        db.query_row("PRAGMA wal_autocheckpoint = 0", [], |_| Ok(())).map_err(of_sqlite)?;
        db.query_row("PRAGMA journal_size_limit = 0", [], |_| Ok(())).map_err(of_sqlite)?;
        db.pragma_update(None, "synchronous", "NORMAL").map_err(of_sqlite)
    };
    set_up().map_err(|error| error.at(&shown))?;
    Ok(db)
}

fn make_folder(path: &Path, make: MakeFolder) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt;

    match path.parent() {
        Some(folder) if make == MakeFolder::Yes => {
            let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
            made.map_err(|error| of_system(format_args!("make the folder {}", folder.display()), error))
        }
        _ => Ok(()),
    }
}

/// The path without symbolic links. The files beside it have to have the same names, whatever name the file was opened by.
fn real(path: &Path) -> Result<PathBuf> {
    let failed = |path: &Path, error| of_system(format_args!("look at {}", path.display()), error);
    match (path.canonicalize(), path.parent(), path.file_name()) {
        (Err(error), Some(folder), Some(name)) if error.kind() == std::io::ErrorKind::NotFound => {
            match path.read_link() {
                Ok(target) => real(&folder.join(target)),
                Err(_) => Ok(folder.canonicalize().map_err(|error| failed(folder, error))?.join(name)),
            }
        }
        (found, ..) => found.map_err(|error| failed(path, error)),
    }
}

/// Makes the file with the rights that the umask leaves. SQLite would let only its owner write, and gives the files beside it
/// the rights of this one.
fn make_file(path: &Path) -> Result<()> {
    let made = File::options().write(true).create(true).truncate(false).open(path);
    made.map(drop).map_err(|error| of_system(format_args!("make {}", path.display()), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A full disk is what SQLite makes of a file that may not grow.
    #[test]
    fn a_full_disk_is_an_outage_that_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(&SqliteConfig::new(folder.path().join("locks.db")).unwrap()).unwrap();
        let pages = |store: &Store, most: i64| {
            store.db.pragma_update_and_check(None, "max_page_count", most, |row| row.get::<_, i64>(0)).unwrap()
        };
        let fill = |store: &mut Store, bytes: usize| {
            let (mut filled, mut next) = (None, None);
            let bury = "INSERT INTO grave (name, token, until) VALUES (zeroblob(?1), '', 0)";
            let ended = store.transact(|store| {
                filled = Some(store.part(|turn| Ok(turn.db.execute(bury, [bytes])?)));
                next = Some(store.part(|turn| Ok(turn.at)));
            });
            (filled.unwrap(), next.unwrap(), ended)
        };
        let now = pages(&store, 1); // not below what there is
        pages(&store, now + 2);
        let (filled, next, ended) = fill(&mut store, 1_000_000);
        assert_eq!(filled.unwrap_err().kind(), ErrorKind::Unavailable);
        assert_eq!(next.is_ok(), ended.is_ok(), "a request in the same transaction gets its outcome");
        pages(&store, 1_000_000);
        let (filled, next, ended) = fill(&mut store, 1_000_000);
        assert!(filled.is_ok() && next.is_ok() && ended.is_ok());
        let graves: i64 = store.db.query_row("SELECT count(*) FROM grave", [], |row| row.get(0)).unwrap();
        assert_eq!(graves, 1);
    }
}
