//! Child processes that measure, and the programs that they run.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::machine::pinned;
use super::table::Language;
use crate::job::{Job, Outcome};

/// The longest that a job takes to prepare, or to be done.
const PATIENCE: Duration = Duration::from_secs(180);

/// Program and arguments that serve jobs.
#[derive(Clone)]
pub(super) struct Program(PathBuf, Vec<String>);

impl Language {
    /// What runs its subjects, if that is installed here.
    pub(super) fn program(self) -> Outcome<Program> {
        let peers = concat!(env!("CARGO_MANIFEST_DIR"), "/peers");
        Ok(match self {
            Self::Rust => Program(std::env::current_exe()?, vec!["worker".into()]),
            Self::Python(module) => {
                let python = std::env::var_os("TENURE_PYTHON").map_or_else(|| "python3".into(), PathBuf::from);
                probe(&python, &["-c", &format!("import {module}")])
                    .ok_or_else(|| format!("no Python with the module {module} (TENURE_PYTHON, or python3)"))?;
                Program(python, vec!["-u".into(), format!("{peers}/peer.py")])
            }
            Self::Node(module) => {
                let node = PathBuf::from("node");
                probe(&node, &["-e", &format!("require({module:?})")])
                    .ok_or_else(|| format!("no Node with the module {module} (NODE_PATH)"))?;
                Program(node, vec![format!("{peers}/peer.js")])
            }
            Self::Go => Program(go_etcd()?, Vec::new()),
        })
    }
}

fn probe(program: &PathBuf, args: &[&str]) -> Option<()> {
    let output = Command::new(program).args(args).output().ok()?;
    output.status.success().then_some(())
}

/// The peer of etcd's package `concurrency`, built from the modules in `GOPATH`, or from the packages of Debian.
fn go_etcd() -> Outcome<PathBuf> {
    let program = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/target/peers/etcd"));
    let mut go = Command::new("go");
    go.args(["build", "-o"]).arg(&program).arg("./peers/etcd").current_dir(env!("CARGO_MANIFEST_DIR"));
    go.env("GO111MODULE", "off").env("GOFLAGS", "");
    if std::env::var_os("GOPATH").is_none() {
        go.env("GOPATH", "/usr/share/gocode");
    }
    let output = go.output().map_err(|error| format!("no go (golang-go): {error}"))?;
    if output.status.success() {
        return Ok(program);
    }
    let why = String::from_utf8_lossy(&output.stderr);
    let why = why.lines().find(|line| !line.starts_with('#')).unwrap_or_default();
    Err(format!("go cannot build it (golang-etcd-server-dev): {why}").into())
}

/// One process. Killed when dropped.
pub(super) struct Worker {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
    what: String,
}

impl Worker {
    /// A process on the processors `pin`, if there are any to name, that has prepared the job.
    pub(super) fn prepared(Program(program, args): &Program, pin: Option<&str>, job: &Job) -> Outcome<Self> {
        let mut command = pinned(program, pin);
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("cannot start {command:?}: {error}"))?;
        let stdin = child.stdin.take().ok_or("no stdin")?;
        let stdout = child.stdout.take().ok_or("no stdout")?;
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut worker = Self { child, stdin, lines, what: format!("{} of {}", job.what, job.subject) };
        writeln!(worker.stdin, "{}", serde_json::to_string(job)?)?;
        match worker.answer()?.get("ready") {
            Some(_) => Ok(worker),
            None => Err(format!("{}: not ready", worker.what).into()),
        }
    }

    pub(super) fn go(&mut self) -> Outcome {
        Ok(writeln!(self.stdin, "go")?)
    }

    /// The next line: the measurements.
    pub(super) fn answer(&mut self) -> Outcome<Value> {
        let line = self.lines.recv_timeout(PATIENCE).map_err(|error| format!("{}: {error}", self.what))?;
        let value: Value = serde_json::from_str(&line).map_err(|error| format!("{}: {error}: {line}", self.what))?;
        match value.get("error") {
            Some(error) => Err(format!("{}: {error}", self.what).into()),
            None => Ok(value),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
