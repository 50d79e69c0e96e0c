//! What the tests need from the machine, and how to get it.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{Failure, Outcome, on_path, root, run};

/// A program that the tests start, and the Debian package that has it.
struct Needed {
    program: &'static str,
    package: &'static str,
    purpose: &'static str,
}

const NEEDED: &[Needed] = &[
    Needed { program: "redis-server", package: "redis-server", purpose: "the Redis backends" },
    Needed { program: "python3", package: "python3-venv", purpose: "the lock of redis-py, a foreign client" },
];

/// What a run may do to the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Install {
    Allowed,
    Never,
}

/// Makes sure that everything is there.
pub(crate) fn prepare(install: Install) -> Outcome {
    let missing: Vec<&Needed> = NEEDED.iter().filter(|needed| !on_path(needed.program)).collect();
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
    run(command.args(&packages))?;
    match missing.iter().find(|needed| !on_path(needed.program)) {
        None => Ok(()),
        Some(needed) => {
            Err(Failure(format!("{} is still missing after installing {}", needed.program, needed.package)))
        }
    }
}

/// apt-get as root: as it is, or through sudo. Services are not started: tests start servers of their own.
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

/// A Python with redis-py, in a folder of the build's own; `None` if it cannot be had.
pub(crate) fn python_with_redis() -> Option<PathBuf> {
    let folder = target().join("redis-py");
    let python = folder.join("bin/python3");
    let has_it = |python: &Path| {
        Command::new(python).args(["-c", "import redis"]).output().is_ok_and(|output| output.status.success())
    };
    if has_it(&python) {
        return Some(python);
    }
    if has_it(Path::new("python3")) {
        return Some(PathBuf::from("python3"));
    }
    let venv = run(Command::new("python3").args(["-m", "venv"]).arg(&folder));
    let installed = venv.and_then(|()| run(Command::new(&python).args(["-m", "pip", "install", "-q", "redis==5.3.1"])));
    (installed.is_ok() && has_it(&python)).then_some(python)
}

/// Where cargo builds to.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}
