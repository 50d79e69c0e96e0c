//! Processes over servers that are harmed, and a judge: the program `chaos` of the package `tenure-backends`.

use std::path::Path;
use std::process::Command;

use crate::command::{self, Failure, Outcome};
use crate::{backends, steps};

/// What the gate runs, all at once: each waits much more than it computes.
const BACKENDS: &[&str] = &["redis/single", "redlock/3-live", "etcd/3-members"];
const SECONDS: &str = "30";

/// The same of its queue mode.
const QUEUES: &[&str] = &["redis/single"];
const QUEUE_SECONDS: &str = "25";

/// Passes everything on.
pub(crate) fn run(args: &[String]) -> Outcome {
    command::run(backends::cargo_run("chaos").arg("--").args(args))
}

/// Half a minute on each of the backends: a line for each, and what the judge found if it found something.
pub(crate) fn run_all(program: &Path) -> Outcome {
    let locks = BACKENDS.iter().map(|backend| vec!["--backend", backend, "--seconds", SECONDS]);
    let queues = QUEUES.iter().map(|backend| vec!["--queue", "--backend", backend, "--seconds", QUEUE_SECONDS]);
    let broken: Vec<String> = std::thread::scope(|scope| {
        let started: Vec<_> = locks
            .chain(queues)
            .map(|words| (words.join(" "), scope.spawn(move || is_clean(program, &words))))
            .collect();
        started.into_iter().filter_map(|(told, run)| (!run.join().unwrap_or_default()).then_some(told)).collect()
    });
    if broken.is_empty() { Ok(()) } else { Err(Failure(format!("chaos broke promises: {}", broken.join("; ")))) }
}

fn is_clean(program: &Path, words: &[&str]) -> bool {
    let mut command = Command::new(program);
    backends::stretch(command.args(words).arg("--brief"));
    let name = format!("chaos {}", words.join(" "));
    steps::run_as(&name, &mut command, |out| out.lines().last().unwrap_or_default().to_owned()).is_ok()
}
