//! What is said when the file is not what it should be, and what becomes of those who use it.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tempfile::TempDir;
use tenure_core::{Client, Error, ErrorKind, FenceFloor, Lock};
use tenure_sqlite::{SqliteConfig, SqliteDriver};

fn file(folder: &TempDir) -> PathBuf {
    folder.path().join("locks.db")
}

async fn open(path: &Path) -> Result<SqliteDriver, Error> {
    SqliteDriver::connect_with(SqliteConfig::new(path)?).await
}

async fn client(path: &Path) -> Client {
    Client::new(open(path).await.unwrap())
}

/// Why the file is not opened.
async fn refused(path: &Path) -> (ErrorKind, String) {
    let error = open(path).await.unwrap_err();
    (error.kind(), format!("{error:#}"))
}

async fn acquired(lock: &Lock) -> Result<u64, Error> {
    let guard = lock.acquire_within(Duration::from_secs(5)).await?;
    let fence = guard.fence().get();
    guard.release().await?;
    Ok(fence)
}

#[tokio::test]
async fn a_file_that_is_deleted_or_replaced_is_noticed_before_anything_is_granted() {
    for replaced in [false, true] {
        let folder = TempDir::new().unwrap();
        let client = client(&file(&folder)).await;
        acquired(&client.lock("a")).await.unwrap();
        std::fs::remove_file(file(&folder)).unwrap();
        if replaced {
            // Clients of the old file may hold locks.
            std::fs::write(file(&folder), b"").unwrap();
            let (kind, text) = refused(&file(&folder)).await;
            assert!(kind == ErrorKind::Misconfigured && text.contains("removed or replaced"), "{text}");
        }
        let error = client.lock("a").try_acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error:?}");
        assert!(error.to_string().contains("deleted or replaced"), "{error}");
        ended(client, &folder).await;
        acquired(&self::client(&file(&folder)).await.lock("a")).await.unwrap();
    }
}

/// Runs a test of this module in another process, which this variable tells to take the other part.
fn passes(mut program: Command, test: &str, (variable, path): (&str, &Path)) {
    let output = program.args(["--exact", &format!("bad_days::{test}")]).env(variable, path).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

/// A shell with mounts that no other process sees, which runs this script.
fn with_mounts_of_its_own(script: &str) -> Command {
    let flags = if std::fs::metadata("/proc/self").unwrap().uid() == 0 { "-m" } else { "-rm" };
    let mut shell = Command::new("unshare");
    shell.args([flags, "sh", "-c", script]);
    shell
}

/// Closes a client; returns when its thread has closed the file.
async fn ended(client: Client, folder: &TempDir) {
    client.close(Duration::from_secs(5)).await.unwrap();
    drop(client);
    let bells = folder.path().join("locks.db-bells");
    while std::fs::read_dir(&bells).unwrap().count() > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A process that opens and closes the file itself loses SQLite's locks on it. Another process that closes its client then must not
/// count itself as the last one and remove the log.
#[tokio::test]
async fn a_holder_whose_process_reads_the_file_stays_the_only_one() {
    const PATH: &str = "TENURE_TEST_SECOND_PROCESS";
    if let Some(path) = std::env::var_os(PATH) {
        let client = client(Path::new(&path)).await;
        assert!(client.lock("held").try_acquire().await.unwrap().is_none(), "granted beside the holder");
        acquired(&client.lock("other")).await.unwrap();
        return client.close(Duration::from_secs(5)).await.unwrap();
    }
    let folder = TempDir::new().unwrap();
    let client = client(&file(&folder)).await;
    let held = client.lock("held").ttl(Duration::from_secs(60)).acquire().await.unwrap();
    for _ in 0..3 {
        drop(std::fs::read(file(&folder)).unwrap());
        let program = Command::new(std::env::current_exe().unwrap());
        passes(program, "a_holder_whose_process_reads_the_file_stays_the_only_one", (PATH, &file(&folder)));
    }
    acquired(&client.lock("mine")).await.unwrap();
    held.release().await.unwrap();
}

#[tokio::test]
async fn files_beside_it_that_are_removed_are_noticed_before_anything_is_granted() {
    for removed in [&["-wal"][..], &["-shm"], &["-wal", "-shm"], &["-bells"]] {
        let folder = TempDir::new().unwrap();
        let client = client(&file(&folder)).await;
        let held = client.lock("held").ttl(Duration::from_secs(60)).acquire().await.unwrap();
        for end in removed {
            let path = folder.path().join(format!("locks.db{end}"));
            if *end == "-bells" { std::fs::remove_dir_all(path).unwrap() } else { std::fs::remove_file(path).unwrap() }
        }
        if *removed != ["-bells"] {
            let (kind, text) = refused(&file(&folder)).await;
            assert!(kind == ErrorKind::Misconfigured && text.contains("removed or replaced"), "{removed:?}: {text}");
        }
        let error = held.extend(Duration::from_secs(60)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{removed:?}: {error}");
    }
}

#[tokio::test]
async fn an_old_copy_that_is_written_over_the_file_grants_nothing() {
    let folder = TempDir::new().unwrap();
    ended(client(&file(&folder)).await, &folder).await;
    let copy = std::fs::read(file(&folder)).unwrap();
    let client = client(&file(&folder)).await;
    let held = client.lock("held").ttl(Duration::from_secs(60)).acquire().await.unwrap();
    let before = std::fs::metadata(file(&folder)).unwrap().len();
    let queue = client.queue_of_bytes("jobs").unwrap();
    while std::fs::metadata(file(&folder)).unwrap().len() == before {
        queue.push(&vec![0; 1 << 20]).await.unwrap(); // until the log is moved into the file
    }
    std::fs::write(file(&folder), copy).unwrap();
    let (kind, text) = refused(&file(&folder)).await;
    assert!(kind == ErrorKind::Misconfigured && text.contains("an older state was written over"), "{text}");
    let error = held.extend(Duration::from_secs(60)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
}

/// A program that moves commits into the file keeps others from it: what this client notes then must not be more than the
/// file has, or it takes its own state for an older one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_program_that_checkpoints_all_the_time_is_no_old_copy() {
    let folder = TempDir::new().unwrap();
    let driver = open(&file(&folder)).await.unwrap();
    let client = Client::builder(driver).op_timeout(Duration::from_secs(20)).build().unwrap();
    let queue = client.queue_of_bytes("jobs").unwrap();
    let until = Instant::now() + Duration::from_secs(3);
    let path = file(&folder);
    let other = std::thread::spawn(move || {
        let mut count = 0;
        while Instant::now() < until {
            let db = Connection::open(&path).unwrap();
            db.busy_timeout(Duration::from_millis(200)).unwrap();
            count += u32::from(db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).is_ok());
        }
        count
    });
    let mut last = 0;
    while Instant::now() < until {
        // More than the length from which this client moves commits itself.
        queue.push_many(&vec![vec![0; 900_000]; 6]).await.unwrap();
        queue.admin().purge().await.unwrap();
        // The file looks written to by another program, and has the content of the last checkpoint.
        assert!(Command::new("touch").arg(file(&folder)).status().unwrap().success());
        let fence = acquired(&client.lock("a")).await.unwrap();
        assert!(fence > last);
        last = fence;
    }
    assert!(other.join().unwrap() > 10, "it did not checkpoint");
}

/// What administrators do with a file that is in use: nobody is told of an old copy, and the state is what it was.
#[tokio::test]
async fn another_program_may_checkpoint_and_vacuum_the_file() {
    let folder = TempDir::new().unwrap();
    let first = client(&file(&folder)).await;
    let held = first.lock("held").ttl(Duration::from_secs(60)).acquire().await.unwrap();
    for statements in ["PRAGMA wal_checkpoint(TRUNCATE)", "VACUUM", "VACUUM; PRAGMA wal_checkpoint(TRUNCATE)"] {
        let other = Connection::open(file(&folder)).unwrap();
        other.busy_timeout(Duration::from_secs(10)).unwrap();
        other.execute_batch(statements).unwrap();
        drop(other);
        let second = client(&file(&folder)).await;
        assert!(second.lock("held").try_acquire().await.unwrap().is_none(), "{statements}: granted beside the holder");
        acquired(&second.lock("mine")).await.unwrap();
        held.extend(Duration::from_secs(60)).await.unwrap();
        second.close(Duration::from_secs(5)).await.unwrap();
    }
    held.release().await.unwrap();
}

/// While another program moves commits into the file, its pages are of two states: the table that the schema names may be elsewhere.
#[tokio::test]
async fn a_file_that_is_half_written_by_another_program_is_no_older_state() {
    let folder = TempDir::new().unwrap();
    let client = client(&file(&folder)).await;
    client.queue_of_bytes("jobs").unwrap().push_bytes(b"later").delay(Duration::from_secs(60)).await.unwrap();
    let other = Connection::open(file(&folder)).unwrap();
    other.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    let root = "SELECT rootpage FROM sqlite_schema WHERE name = 'message'";
    let message: u8 = other.query_row(root, [], |row| row.get(0)).unwrap();
    drop(other);
    acquired(&client.lock("before")).await.unwrap();
    let whole = std::fs::read(file(&folder)).unwrap();
    let named = b"tablemachinemachine";
    let at = whole.windows(named.len()).position(|bytes| bytes == named).unwrap() + named.len();
    let patch = |byte: u8| {
        let main = std::fs::OpenOptions::new().write(true).open(file(&folder)).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&main, &[byte], at as u64).unwrap();
    };
    patch(message);
    acquired(&client.lock("meanwhile")).await.unwrap();
    patch(whole[at]);
    acquired(&client.lock("after")).await.unwrap();
}

/// The log is moved into the file every thousand pages, which is no writing of others.
#[tokio::test]
async fn the_log_is_moved_into_the_file_while_it_is_in_use() {
    let folder = TempDir::new().unwrap();
    let (one, other) = (client(&file(&folder)).await, client(&file(&folder)).await);
    let (queue, before) = (one.queue_of_bytes("jobs").unwrap(), std::fs::metadata(file(&folder)).unwrap().len());
    for _ in 0..3 {
        let messages: Vec<_> = (0..100).map(|_| vec![7; 60_000]).collect();
        for message in &messages {
            queue.push(message).await.unwrap();
        }
        acquired(&other.lock("a")).await.unwrap();
    }
    assert!(std::fs::metadata(file(&folder)).unwrap().len() > before + 10_000_000, "it was moved");
    let log = std::fs::metadata(folder.path().join("locks.db-wal")).unwrap().len();
    assert!(log < 8_000_000, "the log has {log} bytes");
}

/// A reader that stays keeps the log. The doctor says so meanwhile, and the log shrinks when the reader has ended.
#[tokio::test]
async fn a_log_that_a_reader_keeps_is_named_and_shrinks_when_the_reader_has_ended() {
    let folder = TempDir::new().unwrap();
    let client = client(&file(&folder)).await;
    let log = || std::fs::metadata(folder.path().join("locks.db-wal")).unwrap().len();
    let named = async || client.doctor().await.unwrap().to_string().contains("write-ahead log");
    let queue = client.queue_of_bytes("jobs").unwrap();
    let fill = async || {
        for _ in 0..30 {
            queue.push(&vec![7; 1_000_000]).await.unwrap();
        }
    };
    fill().await;
    assert!(log() < 8_000_000 && !named().await, "the log has {} bytes without a reader", log());
    let reader = Connection::open(file(&folder)).unwrap();
    reader.execute_batch("BEGIN").unwrap();
    let holds: i64 = reader.query_row("SELECT count(*) FROM hold", [], |row| row.get(0)).unwrap();
    fill().await;
    assert!(holds == 0 && log() > 30_000_000, "the log has {} bytes", log());
    assert!(named().await, "{}", client.doctor().await.unwrap());
    reader.execute_batch("ROLLBACK").unwrap();
    for _ in 0..2 {
        acquired(&client.lock("a")).await.unwrap();
    }
    assert!(log() < 8_000_000 && !named().await, "the log has {} bytes after the reader", log());
}

#[tokio::test]
async fn a_file_with_two_names_is_refused_by_either() {
    let folder = TempDir::new().unwrap();
    let client = client(&file(&folder)).await;
    acquired(&client.lock("a")).await.unwrap();
    let link = folder.path().join("link.db");
    std::fs::hard_link(file(&folder), &link).unwrap();
    let (kind, text) = refused(&link).await;
    assert!(kind == ErrorKind::Misconfigured && text.contains("another name"), "{text}");
    assert_eq!(client.lock("a").try_acquire().await.unwrap_err().kind(), ErrorKind::Misconfigured);
    std::fs::remove_file(&link).unwrap();
    acquired(&client.lock("a")).await.unwrap();
}

/// As a container does that is given the file in place of its folder.
#[tokio::test]
async fn a_file_that_is_mounted_by_itself_is_refused() {
    const PATH: &str = "TENURE_TEST_MOUNTED_FILE";
    if let Some(path) = std::env::var_os(PATH) {
        let (kind, text) = refused(Path::new(&path)).await;
        assert!(kind == ErrorKind::Misconfigured && text.contains("mount the folder"), "{text}");
        return;
    }
    let folder = TempDir::new().unwrap();
    let client = client(&file(&folder)).await;
    let there = folder.path().join("container");
    std::fs::create_dir(&there).unwrap();
    std::fs::write(there.join("locks.db"), b"").unwrap();
    let mut program = with_mounts_of_its_own("mount --bind \"$0\" \"$1\" && shift && exec \"$@\"");
    program.arg(file(&folder)).arg(there.join("locks.db")).arg(std::env::current_exe().unwrap());
    passes(program, "a_file_that_is_mounted_by_itself_is_refused", (PATH, &there.join("locks.db")));
    acquired(&client.lock("a")).await.unwrap();
}

/// Who holds is told at the end of the lease at the latest, and who waits at once or when it asks again.
#[tokio::test]
async fn holders_and_waiters_are_notified_when_the_file_is_gone() {
    let folder = TempDir::new().unwrap();
    let (one, other) = (client(&file(&folder)).await, client(&file(&folder)).await);
    let ttl = Duration::from_secs(1);
    let guard = one.lock("a").ttl(ttl).acquire().await.unwrap();
    let waiter = tokio::spawn(async move { other.lock("a").acquire().await.map(drop) });
    while one.lock("a").inspect().await.unwrap().waiters == 0 {
        tokio::task::yield_now().await;
    }
    std::fs::remove_file(file(&folder)).unwrap();
    tokio::time::timeout(2 * ttl, guard.lost()).await.expect("a lease that cannot be renewed is lost");
    let reported = tokio::time::timeout(Duration::from_secs(10), waiter).await.expect("the waiter is woken").unwrap();
    assert_eq!(reported.unwrap_err().kind(), ErrorKind::Misconfigured);
}

#[tokio::test]
async fn the_database_of_another_program_is_left_as_it_is() {
    let folder = TempDir::new().unwrap();
    let other = Connection::open(file(&folder)).unwrap();
    other.execute_batch("CREATE TABLE song (title TEXT)").unwrap();
    let (kind, text) = refused(&file(&folder)).await;
    assert!(kind == ErrorKind::Misconfigured && text.contains("another program"), "{text}");
    let mode: String = other.query_row("PRAGMA journal_mode", [], |row| row.get(0)).unwrap();
    let tables: i64 = other.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).unwrap();
    assert_eq!((mode.as_str(), tables), ("delete", 1));
}

#[tokio::test]
async fn tables_of_a_newer_release_are_not_touched() {
    let folder = TempDir::new().unwrap();
    drop(open(&file(&folder)).await.unwrap());
    Connection::open(file(&folder)).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let (kind, text) = refused(&file(&folder)).await;
    assert!(kind == ErrorKind::Misconfigured && text.contains("version 99") && text.contains("newer"), "{text}");
}

#[tokio::test]
async fn tables_of_a_version_that_never_was_are_not_touched() {
    let folder = TempDir::new().unwrap();
    drop(open(&file(&folder)).await.unwrap());
    Connection::open(file(&folder)).unwrap().pragma_update(None, "user_version", -1).unwrap();
    let (kind, text) = refused(&file(&folder)).await;
    assert!(kind == ErrorKind::Damaged && text.contains("version -1"), "{text}");
}

#[tokio::test]
async fn a_file_that_is_no_database_is_damaged_and_kept() {
    let folder = TempDir::new().unwrap();
    let letter = "Dear Sir or Madam, this is not a database. ".repeat(100);
    std::fs::write(file(&folder), &letter).unwrap();
    let (kind, text) = refused(&file(&folder)).await;
    assert!(kind == ErrorKind::Damaged && text.contains("locks.db"), "{text}");
    assert_eq!(std::fs::read_to_string(file(&folder)).unwrap(), letter);
}

#[tokio::test]
async fn a_damaged_database_says_so_and_grants_nothing() {
    let folder = TempDir::new().unwrap();
    let driver = open(&file(&folder)).await.unwrap();
    Client::new(driver).close(Duration::from_secs(5)).await.unwrap();
    let mut bytes = std::fs::read(file(&folder)).unwrap();
    bytes[4096..].fill(0xa5); // all but the page with the schema
    std::fs::write(file(&folder), bytes).unwrap();
    let (kind, text) = refused(&file(&folder)).await;
    assert_eq!(kind, ErrorKind::Damaged, "{text}");
}

#[tokio::test]
async fn a_row_that_cannot_be_read_is_named_and_harms_no_other() {
    let folder = TempDir::new().unwrap();
    let client = client(&file(&folder)).await;
    let (one, other) = (client.lock("one").acquire().await.unwrap(), client.lock("other").acquire().await.unwrap());
    let db = Connection::open(file(&folder)).unwrap();
    db.execute("UPDATE hold SET entries = x'00' WHERE name = x'6f6e65'", []).unwrap();
    let error = client.lock("one").try_acquire().await.unwrap_err();
    assert!(error.kind() == ErrorKind::Damaged && error.to_string().contains("\"one\""), "{error}");
    let error = one.extend(Duration::from_secs(60)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    other.extend(Duration::from_secs(60)).await.unwrap();
    other.release().await.unwrap();
}

#[tokio::test]
async fn a_folder_that_is_not_there_is_not_made() {
    let folder = TempDir::new().unwrap();
    let (kind, text) = refused(&folder.path().join("no/locks.db")).await;
    assert!(kind == ErrorKind::Misconfigured && text.contains("/no"), "{text}");
    assert!(!folder.path().join("no").exists());
}

/// Root may write everywhere, so the test goes on as nobody.
#[tokio::test]
async fn a_file_that_cannot_be_written_is_refused() {
    const PATH: &str = "TENURE_TEST_READ_ONLY";
    if let Some(path) = std::env::var_os(PATH) {
        let (kind, text) = refused(Path::new(&path)).await;
        assert!(kind == ErrorKind::Misconfigured && text.contains("cannot be written"), "{text}");
        return;
    }
    let folder = TempDir::new().unwrap();
    drop(open(&file(&folder)).await.unwrap());
    let mode = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    mode(folder.path(), 0o755);
    mode(&file(&folder), 0o444);
    mode(&folder.path().join("locks.db-gate"), 0o666);
    let program = folder.path().join("program");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let mut again = Command::new(&program);
    if std::fs::metadata(&program).unwrap().uid() == 0 {
        again.uid(65_534).gid(65_534);
    }
    passes(again, "a_file_that_cannot_be_written_is_refused", (PATH, &file(&folder)));
}

/// Root makes the files, and nobody uses them.
#[tokio::test]
async fn users_who_share_the_file_by_their_umask_exclude_each_other() {
    const PATH: &str = "TENURE_TEST_SHARED";
    if let Some(path) = std::env::var_os(PATH) {
        let client = client(Path::new(&path)).await;
        acquired(&client.lock("a")).await.unwrap();
        return client.close(Duration::from_secs(5)).await.unwrap();
    }
    let folder = TempDir::new().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let program = folder.path().join("program");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let open_umask = || {
        let mut shell = Command::new("sh");
        shell.args(["-c", "umask 0; exec \"$0\" \"$@\""]).arg(&program);
        shell
    };
    let name = "users_who_share_the_file_by_their_umask_exclude_each_other";
    passes(open_umask(), name, (PATH, &file(&folder)));
    let ours = client(&file(&folder)).await;
    for end in ["", "-gate", "-wal", "-shm"] {
        let mode = std::fs::metadata(folder.path().join(format!("locks.db{end}"))).unwrap().mode();
        assert_eq!(mode & 0o666, 0o666, "locks.db{end}");
    }
    if std::fs::metadata(&program).unwrap().uid() == 0 {
        let mut nobody = open_umask();
        nobody.uid(65_534).gid(65_534);
        passes(nobody, name, (PATH, &file(&folder)));
    }
    acquired(&ours.lock("a")).await.unwrap();
}

#[tokio::test]
async fn a_symbolic_link_is_the_file_it_leads_to() {
    let folder = TempDir::new().unwrap();
    let link = folder.path().join("link.db");
    std::os::unix::fs::symlink("locks.db", &link).unwrap(); // the file is not there yet
    let (linked, client) = (client(&link).await, client(&file(&folder)).await);
    assert!(!folder.path().join("link.db-gate").exists() && folder.path().join("locks.db-gate").exists());
    let held = client.lock("a").acquire().await.unwrap();
    let first = tokio::spawn(async move { acquired(&linked.lock("a")).await });
    while client.lock("a").inspect().await.unwrap().waiters == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let second = tokio::spawn(async move { acquired(&client.lock("a")).await });
    tokio::time::sleep(Duration::from_millis(500)).await;
    held.release().await.unwrap();
    let (first, second) = (first.await.unwrap().unwrap(), second.await.unwrap().unwrap());
    assert!(first < second, "the waiter by the link was passed over");
}

#[tokio::test]
async fn a_program_that_locks_the_file_is_an_outage_that_passes() {
    let folder = TempDir::new().unwrap();
    let client = client(&file(&folder)).await;
    let other = Connection::open(file(&folder)).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = client.lock("a").try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    other.execute_batch("ROLLBACK").unwrap();
    acquired(&client.lock("a")).await.unwrap();
}

#[tokio::test]
async fn rows_of_another_run_of_the_machine_are_void_and_fences_continue() {
    let folder = TempDir::new().unwrap();
    let before = client(&file(&folder)).await;
    let guard = before.lock("a").ttl(Duration::from_secs(600)).acquire().await.unwrap();
    let fence = guard.fence();
    let db = Connection::open(file(&folder)).unwrap();
    // As after a power cut: the last grants are missing, too.
    db.execute("UPDATE machine SET boot = 'another', fence = 7", []).unwrap();
    let (kind, text) = refused(&file(&folder)).await;
    assert!(kind == ErrorKind::Misconfigured && text.contains("boot id"), "{text}");
    guard.release().await.unwrap();
    ended(before, &folder).await;
    // A hold of that run.
    db.execute("INSERT INTO hold VALUES (x'61', NULL, x'00', 7, 0, 9000000000000000, NULL, 0)", []).unwrap();
    drop(db);
    let after = client(&file(&folder)).await;
    let next = after.lock("a").try_acquire().await.unwrap().expect("nobody of this run holds it");
    assert!(next.fence() > fence, "{:?} {fence:?}", next.fence());
}

#[tokio::test]
async fn a_counter_that_nobody_believes_in_grants_nothing() {
    let folder = TempDir::new().unwrap();
    let client = client(&file(&folder)).await;
    let db = Connection::open(file(&folder)).unwrap();
    db.execute("UPDATE machine SET fence = 1 << 60", []).unwrap();
    let error = client.lock("a").try_acquire().await.unwrap_err();
    assert!(error.kind() == ErrorKind::Damaged && error.to_string().contains("fence"), "{error}");
    db.execute("UPDATE machine SET fence = ?1", [FenceFloor::now().get().cast_signed()]).unwrap();
    acquired(&client.lock("a")).await.unwrap();
}

/// An address of a socket has 108 bytes; a file may be deeper.
#[tokio::test]
async fn waiters_are_woken_however_long_the_path_is() {
    let folder = TempDir::new().unwrap();
    let deep = folder.path().join("d".repeat(120)).join("e".repeat(120));
    std::fs::create_dir_all(&deep).unwrap();
    let (one, other) = (client(&deep.join("locks.db")).await, client(&deep.join("locks.db")).await);
    let guard = one.lock("a").ttl(Duration::from_secs(600)).acquire().await.unwrap();
    let waiter = tokio::spawn(async move { other.lock("a").acquire().await.map(|guard| guard.fence()) });
    while one.lock("a").inspect().await.unwrap().waiters == 0 {
        tokio::task::yield_now().await;
    }
    let fence = guard.fence();
    guard.release().await.unwrap();
    // The waiter itself would ask again after five seconds.
    let next = tokio::time::timeout(Duration::from_secs(4), waiter).await.expect("it was woken").unwrap();
    assert!(next.unwrap() > fence);
}

#[tokio::test]
async fn names_that_are_free_and_clients_that_are_closed_leave_nothing() {
    let folder = TempDir::new().unwrap();
    let client = client(&file(&folder)).await;
    for number in 0..100 {
        acquired(&client.lock(format!("name/{number}"))).await.unwrap();
    }
    let db = Connection::open(file(&folder)).unwrap();
    let count = |table| db.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!((count("hold"), count("waiter")), (0, 0));
    client.close(Duration::from_secs(5)).await.unwrap();
    drop(client);
    let bells = folder.path().join("locks.db-bells");
    let left = || std::fs::read_dir(&bells).unwrap().count();
    while left() > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await; // the last handle is dropped by a task of its own
    }
}

/// What clients leave behind that were killed: rows that are over, and sockets that nobody reads.
#[tokio::test]
async fn what_the_dead_leave_behind_is_swept() {
    let folder = TempDir::new().unwrap();
    let client = client(&file(&folder)).await;
    let db = Connection::open(file(&folder)).unwrap();
    db.query_row("PRAGMA wal_autocheckpoint = 0", [], |_| Ok(())).unwrap(); // the file itself is the driver's to write
    for number in 0..200 {
        let hold = "INSERT INTO hold VALUES (?1, NULL, x'00', 1, 0, 1, NULL, 0)";
        db.execute(hold, [format!("dead/{number}").as_bytes()]).unwrap();
        let waiter =
            "INSERT INTO waiter (name, token, client, present, ttl, fences, direct) VALUES (?1, '', 1, 1, 1, 1, 0)";
        db.execute(waiter, [format!("dead/{number}").as_bytes()]).unwrap();
        let grave = "INSERT INTO grave (name, token, until) VALUES (?1, '', 1)";
        db.execute(grave, [format!("dead/{number}").as_bytes()]).unwrap();
    }
    let socket = folder.path().join("locks.db-bells/123abc");
    drop(UnixDatagram::bind(&socket).unwrap());
    for _ in 0..200 {
        acquired(&client.lock("a")).await.unwrap();
    }
    for table in ["hold", "waiter", "grave"] {
        let count: i64 = db.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap();
        assert_eq!(count, 0, "{table}");
    }
    assert!(socket.exists());
    drop(open(&file(&folder)).await.unwrap());
    assert!(!socket.exists(), "whoever opens the file removes it");
}

/// A request is done wholly or not at all, whenever its future is dropped.
#[tokio::test]
async fn a_dropped_request_leaves_nothing_half_way() {
    let folder = TempDir::new().unwrap();
    let (one, other) = (client(&file(&folder)).await, client(&file(&folder)).await);
    for number in 0..200 {
        let lock = one.lock("a").ttl(Duration::from_secs(600));
        let mut asks = Box::pin(lock.acquire());
        for _ in 0..number % 4 {
            let polled = std::future::poll_fn(|context| std::task::Poll::Ready(asks.as_mut().poll(context).is_ready()));
            if polled.await {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(asks);
        acquired(&other.lock("a")).await.unwrap();
    }
}

/// Where the file is has no byte left: requests are an outage, and once there is room all is as before.
///
/// The disk is a small one in memory, which only a process in a space of mounts of its own may make; there the test goes on.
#[tokio::test]
async fn a_full_disk_is_an_outage_that_passes() {
    const FOLDER: &str = "TENURE_TEST_FULL_DISK";
    if let Some(folder) = std::env::var_os(FOLDER) {
        return on_a_small_disk(Path::new(&folder)).await;
    }
    let folder = TempDir::new().unwrap();
    let mut program = with_mounts_of_its_own("mount -t tmpfs -o size=1m tmpfs \"$0\" && exec \"$@\"");
    program.arg(folder.path()).arg(std::env::current_exe().unwrap());
    passes(program, "a_full_disk_is_an_outage_that_passes", (FOLDER, folder.path()));
}

async fn on_a_small_disk(folder: &Path) {
    let client = client(&folder.join("locks.db")).await;
    let held = client.lock("held").acquire().await.unwrap();
    let queue = client.queue_of_bytes("jobs").unwrap();
    let ballast = folder.join("ballast");
    std::fs::write(&ballast, vec![0; 600 << 10]).unwrap();
    let mut stored = 0;
    let full = loop {
        match queue.push(&vec![7; 4_000]).await {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
        assert!(stored < 300, "the disk does not fill");
    };
    assert_eq!(full.kind(), ErrorKind::Unavailable, "{full:#}");
    assert!(full.to_string().contains("the disk is full"), "{full}");
    std::fs::remove_file(ballast).unwrap();
    assert!(held.is_held());
    queue.push(&b"room".to_vec()).await.unwrap();
    let mut received = 0;
    while received <= stored {
        let batch = queue.receive_many(100, Duration::ZERO).await.unwrap();
        assert!(!batch.is_empty(), "{received} of {} messages came", stored + 1);
        received += batch.len();
        queue.ack_many(batch).await.unwrap();
    }
    assert!(queue.try_receive().await.unwrap().is_none(), "what was refused is there");
    held.release().await.unwrap();
    assert!(acquired(&client.lock("other")).await.unwrap() > 0);
}

#[tokio::test]
async fn a_file_of_the_first_version_gets_the_table_of_permits() {
    let folder = TempDir::new().unwrap();
    drop(open(&file(&folder)).await.unwrap());
    let first = "DROP TABLE permit; PRAGMA user_version = 1";
    Connection::open(file(&folder)).unwrap().execute_batch(first).unwrap();
    let client = client(&file(&folder)).await;
    assert!(client.semaphore("a", 1).try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn a_damaged_record_of_permits_is_an_error_of_its_name_alone() {
    let folder = TempDir::new().unwrap();
    let client = client(&file(&folder)).await;
    let (_one, _other) = (client.semaphore("a", 1).acquire().await.unwrap(), client.rw_lock("a").read().await.unwrap());
    let damage = "UPDATE permit SET record = zeroblob(40) WHERE family = 's'";
    assert_eq!(Connection::open(file(&folder)).unwrap().execute(damage, ()).unwrap(), 1);
    let error = client.semaphore("a", 1).try_acquire().await.unwrap_err();
    assert!(error.kind() == ErrorKind::Damaged && error.to_string().contains("permits of \"a\""), "{error}");
    assert!(client.rw_lock("a").try_read().await.unwrap().is_some());
    assert!(client.lock("a").try_acquire().await.unwrap().is_some());
}
