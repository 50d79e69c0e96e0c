//! Processes over servers that are harmed, and a judge: the program `chaos` of the package `tenure-backends`.

use std::path::Path;
use std::process::Command;

use crate::backends;
use crate::command::{self, Failure, Outcome};

/// What the gate runs, one after the other: each starts processes and servers enough for the machine.
const BACKENDS: &[&str] = &["redis/single", "redlock/3-live", "etcd/3-members"];
const SECONDS: &str = "30";

/// Passes everything on.
pub(crate) fn run(args: &[String]) -> Outcome {
    command::run(backends::cargo_of("run", "chaos").arg("--").args(args))
}

/// Half a minute on each of the backends: a line for each, and what the judge found if it found something.
pub(crate) fn run_all() -> Outcome {
    let program = backends::built("chaos")?;
    let broken: Vec<&str> = BACKENDS.iter().copied().filter(|backend| !is_clean(&program, backend)).collect();
    if broken.is_empty() { Ok(()) } else { Err(Failure(format!("chaos broke promises of {}", broken.join(", ")))) }
}

fn is_clean(program: &Path, backend: &str) -> bool {
    let mut command = Command::new(program);
    command.args(["--backend", backend, "--seconds", SECONDS, "--brief"]);
    if std::env::var_os("TENURE_SLACK").is_none() {
        command.env("TENURE_SLACK", backends::SLACK);
    }
    command.status().is_ok_and(|status| status.success())
}
