//! The suite's side of a worker.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tenure_core::LockName;
use tokio::sync::mpsc;

use crate::case::{CaseResult, Failure};

/// A worker in another process. Dropped, it is killed.
#[derive(Debug)]
pub struct Worker {
    child: Child,
    input: ChildStdin,
    answers: mpsc::UnboundedReceiver<String>,
    patience: Duration,
}

impl Worker {
    /// Starts a worker and waits until it is ready; each answer may take `patience`.
    ///
    /// # Errors
    ///
    /// The process cannot be started, or does not speak the protocol.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future kills the process.
    pub async fn start(mut command: Command, patience: Duration) -> CaseResult<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take().ok_or_else(|| Failure::new("a worker without standard input"))?;
        let output = child.stdout.take().ok_or_else(|| Failure::new("a worker without standard output"))?;
        let (lines, answers) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if lines.send(line).is_err() {
                    break;
                }
            }
        });
        let mut worker = Self { child, input, answers, patience };
        worker.expect("ready").await?;
        Ok(worker)
    }

    /// Sends a command, without waiting for its answer.
    ///
    /// # Errors
    ///
    /// The worker has ended.
    pub fn send(&mut self, command: &str) -> CaseResult {
        Ok(writeln!(self.input, "{command}").and_then(|()| self.input.flush())?)
    }

    /// The next answer.
    ///
    /// # Errors
    ///
    /// There is none in time, or it is an error.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no answer.
    pub async fn answer(&mut self) -> CaseResult<String> {
        let line = tokio::time::timeout(self.patience, self.answers.recv()).await;
        let line = line.map_err(|_| Failure::new(format!("no answer from the worker within {:?}", self.patience)))?;
        let line = line.ok_or_else(|| Failure::new("the worker is gone"))?;
        if line.starts_with("error") { Err(Failure::new(format!("the worker says: {line}"))) } else { Ok(line) }
    }

    /// The next answer, which must begin with this word; returns its other words.
    ///
    /// # Errors
    ///
    /// It is another one, or there is none.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no answer that was not yet received.
    pub async fn expect(&mut self, word: &str) -> CaseResult<Vec<String>> {
        let line = self.answer().await?;
        let mut words = line.split(' ').map(str::to_owned);
        if words.next().as_deref() == Some(word) {
            return Ok(words.collect());
        }
        Err(Failure::new(format!("the worker says \"{line}\" instead of \"{word}\"")))
    }

    /// Sends a command and returns its answer, which must begin with this word.
    ///
    /// # Errors
    ///
    /// Like [`send`](Self::send) and [`expect`](Self::expect).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the answer to the next caller.
    pub async fn ask(&mut self, command: &str, word: &str) -> CaseResult<Vec<String>> {
        self.send(command)?;
        self.expect(word).await
    }

    /// Kills the process: no destructor runs, nothing is released.
    ///
    /// # Errors
    ///
    /// It had ended already.
    pub fn kill(&mut self) -> CaseResult {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Stops the process where it is.
    ///
    /// # Errors
    ///
    /// It has ended.
    pub fn stop(&self) -> CaseResult {
        self.signal(Signal::STOP)
    }

    /// Continues the stopped process.
    ///
    /// # Errors
    ///
    /// It has ended.
    pub fn go_on(&self) -> CaseResult {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> CaseResult {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| Failure::new("a process without a number"))?;
        Ok(kill_process(pid, signal)?)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// A name as the protocol writes it.
pub(crate) fn hex(name: &LockName) -> String {
    name.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}
