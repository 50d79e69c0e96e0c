//! What the tests need from the machine, and how to get it.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{Failure, Outcome, on_path, root};
use crate::steps::run;

/// A program that the tests start, and the Debian package that has it.
struct Needed {
    program: &'static str,
    package: &'static str,
    purpose: &'static str,
}

const NEEDED: &[Needed] = &[
    Needed { program: "redis-server", package: "redis-server", purpose: "the Redis backends" },
    Needed { program: "etcd", package: "etcd-server", purpose: "the etcd backends" },
    Needed { program: "initdb", package: "postgresql", purpose: "the PostgreSQL backends" },
    Needed { program: "pgbouncer", package: "pgbouncer", purpose: "the PostgreSQL backend behind a pooler" },
    Needed { program: "mariadbd", package: "mariadb-server", purpose: "the MariaDB backends" },
    Needed { program: "protoc", package: "protobuf-compiler", purpose: "building the etcd driver's client library" },
    Needed { program: "python3", package: "python3", purpose: "the lock of redis-py, a foreign client" },
];

/// What a run may do to the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Install {
    Allowed,
    Never,
}

/// Makes sure that everything is there.
pub(crate) fn prepare(install: Install) -> Outcome {
    let missing: Vec<&Needed> = NEEDED.iter().filter(|needed| !is_here(needed.program)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let packages: Vec<&str> = missing.iter().map(|needed| needed.package).collect();
    if install == Install::Never || !on_path("apt-get") {
        let list: Vec<String> =
            missing.iter().map(|n| format!("  {} (Debian: {}), for {}", n.program, n.package, n.purpose)).collect();
        return Err(Failure(format!("these programs are missing; install them and run again:\n{}", list.join("\n"))));
    }
    println!("installing {}", packages.join(", "));
    run(&mut apt(&["update", "-qq"]))?;
    let mut command = apt(&["install", "-y", "-qq", "--no-install-recommends"]);
    // protoc alone lacks the definitions that come with it.
    let with_protoc = packages.contains(&"protobuf-compiler").then_some("libprotobuf-dev");
    run(command.args(&packages).args(with_protoc))?;
    match missing.iter().find(|needed| !is_here(needed.program)) {
        None => Ok(()),
        Some(needed) => {
            Err(Failure(format!("{} is still missing after installing {}", needed.program, needed.package)))
        }
    }
}

/// Whether a program is on the `PATH`, or where Debian keeps servers that users do not start themselves.
fn is_here(program: &str) -> bool {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let folders = versions.filter_map(|entry| entry.ok().map(|entry| entry.path().join("bin")));
    on_path(program) || folders.chain([PathBuf::from("/usr/sbin")]).any(|folder| folder.join(program).is_file())
}

/// apt-get as root: as it is, or through sudo. Services are not started: tests start servers of
/// their own, on other ports than a service would have.
fn apt(args: &[&str]) -> Command {
    let is_root = Path::new("/proc/self").exists()
        && std::fs::read_to_string("/proc/self/status").is_ok_and(|status| status.contains("\nUid:\t0\t"));
    let mut command = if is_root || !on_path("sudo") {
        Command::new("apt-get")
    } else {
        let mut sudo = Command::new("sudo");
        sudo.args(["--preserve-env=DEBIAN_FRONTEND,RUNLEVEL", "apt-get"]);
        sudo
    };
    command.args(args).env("DEBIAN_FRONTEND", "noninteractive").env("RUNLEVEL", "1");
    command
}

/// A Python with redis-py: one that is here, one made in a folder of the build's own, or Debian's.
pub(crate) fn python_with_redis(install: Install) -> Outcome<PathBuf> {
    let folder = target().join("redis-py");
    let (own, debian) = (folder.join("bin/python3"), PathBuf::from("/usr/bin/python3"));
    for python in [own.clone(), PathBuf::from("python3"), debian.clone()] {
        if has_redis(&python) {
            return Ok(python);
        }
    }
    if install == Install::Allowed {
        let made = run(Command::new("python3").args(["-m", "venv"]).arg(&folder))
            .and_then(|_| run(Command::new(&own).args(["-m", "pip", "install", "-q", "redis==5.3.1"])));
        if made.is_ok() && has_redis(&own) {
            return Ok(own);
        }
        if on_path("apt-get") {
            run(&mut apt(&["update", "-qq"]))?;
            run(&mut apt(&["install", "-y", "-qq", "--no-install-recommends", "python3-redis"]))?;
        }
        if has_redis(&debian) {
            return Ok(debian);
        }
    }
    Err(Failure(String::from("redis-py is missing: python3 -m pip install redis, or Debian's python3-redis")))
}

fn has_redis(python: &Path) -> bool {
    Command::new(python).args(["-c", "import redis"]).output().is_ok_and(|output| output.status.success())
}

/// Where cargo builds to.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}
