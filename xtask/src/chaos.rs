//! Processes over servers that are harmed, and a judge: the program `chaos` of the package `tenure-backends`.

use std::path::Path;
use std::process::Command;

use crate::backends;
use crate::command::{self, Failure, Outcome};

/// What the gate runs, one after the other: each starts processes and servers enough for the machine.
const BACKENDS: &[&str] = &["redis/single", "redlock/3-live", "etcd/3-members"];
const SECONDS: &str = "30";

/// The same of its queue mode.
const QUEUES: &[&str] = &["redis/single"];
const QUEUE_SECONDS: &str = "25";

/// Passes everything on.
pub(crate) fn run(args: &[String]) -> Outcome {
    command::run(backends::cargo_of("run", "chaos").arg("--").args(args))
}

/// Half a minute on each of the backends: a line for each, and what the judge found if it found something.
pub(crate) fn run_all() -> Outcome {
    let program = backends::built("chaos")?;
    let locks = BACKENDS.iter().filter(|backend| !is_clean(&program, &["--backend", backend, "--seconds", SECONDS]));
    let mut broken: Vec<&str> = locks.copied().collect();
    let queue = ["--queue", "--seconds", QUEUE_SECONDS, "--backend"];
    broken.extend(QUEUES.iter().filter(|backend| !is_clean(&program, &[&queue[..], &[backend]].concat())));
    if broken.is_empty() { Ok(()) } else { Err(Failure(format!("chaos broke promises of {}", broken.join(", ")))) }
}

fn is_clean(program: &Path, words: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(words).arg("--brief");
    if std::env::var_os("TENURE_SLACK").is_none() {
        command.env("TENURE_SLACK", backends::SLACK);
    }
    command.status().is_ok_and(|status| status.success())
}
