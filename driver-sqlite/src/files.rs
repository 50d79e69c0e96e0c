//! The files of one database: whether they are still those that were opened, and whether only this library wrote to them.
//!
//! SQLite excludes processes by locks on the file and on `-shm`, and keeps the last commits in `-wal`. All of that belongs to inodes. If
//! one of the files is removed, replaced or opened by another name, two processes can each have a database of their own and grant the
//! same lock. So each transaction compares the inodes, and the gate's file says which files belong together: a client that opens them
//! while others have them open joins their database, or is refused.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Stat, StatxFlags};
use tenure_core::Result;

use crate::bell::folder_of;
use crate::error::{misconfigured, of_system};

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
    /// When this library last wrote to the main file.
    written: u64,
    /// `false` while a client moves commits from the log into the file.
    settled: bool,
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
        let mount = |path: &Path| {
            let seen = rustix::fs::statx(rustix::fs::CWD, path, AtFlags::empty(), StatxFlags::MNT_ID).ok()?;
            StatxFlags::from_bits_retain(seen.stx_mask).contains(StatxFlags::MNT_ID).then_some(seen.stx_mnt_id)
        };
        let folder = self.main.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        match (mount(&self.main), mount(folder)) {
            (Some(file), Some(folder)) if file != folder => Err(misconfigured(format!(
                "{shown} is mounted by itself: mount the folder that it is in, so that all processes share the files beside it"
            ))),
            _ => Ok(()), // an old kernel does not tell
        }
    }

    /// Before this client opens the file while others have it open: checks that all files are those of the others, and that no other
    /// program wrote to them.
    pub(crate) fn join(&self, gate: &File) -> Result<()> {
        match (Record::read(gate)?, self.look()) {
            (Some(record), Ok((files, main))) if record.files == files => record.check_writer(main.written, self, gate),
            _ => Err(misconfigured(format!(
                "{} or a file beside it was removed or replaced while other clients have it open: end those clients first",
                self.main.display()
            ))),
        }
    }

    /// At the beginning of a transaction: checks that these are still the files that were opened, and that no other program wrote to
    /// them.
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

    /// Writes down which files belong together and when the main one was last written to. `settled` is false before a checkpoint.
    pub(crate) fn note(&self, files: &Files, gate: &File, settled: bool) -> Result<()> {
        let written = look(&self.main)?.written;
        Record { files: *files, written, settled }.write(gate)
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
    const MARK: u64 = u64::from_le_bytes(*b"tenure 1");
    const LENGTH: usize = 11 * 8;

    fn read(gate: &File) -> Result<Option<Self>> {
        let mut bytes = [0; Self::LENGTH];
        let length = gate.read_at(&mut bytes, 0).map_err(|error| of_system("read the gate", error))?;
        let (words, _) = bytes.as_chunks::<8>();
        let word = |at: usize| u64::from_le_bytes(words[at]);
        let inode = |at| [word(at), word(at + 1)];
        let files = Files { main: inode(1), log: inode(3), index: inode(5), bells: inode(7) };
        let whole = length == Self::LENGTH && word(0) == Self::MARK;
        Ok(whole.then_some(Self { files, written: word(9), settled: word(10) == 1 }))
    }

    fn write(&self, gate: &File) -> Result<()> {
        let Files { main, log, index, bells } = self.files;
        let ends = [self.written, u64::from(self.settled)];
        let words = [[main, log], [index, bells]].into_iter().flatten().flatten().chain(ends);
        let bytes: Vec<u8> = std::iter::once(Self::MARK).chain(words).flat_map(u64::to_le_bytes).collect();
        gate.write_all_at(&bytes, 0).map_err(|error| of_system("write the gate", error))
    }

    /// Checks that only this library wrote to the main file. An old copy that is written over it names the holders of that time.
    fn check_writer(self, written: u64, paths: &Paths, gate: &File) -> Result<()> {
        if !self.settled {
            // The writer was killed: while it lives, nobody else passes the gate.
            return Self { written, settled: true, ..self }.write(gate);
        }
        if written == self.written {
            return Ok(());
        }
        Err(misconfigured(format!(
            "another program wrote to {} while it was open: end all clients, and see whether it is the right file",
            paths.main.display()
        )))
    }
}
