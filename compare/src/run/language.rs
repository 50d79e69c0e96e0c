//! What a subject is written in, and whether that is installed here.

use std::path::PathBuf;
use std::process::Command;

use crate::failure::Outcome;

/// The language of a worker process.
#[derive(Clone, Debug)]
pub(super) enum Language {
    Rust,
    Python(PathBuf),
    Node(PathBuf),
    /// A program that was built here.
    Go(PathBuf),
}

impl Language {
    /// Program and arguments that serve jobs.
    pub(super) fn command(&self) -> Outcome<(PathBuf, Vec<String>)> {
        let peers = concat!(env!("CARGO_MANIFEST_DIR"), "/peers");
        Ok(match self {
            Self::Rust => (std::env::current_exe()?, vec!["worker".into()]),
            Self::Python(python) => (python.clone(), vec!["-u".into(), format!("{peers}/peer.py")]),
            Self::Node(node) => (node.clone(), vec![format!("{peers}/peer.js")]),
            Self::Go(program) => (program.clone(), Vec::new()),
        })
    }

    /// A Python that has `module`: the one in `TENURE_PYTHON`, or `python3`.
    pub(super) fn python(module: &str) -> Outcome<Self> {
        let python = std::env::var_os("TENURE_PYTHON").map_or_else(|| "python3".into(), PathBuf::from);
        probe(&python, &["-c", &format!("import {module}")])
            .map(|()| Self::Python(python))
            .ok_or_else(|| format!("no Python with the module {module} (TENURE_PYTHON, or python3)").into())
    }

    /// A Node that finds `module`, with the help of `NODE_PATH`.
    pub(super) fn node(module: &str) -> Outcome<Self> {
        probe(&PathBuf::from("node"), &["-e", &format!("require({module:?})")])
            .map(|()| Self::Node("node".into()))
            .ok_or_else(|| format!("no Node with the module {module} (NODE_PATH)").into())
    }

    /// The peer of etcd's package `concurrency`, built from the modules in `GOPATH`, or from the packages of Debian.
    pub(super) fn go_etcd() -> Outcome<Self> {
        let program = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/target/peers/etcd"));
        let mut go = Command::new("go");
        go.args(["build", "-o"]).arg(&program).arg("./peers/etcd").current_dir(env!("CARGO_MANIFEST_DIR"));
        go.env("GO111MODULE", "off").env("GOFLAGS", "");
        if std::env::var_os("GOPATH").is_none() {
            go.env("GOPATH", "/usr/share/gocode");
        }
        let output = go.output().map_err(|error| format!("no go (golang-go): {error}"))?;
        if output.status.success() {
            return Ok(Self::Go(program));
        }
        let why = String::from_utf8_lossy(&output.stderr);
        let why = why.lines().find(|line| !line.starts_with('#')).unwrap_or_default();
        Err(format!("go cannot build it (golang-etcd-server-dev): {why}").into())
    }
}

fn probe(program: &PathBuf, args: &[&str]) -> Option<()> {
    let output = Command::new(program).args(args).output().ok()?;
    output.status.success().then_some(())
}

/// Whether a program is on the PATH.
pub(super) fn on_path(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|folder| folder.join(program).is_file())
}
