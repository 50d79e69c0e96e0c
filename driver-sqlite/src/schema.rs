//! The checks of an existing file, and the creation of a new one.

use rusqlite::Connection;
use tenure_core::{FenceFloor, Result};

use crate::clock::Clock;
use crate::error::{Done, damaged, misconfigured, of_sqlite};

/// Distinguishes a file of this library from other databases: `tenu`.
const APPLICATION: i64 = 0x7465_6e75;
/// The version of the tables. A newer library may write a greater one.
const VERSION: i64 = 2;

const TABLES: &str = "
CREATE TABLE machine (
  one INTEGER PRIMARY KEY CHECK (one = 1), boot TEXT NOT NULL, wall_ahead INTEGER NOT NULL, fence INTEGER NOT NULL
) STRICT;
CREATE TABLE hold (
  name BLOB PRIMARY KEY, owner TEXT, entries BLOB NOT NULL, fence INTEGER NOT NULL, since INTEGER NOT NULL,
  until INTEGER NOT NULL, label TEXT, handed INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE waiter (
  place INTEGER PRIMARY KEY AUTOINCREMENT, name BLOB NOT NULL, token TEXT NOT NULL, client INTEGER NOT NULL,
  present INTEGER NOT NULL, ttl INTEGER NOT NULL, fences INTEGER NOT NULL, direct INTEGER NOT NULL, label TEXT,
  UNIQUE (name, token)
) STRICT;
CREATE INDEX waiter_turn ON waiter (name, place);
CREATE TABLE grave (
  number INTEGER PRIMARY KEY AUTOINCREMENT, name BLOB NOT NULL, token TEXT NOT NULL, until INTEGER NOT NULL,
  UNIQUE (name, token)
) STRICT;
CREATE TABLE message (
  number INTEGER PRIMARY KEY AUTOINCREMENT, queue BLOB NOT NULL, state INTEGER NOT NULL, at INTEGER NOT NULL,
  name BLOB, window INTEGER NOT NULL, payload BLOB NOT NULL, pushed INTEGER NOT NULL, attempt INTEGER NOT NULL,
  attempts INTEGER NOT NULL, cause INTEGER NOT NULL, fence INTEGER NOT NULL, key BLOB, lock BLOB, turn_lock BLOB,
  turn_token TEXT, turn_fence INTEGER, reason TEXT, expires INTEGER, recurrence TEXT, doomed INTEGER
) STRICT;
CREATE INDEX message_line ON message (queue, state, at, number);
CREATE UNIQUE INDEX message_name ON message (queue, name) WHERE name IS NOT NULL;
CREATE INDEX message_key ON message (queue, key, state, at, number) WHERE key IS NOT NULL;
CREATE TABLE settled (
  queue BLOB NOT NULL, name BLOB NOT NULL, until INTEGER NOT NULL, PRIMARY KEY (queue, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX settled_until ON settled (until);
CREATE TABLE queue (
  name BLOB PRIMARY KEY, paused INTEGER NOT NULL, in_flight INTEGER NOT NULL, deliveries INTEGER NOT NULL,
  per INTEGER NOT NULL, full_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE watcher (
  queue BLOB NOT NULL, client INTEGER NOT NULL, until INTEGER NOT NULL, PRIMARY KEY (queue, client)
) STRICT, WITHOUT ROWID;
";

/// Since version 2. `ends` is the time at which the record is idle if no request arrives before.
const PERMITS: &str = "
CREATE TABLE permit (
  name BLOB NOT NULL, family TEXT NOT NULL, ends INTEGER NOT NULL, record BLOB NOT NULL, PRIMARY KEY (name, family)
) STRICT, WITHOUT ROWID;
";

/// That the file is ours, or empty. Nothing is written.
pub(crate) fn check(db: &Connection) -> Result<()> {
    let look = |what| db.pragma_query_value(None, what, |row| row.get::<_, i64>(0)).map_err(of_sqlite);
    let (application, version) = (look("application_id")?, look("user_version")?);
    let tables = "SELECT count(*) FROM sqlite_schema";
    let tables: i64 = db.query_row(tables, [], |row| row.get(0)).map_err(of_sqlite)?;
    match (application, version) {
        (0, 0) if tables == 0 => Ok(()),
        (APPLICATION, 1..=VERSION) => Ok(()),
        (APPLICATION, version) if version > VERSION => Err(misconfigured(format!(
            "the tables have version {version}, written by a newer release; this one knows version {VERSION}"
        ))),
        (APPLICATION, version) => Err(damaged(format!("the tables have version {version}, which no release wrote"))),
        _ => Err(misconfigured("the file is the database of another program")),
    }
}

/// Makes the tables if there are none, and voids what belongs to another run of the machine. Inside a transaction.
/// `others` have the file open.
pub(crate) fn prepare(db: &Connection, clock: &Clock, floor: FenceFloor, others: bool) -> Done<()> {
    check(db)?;
    let version: i64 = db.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if version == 0 {
        db.execute_batch(TABLES)?;
        db.pragma_update(None, "application_id", APPLICATION)?;
        db.execute("INSERT INTO machine VALUES (1, '', 0, 0)", [])?;
    }
    if version < VERSION {
        db.execute_batch(PERMITS)?;
        db.pragma_update(None, "user_version", VERSION)?;
    }
    let known = db.query_row("SELECT boot, wall_ahead FROM machine", [], |row| Ok((row.get(0)?, row.get(1)?)));
    let (known, ahead): (String, i64) = known?;
    if known != clock.boot() && others {
        return Err(misconfigured(
            "another process has the file open and sees another boot id (/proc/sys/kernel/random/boot_id), as in a container with one of its \
             own: their leases do not count by the same clock",
        )
        .into());
    }
    if known != clock.boot() {
        // All holders and waiters died with that run.
        db.execute_batch(
            "DELETE FROM hold; DELETE FROM permit; DELETE FROM waiter; DELETE FROM grave; DELETE FROM watcher;",
        )?;
        // The clock began anew. Between two runs messages go by the wall clock.
        let shift = ahead - clock.wall_ahead();
        let moved = "UPDATE message SET at = at + ?1, pushed = pushed + ?1, expires = expires + ?1";
        db.execute(moved, [shift])?;
        db.execute("UPDATE settled SET until = until + ?1", [shift])?;
        db.execute("UPDATE queue SET full_at = 0", [])?;
        db.execute("UPDATE machine SET boot = ?1", [clock.boot()])?;
    }
    db.execute("UPDATE machine SET wall_ahead = ?1", [clock.wall_ahead()])?;
    // The wall clock as well: a power cut may have taken the last grants away, and others may have been made elsewhere.
    let floor = floor.max(FenceFloor::now());
    db.execute("UPDATE machine SET fence = max(fence, ?1)", [floor.get().cast_signed()])?;
    Ok(())
}
