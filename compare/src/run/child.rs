//! Child processes that measure.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::language::Language;
use crate::failure::Outcome;
use crate::job::Job;

/// The longest that a job takes to prepare, or to be done.
const PATIENCE: Duration = Duration::from_secs(180);

/// One process. Killed when dropped.
pub(super) struct Worker {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
    what: String,
}

impl Worker {
    /// A process for the code in `language`, on the processors `pin` if there are any to name.
    pub(super) fn start(language: &Language, pin: Option<&str>) -> Outcome<Self> {
        let (program, args) = language.command()?;
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
        Ok(Self { child, stdin, lines, what: String::new() })
    }

    /// Gives the job, and waits until it is prepared.
    pub(super) fn prepare(&mut self, job: &Job) -> Outcome {
        self.what = format!("{} of {}", job.what, job.subject);
        writeln!(self.stdin, "{}", serde_json::to_string(job)?)?;
        match self.answer()?.get("ready") {
            Some(_) => Ok(()),
            None => Err(format!("{}: not ready", self.what).into()),
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

pub(super) fn pinned(program: PathBuf, pin: Option<&str>) -> Command {
    match pin {
        Some(cpus) => {
            let mut command = Command::new("taskset");
            command.args(["-c", cpus]).arg(program);
            command
        }
        None => Command::new(program),
    }
}
