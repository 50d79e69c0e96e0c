//! The files of one database: the checks that they are the opened ones, and that no older state was written over them.
//!
//! SQLite excludes processes by locks on the file and on `-shm`, and keeps the last commits in `-wal`. All of that
//! belongs to inodes. If one of the files is removed, replaced or opened by another name, two processes can each have a
//! separate database and grant the same lock. So each transaction compares the inodes, and the gate's file records
//! which files belong together. If other clients have the files open, a client that opens them joins their database, or
//! is refused.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};
use rustix::fs::Stat;
use tenure_core::Result;

use crate::bell::folder_of;
use crate::error::{misconfigured, of_system};
use crate::place::mount_of;

/// Which file it is, however it is called.
type Inode = [u64; 2];

/// The paths of one database.
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    pub(crate) main: PathBuf,
    pub(crate) gate: PathBuf,
    log: PathBuf,
    index: PathBuf,
    bells: PathBuf,
}

/// The files behind the paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Files {
    main: Inode,
    log: Inode,
    index: Inode,
    bells: Inode,
}

/// What the gate's file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Record {
    files: Files,
    /// When the main file was last written to, as far as that was looked into.
    written: u64,
    /// `false` while a client moves commits from the log into the file.
    settled: bool,
    /// No more than the last fence in the main file, which only grows.
    fence: u64,
}

/// What `stat` says of a file.
struct Look {
    inode: Inode,
    links: u64,
    written: u64,
}

impl Paths {
    pub(crate) fn of(main: &Path) -> Self {
        let beside = |end: &str| {
            let mut name = main.as_os_str().to_owned();
            name.push(end);
            PathBuf::from(name)
        };
        let (gate, log, index) = (beside("-gate"), beside("-wal"), beside("-shm"));
        Self { main: main.to_owned(), gate, log, index, bells: folder_of(main) }
    }

    /// The files, if they are all there, and a look at the main one.
    fn look(&self) -> Result<(Files, Look)> {
        let inode = |path| look(path).map(|look| look.inode);
        let main = look(&self.main)?;
        let (log, index, bells) = (inode(&self.log)?, inode(&self.index)?, inode(&self.bells)?);
        Ok((Files { main: main.inode, log, index, bells }, main))
    }

    /// The files, if they are all there.
    pub(crate) fn files(&self) -> Result<Files> {
        self.look().map(|(files, _)| files)
    }

    /// Checks that the file has one name alone, and is reached through its folder: `-wal` and `-shm` lie beside the name.
    pub(crate) fn check_name(&self) -> Result<()> {
        let shown = self.main.display();
        if look(&self.main)?.links > 1 {
            let text = format!(
                "{shown} has another name (a hard link): processes that open it by that name would not see these locks"
            );
            return Err(misconfigured(text));
        }
        let folder = self.main.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        match (mount_of(&self.main), mount_of(folder)) {
            (Some(file), Some(folder)) if file != folder => Err(misconfigured(format!(
                "{shown} is mounted by itself: mount the folder that it is in, so that all processes share the files beside it"
            ))),
            _ => Ok(()), // an old kernel does not tell
        }
    }

    /// Before this client opens the file while others have it open: checks that all files are those of the others, and that no
    /// older state was written over them.
    pub(crate) fn join(&self, gate: &File) -> Result<()> {
        match (Record::read(gate)?, self.look()) {
            (Some(record), Ok((files, main))) if record.files == files => record.check_writer(main.written, self, gate),
            _ => Err(misconfigured(format!(
                "{} or a file beside it was removed or replaced while other clients have it open: end those clients first",
                self.main.display()
            ))),
        }
    }

    /// At the beginning of a transaction: checks that these are still the files that were opened, and that no older state was written
    /// over them.
    pub(crate) fn check(&self, opened: &Files, gate: &File) -> Result<()> {
        match self.look() {
            Ok((files, main)) if files == *opened && main.links == 1 => match Record::read(gate)? {
                Some(record) => record.check_writer(main.written, self, gate),
                None => Ok(()),
            },
            _ => Err(misconfigured(format!(
                "{} or a file beside it was deleted or replaced while it was open, or has another name now; close this client and open \
                 it again",
                self.main.display()
            ))),
        }
    }

    /// Writes down which files belong together, and what the main one is like.
    pub(crate) fn note(&self, files: &Files, gate: &File) -> Result<()> {
        let (written, fence) = (look(&self.main)?.written, self.fence_in_file().unwrap_or(0));
        Record { files: *files, written, settled: true, fence }.write(gate)
    }

    /// Before this client moves commits into the main file.
    pub(crate) fn begin_checkpoint(&self, gate: &File) -> Result<()> {
        Record::read(gate)?.map_or(Ok(()), |record| Record { settled: false, ..record }.write(gate))
    }

    /// After it. `fence` is the last one, if all commits are in the file now.
    pub(crate) fn end_checkpoint(&self, gate: &File, fence: Option<u64>) -> Result<()> {
        let Some(record) = Record::read(gate)? else { return Ok(()) };
        let written = look(&self.main)?.written;
        Record { written, settled: true, fence: fence.unwrap_or(record.fence), ..record }.write(gate)
    }

    /// The last fence in the main file itself, without what the log adds; nothing if it cannot be read. SQLite keeps the locks that this
    /// process has on the file.
    ///
    /// While another program moves commits into the file, its pages are of two states, and the schema may name a page that belongs to
    /// another table: its row does not look like this one. A page of the right table is of some state that there was.
    fn fence_in_file(&self) -> Option<u64> {
        let path: String = self.main.as_os_str().as_encoded_bytes().iter().map(|byte| format!("%{byte:02x}")).collect();
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let db = Connection::open_with_flags(format!("file:{path}?immutable=1"), flags).ok()?;
        let row = "SELECT fence FROM machine WHERE one = 1 AND typeof(boot) = 'text' AND typeof(wall_ahead) = 'integer' \
                   AND typeof(fence) = 'integer'";
        let fence: i64 = db.query_row(row, [], |row| row.get(0)).ok()?;
        Some(fence.cast_unsigned())
    }

    /// How long the log is.
    pub(crate) fn log_length(&self) -> u64 {
        std::fs::metadata(&self.log).map_or(0, |log| log.len())
    }
}

fn look(path: &Path) -> Result<Look> {
    let seen = rustix::fs::stat(path);
    let Stat { st_dev, st_ino, st_nlink, st_mtime, st_mtime_nsec, .. } =
        seen.map_err(|error| of_system(format_args!("look at {}", path.display()), error.into()))?;
    let nanos = (st_mtime as u64).wrapping_mul(1_000_000_000).wrapping_add(st_mtime_nsec);
    Ok(Look { inode: [st_dev, st_ino], links: st_nlink, written: nanos })
}

impl Record {
    const MARK: u64 = u64::from_le_bytes(*b"tenure 2");
    const LENGTH: usize = 12 * 8;

    fn read(gate: &File) -> Result<Option<Self>> {
        let mut bytes = [0; Self::LENGTH];
        let length = gate.read_at(&mut bytes, 0).map_err(|error| of_system("read the gate", error))?;
        let (words, _) = bytes.as_chunks::<8>();
        let word = |at: usize| u64::from_le_bytes(words[at]);
        let inode = |at| [word(at), word(at + 1)];
        let files = Files { main: inode(1), log: inode(3), index: inode(5), bells: inode(7) };
        let whole = length == Self::LENGTH && word(0) == Self::MARK;
        Ok(whole.then_some(Self { files, written: word(9), settled: word(10) == 1, fence: word(11) }))
    }

    fn write(&self, gate: &File) -> Result<()> {
        let Files { main, log, index, bells } = self.files;
        let ends = [self.written, u64::from(self.settled), self.fence];
        let words = [[main, log], [index, bells]].into_iter().flatten().flatten().chain(ends);
        let bytes: Vec<u8> = std::iter::once(Self::MARK).chain(words).flat_map(u64::to_le_bytes).collect();
        gate.write_all_at(&bytes, 0).map_err(|error| of_system("write the gate", error))
    }

    /// Checks that no other content was written over the main file. SQLite in another program may move commits into it, as this library
    /// does; what it holds is never older after that. An old copy that is written over it names the holders of its time.
    fn check_writer(self, written: u64, paths: &Paths, gate: &File) -> Result<()> {
        if !self.settled {
            // The writer was killed: while it lives, no other writer passes the gate.
            return Self { written, settled: true, ..self }.write(gate);
        }
        if written == self.written {
            return Ok(());
        }
        match paths.fence_in_file() {
            Some(fence) if fence < self.fence => Err(misconfigured(format!(
                "an older state was written over {} while it was open: end all clients, and see whether it is the right file",
                paths.main.display()
            ))),
            Some(fence) => Self { written, fence, ..self }.write(gate),
            None => Ok(()), // the next transaction looks again
        }
    }
}
