//! The conformance suite over the workspace's own drivers: the package `tenure-backends` has the makers.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::again::Later;
use crate::command::{self, Failure, Outcome};
use crate::setup::Install;
use crate::{backends, beside, others, steps};

/// Backends whose servers take most of a processor: of each of these kinds one after the other.
const HEAVY: &[&[&str]] = &[&["etcd/"], &["postgres/"]];

/// How many of the others run at a time. Their cases wait much more than they compute: a single Redis takes a seventh of a
/// processor, a cluster of it half of one.
const AT_ONCE: usize = 4;

/// The command that runs the suite, with every backend that can be built here.
pub(crate) fn suite() -> Command {
    let mut command = backends::cargo_run("conformance");
    command.arg("--");
    command
}

/// Passes everything on.
pub(crate) fn run(args: &[String]) -> Outcome {
    if args.iter().any(|arg| arg.contains('@')) {
        others::fetch(Install::Allowed);
    }
    command::run(suite().args(args))
}

/// The suite on every backend, with a report for each; one that cannot run here is a failure. Those on servers of other
/// versions are left out where there are none of these, by name. The cases that fail are done again later.
pub(crate) fn run_all<'a>(program: &'a Path, reports: PathBuf, later: &Later<'a>) -> Outcome {
    let failed = |error| Failure(format!("cannot make {}: {error}", reports.display()));
    std::fs::create_dir_all(&reports).map_err(failed)?;
    let page = |page| command::output(suite_of(program).args(["--page", page]));
    let (ids, left_out) = (page("backends")?, page("left-out")?);
    let started = Instant::now();
    let (heavy, light) = kinds(ids.lines());
    let lanes: Vec<(&[&str], usize)> =
        heavy.iter().map(|ids| (ids.as_slice(), 1)).chain([(light.as_slice(), AT_ONCE)]).collect();
    let first = |id: &&str| run_one(program, id, &report_of(&reports, id, ""), &[]);
    let outcomes = beside::each(lanes.len(), &lanes, |(ids, at_once)| beside::each(*at_once, ids, first)).concat();
    println!(
        "\nconformance, {AT_ONCE} backends at a time and the heavy ones beside them: {:.0} s",
        started.elapsed().as_secs_f64()
    );
    let ids = lanes.iter().flat_map(|(ids, _)| ids.iter().copied());
    for (backend, outcome) in ids.zip(outcomes) {
        println!("  {}", outcome.as_ref().unwrap_or_else(|Failure(line)| line));
        let Err(why) = outcome else { continue };
        let report = std::fs::read_to_string(report_of(&reports, backend, "")).unwrap_or_default();
        let (failed, second) = (failed_cases(&report), report_of(&reports, backend, "-again"));
        let name = format!("conformance {backend} {}", failed.join(" "));
        let backend = backend.to_owned();
        later.add(name.trim_end(), why, move || run_one(program, &backend, &second, &failed).map(drop));
    }
    left_out.lines().for_each(|line| println!("  {line}"));
    Ok(())
}

/// Those of each heavy kind, and the others.
fn kinds<'a>(ids: impl Iterator<Item = &'a str>) -> (Vec<Vec<&'a str>>, Vec<&'a str>) {
    let (mut heavy, mut light) = (vec![Vec::new(); HEAVY.len()], Vec::new());
    for id in ids {
        let kind = HEAVY.iter().position(|kind| kind.iter().any(|prefix| id.starts_with(prefix)));
        kind.map_or(&mut light, |kind| &mut heavy[kind]).push(id);
    }
    (heavy, light)
}

/// The built program, told where the servers of other versions are.
fn suite_of(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("TENURE_SERVERS", others::folder());
    command
}

/// Where the report on a backend lies.
fn report_of(reports: &Path, backend: &str, kind: &str) -> PathBuf {
    reports.join(format!("{}{kind}.json", backend.replace(['/', '@'], "-")))
}

/// The cases that failed, by the report; none if there is no report, as after a crash.
fn failed_cases(report: &str) -> Vec<String> {
    let report: serde_json::Value = serde_json::from_str(report).unwrap_or_default();
    let cases = report["cases"].as_array().map(Vec::as_slice).unwrap_or_default();
    let failed = cases.iter().filter(|case| case["outcome"] == "failed");
    failed.filter_map(|case| case["id"].as_str()).map(str::to_owned).collect()
}

/// The suite on one backend, or only these cases; returns its counts.
fn run_one(program: &Path, backend: &str, report: &Path, only: &[String]) -> Outcome<String> {
    // What is there is of an earlier run.
    std::fs::remove_file(report).unwrap_or_default();
    let mut command = suite_of(program);
    command.args(["--backend", backend, "--json"]).arg(report);
    command.args(only.iter().flat_map(|case| ["--filter", case]));
    backends::stretch(&mut command);
    let counts = |table: &str| table.trim().lines().last().unwrap_or_default().to_owned();
    let ended = steps::run_as(&format!("conformance {backend}"), &mut command, counts)?;
    Ok(format!("{backend:<28}{:<26} in {:.0} s", counts(&ended.stdout), ended.seconds))
}

#[cfg(test)]
mod tests {
    use super::{failed_cases, kinds};

    #[test]
    fn every_backend_has_a_lane() {
        let (heavy, light) = kinds(["redis/single", "postgres/logged", "etcd/single", "mysql/mariadb"].into_iter());
        assert_eq!(heavy, [["etcd/single"], ["postgres/logged"]]);
        assert_eq!(light, ["redis/single", "mysql/mariadb"]);
    }

    #[test]
    fn cases_that_failed_are_found_and_a_report_that_is_not_there_has_none() {
        let report = r#"{"cases": [{"id": "a/b", "outcome": "failed"}, {"id": "a/c", "outcome": "passed"}]}"#;
        assert_eq!(failed_cases(report), ["a/b"]);
        assert!(failed_cases("").is_empty());
    }
}
