//! Directories that last as long as a test.

use std::path::Path;
use std::{env, io};

/// A directory of its own under the system's temporary directory, removed with everything in it when dropped.
#[derive(Debug)]
pub struct TempDir(tempfile::TempDir);

impl TempDir {
    /// Makes the directory; `kind` is part of its name.
    ///
    /// # Errors
    ///
    /// Those of creating a directory.
    pub fn new(kind: &str) -> io::Result<Self> {
        Self::under(&env::temp_dir(), kind)
    }

    /// Makes it in memory where the machine has plenty, else as [`TempDir::new`]: for servers that wait for the disk
    /// with every write, since on a machine that is busy with something else a disk stalls for seconds.
    ///
    /// # Errors
    ///
    /// Those of creating a directory.
    pub fn in_memory(kind: &str) -> io::Result<Self> {
        const MEMORY: &str = "/dev/shm";
        const PLENTY: u64 = 4 << 30;
        let free = rustix::fs::statvfs(MEMORY).map(|found| found.f_bavail * found.f_frsize);
        if free.is_ok_and(|free| free >= PLENTY) {
            return Self::under(Path::new(MEMORY), kind);
        }
        Self::new(kind)
    }

    fn under(parent: &Path, kind: &str) -> io::Result<Self> {
        // Short: the path of a unix socket has room for some 100 bytes.
        tempfile::Builder::new().prefix(&format!("tenure-{kind}-")).tempdir_in(parent).map(Self)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}
