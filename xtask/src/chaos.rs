//! Processes over servers that are harmed, and a judge: the program `chaos` of the package `tenure-backends`.

use std::path::Path;
use std::process::Command;

use crate::command::{self, Outcome};
use crate::schedule::{Job, Load};
use crate::{backends, steps};

/// What the gate runs, one after the other.
const RUNS: &[&[&str]] = &[
    &["--backend", "etcd/3-members", "--seconds", "30"],
    &["--backend", "redlock/3-live", "--seconds", "30"],
    &["--backend", "redis/single", "--seconds", "30"],
    &["--queue", "--backend", "redis/single", "--seconds", "25"],
];

/// Passes everything on.
pub(crate) fn run(args: &[String]) -> Outcome {
    command::run(backends::cargo_run("chaos").arg("--").args(args))
}

/// Half a minute on each of the backends: a line for each, and what the judge found if it found something.
pub(crate) fn jobs(program: &Path) -> Vec<Job<'_>> {
    let job = |words: &&'static [&'static str]| {
        let (words, name) = (*words, format!("chaos {}", words.join(" ")));
        let step = name.clone();
        Job::whole(&name, Load::Heavy, move || {
            let mut command = Command::new(program);
            stretch(command.args(words).arg("--brief"));
            steps::run_as(&step, &mut command, |out| out.lines().last().unwrap_or_default().to_owned()).map(drop)
        })
    };
    RUNS.iter().map(job).collect()
}

/// Gives the judge's bounds in time twice their length, because other jobs run beside it; `TENURE_SLACK` may say otherwise.
fn stretch(command: &mut Command) {
    const SLACK: &str = "TENURE_SLACK";
    if std::env::var_os(SLACK).is_none() {
        command.env(SLACK, "2");
    }
}
