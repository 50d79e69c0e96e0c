//! The conformance suite over the workspace's own drivers: the package `tenure-backends` has the makers.

use std::path::Path;

use crate::command::{self, Failure, Outcome, cargo};

const SUITE: &[&str] = &["run", "--quiet", "--package", "tenure-backends", "--bin", "conformance"];

/// The command that runs the suite, with every backend that can be built here: etcd's client library needs `protoc`.
pub(crate) fn suite() -> std::process::Command {
    let mut command = cargo(SUITE);
    if command::on_path("protoc") || std::env::var_os("PROTOC").is_some() {
        command.arg("--all-features");
    } else {
        eprintln!("without protoc (Debian: protobuf-compiler, libprotobuf-dev) the etcd backends are left out");
    }
    command.arg("--");
    command
}

/// Passes everything on.
pub(crate) fn run(args: &[String]) -> Outcome {
    command::run(suite().args(args))
}

/// Every backend, with a report each; one that cannot run here is a failure.
pub(crate) fn run_all(reports: &Path) -> Outcome {
    let failed = |error| Failure(format!("cannot make {}: {error}", reports.display()));
    std::fs::create_dir_all(reports).map_err(failed)?;
    command::run(suite().arg("--json-dir").arg(reports).env("TENURE_CONFORMANCE_REQUIRE", "all"))
}
