//! The programs of the package `tenure-backends`.

use std::process::Command;

use crate::command::{self, cargo};
use crate::others;

/// `cargo run` of one, built as for the tests, with every backend that can be built here: etcd's client library needs `protoc`.
pub(crate) fn cargo_run(program: &str) -> Command {
    let mut command = cargo(&["run", "--quiet", "--profile", "test", "--package", "tenure-backends", "--bin", program]);
    command.env("TENURE_SERVERS", others::folder());
    if command::on_path("protoc") || std::env::var_os("PROTOC").is_some() {
        command.arg("--all-features");
    } else {
        eprintln!("without protoc (Debian: protobuf-compiler, libprotobuf-dev) the etcd backends are left out");
    }
    command
}
