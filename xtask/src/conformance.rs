//! The conformance suite over the workspace's own drivers: the package `tenure-backends` has the makers.

use std::path::Path;

use crate::command::{self, Failure, Outcome, cargo};

const SUITE: &[&str] = &["run", "--quiet", "--package", "tenure-backends", "--bin", "conformance", "--"];

/// Passes everything on.
pub(crate) fn run(args: &[String]) -> Outcome {
    command::run(cargo(SUITE).args(args))
}

/// Every backend, with a report each; one that cannot run here is a failure.
pub(crate) fn run_all(reports: &Path) -> Outcome {
    let failed = |error| Failure(format!("cannot make {}: {error}", reports.display()));
    std::fs::create_dir_all(reports).map_err(failed)?;
    command::run(cargo(SUITE).arg("--json-dir").arg(reports).env("TENURE_CONFORMANCE_REQUIRE", "all"))
}
