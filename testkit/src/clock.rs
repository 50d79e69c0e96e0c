//! A wall clock that a test can move, for one server process.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

const SOURCE: &str = include_str!("../shim/clock.rs");

/// Shifts or stops `CLOCK_REALTIME` of the processes that are started with it; the monotonic clock stays.
#[derive(Debug)]
pub struct ClockShim {
    offset: File,
    offset_path: PathBuf,
    library: PathBuf,
}

impl ClockShim {
    /// Builds the shim with `rustc` if this process has not yet, and an offset of zero in `dir`.
    ///
    /// # Errors
    ///
    /// Those of the file system; [`io::ErrorKind::Other`] with the compiler's words when it failed.
    pub fn new(dir: &Path) -> io::Result<Self> {
        let offset_path = dir.join("clock-offset");
        let offset = File::create(&offset_path)?;
        offset.write_all_at(&[0; 16], 0)?;
        Ok(Self { offset, offset_path, library: library()? })
    }

    /// Copies the library into `dir`, for a process whose account cannot read the folder of the build.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub(crate) fn keep_library_in(&mut self, dir: &Path) -> io::Result<()> {
        let copy = dir.join("libtenure_clock.so");
        fs::copy(&self.library, &copy)?;
        self.library = copy;
        Ok(())
    }

    /// Makes `command` start with the movable clock.
    pub fn apply(&self, command: &mut Command) {
        command.env("LD_PRELOAD", &self.library).env("TENURE_CLOCK_FILE", &self.offset_path);
    }

    /// Sets how far, in microseconds, the process's wall clock is ahead of the machine's. Effective at once.
    ///
    /// # Errors
    ///
    /// Those of writing the file.
    pub fn set_offset(&self, micros: i64) -> io::Result<()> {
        self.offset.write_all_at(&micros.to_ne_bytes(), 0)
    }

    /// Stops the process's wall clock at so many microseconds since 1970; zero lets it run again. Effective at once.
    ///
    /// # Errors
    ///
    /// Those of writing the file.
    pub fn stop_at(&self, micros: i64) -> io::Result<()> {
        self.offset.write_all_at(&micros.to_ne_bytes(), 8)
    }
}

/// The shim's library, beside the running program; built once per process.
fn library() -> io::Result<PathBuf> {
    static BUILT: Mutex<Option<PathBuf>> = Mutex::new(None);
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(path) = &*built {
        return Ok(path.clone());
    }
    let program = std::env::current_exe()?;
    let dir = program.parent().ok_or(io::ErrorKind::NotFound)?;
    let stem = format!("tenure-clock-{}", std::process::id());
    let source = dir.join(format!("{stem}.rs"));
    let scratch = dir.join(format!("{stem}.so"));
    fs::write(&source, SOURCE)?;
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc)
        .args(["--edition", "2024", "-O", "--crate-type", "cdylib", "-C", "panic=abort", "--crate-name", "clock", "-o"])
        .arg(&scratch)
        .arg(&source)
        .output()?;
    let _ = fs::remove_file(&source);
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(io::Error::other(format!("the clock shim does not compile: {text}")));
    }
    // Several programs may build it at once; the renaming is atomic and what they build is the same.
    let path = dir.join("libtenure_clock.so");
    fs::rename(&scratch, &path)?;
    *built = Some(path.clone());
    Ok(path)
}
