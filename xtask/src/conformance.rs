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

/// The backends that every change has to pass: each driver, and each kind of quorum and client library once.
const GATE: &[&str] = &[
    "memory/virtual-time",
    "redis/single",
    "fred/single",
    "redlock/memory-virtual-time",
    "redlock/3-live",
    "etcd/single",
];

/// How much of it to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// What every change has to pass.
    Gate,
    /// Every arrangement of servers as well: clusters, sentinels, TLS, least rights, larger quorums.
    Full,
}

/// The suite with a report for each backend; one that cannot run here is a failure.
pub(crate) fn run_all(reports: &Path, extent: Extent) -> Outcome {
    let failed = |error| Failure(format!("cannot make {}: {error}", reports.display()));
    std::fs::create_dir_all(reports).map_err(failed)?;
    let mut command = suite();
    command.arg("--json-dir").arg(reports).env("TENURE_CONFORMANCE_REQUIRE", "all");
    if extent == Extent::Gate {
        for backend in GATE {
            command.args(["--backend", backend]);
        }
    }
    command::run(&mut command)
}
