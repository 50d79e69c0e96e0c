//! The programs of the package `tenure-backends`.

use std::path::PathBuf;
use std::process::Command;

use crate::command::{self, Outcome, cargo};
use crate::{others, setup, steps};

/// By how much real waits are stretched in the gate, whose runs leave a machine busy; `TENURE_SLACK` says otherwise.
pub(crate) const SLACK: &str = "2";

/// `cargo build` or `run` of one, with every backend that can be built here: etcd's client library needs `protoc`.
pub(crate) fn cargo_of(verb: &str, program: &str) -> Command {
    let mut command = cargo(&[verb, "--quiet", "--package", "tenure-backends", "--bin", program]);
    command.env("TENURE_SERVERS", others::folder());
    if command::on_path("protoc") || std::env::var_os("PROTOC").is_some() {
        command.arg("--all-features");
    } else {
        eprintln!("without protoc (Debian: protobuf-compiler, libprotobuf-dev) the etcd backends are left out");
    }
    command
}

/// Builds one, and tells where it is.
pub(crate) fn built(program: &str) -> Outcome<PathBuf> {
    steps::run(&mut cargo_of("build", program))?;
    Ok(setup::target().join("debug").join(format!("{program}{}", std::env::consts::EXE_SUFFIX)))
}
