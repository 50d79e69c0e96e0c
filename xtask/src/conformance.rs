//! The conformance suite over the workspace's own drivers: the package `tenure-backends` has the makers.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{self, Failure, Outcome};
use crate::schedule::{Job, Load, Ran, Second, Unit};
use crate::setup::Install;
use crate::steps::Counts;
use crate::{backends, others, steps};

/// Backends whose servers watch each other, so that a busy machine makes them elect new leaders.
const HEAVY: &[&str] = &["etcd/3-members"];

/// The backends that take longest, which begin first.
const LONG: &[&str] = &["etcd/3-members", "etcd/", "postgres/", "redlock/", "redis/cluster", "fred/cluster"];

/// What runs on servers of further versions (`…@6.2`) among the others: cases of requests that another version could answer in
/// another way. `cargo xtask conformance --versions` runs them whole.
const OTHER_VERSIONS: &[&str] = &[
    "census/",
    "driver/",
    "fence/",
    "fifo/",
    "lock/",
    "meta/",
    "reentrant/",
    "window/",
    "queue/batch",
    "queue/cancel",
    "queue/key",
    "queue/limit",
    "queue/list",
    "queue/parked",
    "queue/purge",
    "queue/redrive",
    "queue/replace",
];

/// The command that runs the suite, with every backend that can be built here.
pub(crate) fn suite() -> Command {
    let mut command = backends::cargo_run("conformance");
    command.arg("--");
    command
}

/// Passes everything on; `--versions` means every backend on a server of a further version.
pub(crate) fn run(args: &[String]) -> Outcome {
    let (versions, args): (Vec<&String>, Vec<&String>) = args.iter().partition(|arg| *arg == "--versions");
    if !versions.is_empty() || args.iter().any(|arg| arg.contains('@')) {
        others::fetch(Install::Allowed);
    }
    let mut command = suite();
    if !versions.is_empty() {
        let backends = command::output(suite().args(["--page", "backends"]))?;
        command.args(backends.lines().filter(|id| is_of_another_version(id)).flat_map(|id| ["--backend", id]));
    }
    command::run(command.args(args))
}

fn is_of_another_version(backend: &str) -> bool {
    backend.contains('@')
}

/// The suite on every backend, a job with a report for each; one that cannot run here is a failure. Those on servers of other
/// versions are left out where these are missing: they are printed by name.
pub(crate) fn jobs<'a>(program: &'a Path, reports: &Path) -> Outcome<Vec<Job<'a>>> {
    let failed = |error| Failure(format!("cannot make {}: {error}", reports.display()));
    std::fs::create_dir_all(reports).map_err(failed)?;
    let page = |page| command::output(suite_of(program).args(["--page", page]));
    let (ids, left_out) = (page("backends")?, page("left-out")?);
    left_out.lines().for_each(|line| println!("  {line}"));
    let mut ids: Vec<&str> = ids.lines().collect();
    ids.sort_by_key(|id| rank(id));
    let job = |id: &str| {
        let (backend, report) = (id.to_owned(), report_of(reports, id));
        let load = if HEAVY.contains(&id) { Load::Heavy } else { Load::Light };
        let work = Box::new(move |only: &[String]| run_one(program, &backend, &report, only));
        Job { name: format!("conformance {id}"), load, unit: Unit::Cases, second: Second::Run, work }
    };
    Ok(ids.into_iter().map(job).collect())
}

/// Its place among the long kinds, or behind them.
fn rank(id: &str) -> usize {
    LONG.iter().position(|prefix| id.starts_with(prefix)).unwrap_or(LONG.len())
}

/// The built program, with the paths of the servers of other versions.
fn suite_of(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("TENURE_SERVERS", others::folder());
    command
}

/// Where the report on a backend is written.
fn report_of(reports: &Path, backend: &str) -> PathBuf {
    reports.join(format!("{}.json", backend.replace(['/', '@'], "-")))
}

/// The counts of a report, and the cases that failed; neither if there is no report, as after a crash.
fn read(report: &str) -> (Counts, Vec<String>) {
    let report: serde_json::Value = serde_json::from_str(report).unwrap_or_default();
    let cases = report["cases"].as_array().map(Vec::as_slice).unwrap_or_default();
    let of = |outcomes: &[&str]| {
        let with = cases.iter().filter(|case| case["outcome"].as_str().is_some_and(|it| outcomes.contains(&it)));
        with.filter_map(|case| case["id"].as_str()).map(str::to_owned).collect::<Vec<_>>()
    };
    let failed = of(&["failed"]);
    let counts = Counts { passed: of(&["passed", "refused"]).len() as u32, failed: failed.len() as u32, ignored: 0 };
    (counts, failed)
}

/// The suite on one backend, or only these cases.
fn run_one(program: &Path, backend: &str, report: &Path, only: &[String]) -> Ran {
    // An existing report is of an earlier run.
    std::fs::remove_file(report).unwrap_or_default();
    let mut command = suite_of(program);
    command.args(["--backend", backend, "--json"]).arg(report);
    let selection = if is_of_another_version(backend) { OTHER_VERSIONS } else { &[] };
    let chosen = if only.is_empty() { selection.to_vec() } else { only.iter().map(String::as_str).collect() };
    command.args(chosen.iter().flat_map(|case| ["--filter", case]));
    let last = |table: &str| table.trim().lines().last().unwrap_or_default().to_owned();
    let ended = steps::ended(&format!("conformance {backend}"), &mut command, last);
    let (counts, failed) = read(&std::fs::read_to_string(report).unwrap_or_default());
    Ran { counts, failure: ended.failure.map(|Failure(why)| why), failed }
}

#[cfg(test)]
mod tests {
    use super::{LONG, rank, read};
    use crate::steps::Counts;

    #[test]
    fn long_backends_come_first() {
        let ranks = ["etcd/3-members", "etcd/single", "postgres/logged", "redis/single", "mysql/mariadb"].map(rank);
        assert_eq!(ranks, [0, 1, 2, LONG.len(), LONG.len()]);
    }

    #[test]
    fn a_report_is_counted_and_one_that_is_missing_counts_nothing() {
        let report = r#"{"cases": [{"id": "a/b", "outcome": "failed"}, {"id": "a/c", "outcome": "passed"},
            {"id": "a/d", "outcome": "refused"}, {"id": "a/e", "outcome": "ignored"}]}"#;
        assert_eq!(read(report), (Counts { passed: 2, failed: 1, ignored: 0 }, vec!["a/b".to_owned()]));
        assert_eq!(read(""), (Counts::default(), vec![]));
    }
}
