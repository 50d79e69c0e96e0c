//! Programs under test: started, watched, signalled; and the store that they meet in.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tenure_testkit::{TempDir, eventually};

/// How long a program is given that the tests of this machine shall not hang on.
const STRETCH: &str = "TENURE_SLACK";

/// A span in real time that a test allows for, longer on slow machines.
pub(crate) fn patience(span: Duration) -> Duration {
    let slack = std::env::var(STRETCH).ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    span * slack
}

pub(crate) fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// A place for files, and the backend that the programs meet in.
pub(crate) struct World {
    dir: TempDir,
    url: String,
}

impl World {
    /// With an SQLite file of its own.
    pub(crate) fn new() -> Self {
        let dir = TempDir::new("cli").unwrap();
        let url = format!("sqlite://{}", dir.path().join("locks.db").display());
        Self { dir, url }
    }

    /// With a server.
    pub(crate) fn on(url: impl Into<String>) -> Self {
        Self { dir: TempDir::new("cli").unwrap(), url: url.into() }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.file(name)).unwrap_or_default()
    }

    /// The command, not started yet, in the folder of this world.
    pub(crate) fn command<A: AsRef<OsStr>>(&self, args: &[A]) -> Command {
        let mut command = with_default_signals();
        self.prepare(command.arg(env!("CARGO_BIN_EXE_tenure")).args(args));
        command
    }

    pub(crate) fn prepare(&self, command: &mut Command) {
        command.env("TENURE_URL", &self.url).env("NO_COLOR", "1").env_remove("TERM");
        command.current_dir(self.dir.path()).stdin(Stdio::null());
    }

    pub(crate) fn start<A: AsRef<OsStr>>(&self, args: &[A]) -> Running {
        Running::of(&mut self.command(args))
    }

    /// Runs it to its end.
    pub(crate) fn run<A: AsRef<OsStr>>(&self, args: &[A]) -> Ended {
        self.start(args).ended()
    }

    /// Starts `run` of a shell script under the lock `job`.
    pub(crate) fn start_script(&self, options: &[&str], script: &str) -> Running {
        self.start(&script_args(options, script))
    }

    pub(crate) fn run_script(&self, options: &[&str], script: &str) -> Ended {
        self.start_script(options, script).ended()
    }

    /// The lock `job` is free: a run that does not wait gets it.
    pub(crate) fn is_free(&self) -> bool {
        match self.run(&["run", "--no-wait", "job", "--", "true"]).code {
            Some(0) => true,
            Some(75) => false,
            code => panic!("neither free nor busy: {code:?}"),
        }
    }

    pub(crate) fn becomes_free(&self) {
        eventually("the lock to be free", || self.is_free().then_some(())).unwrap();
    }
}

/// A command without its program yet, for which no signal is ignored: a shell ignores interrupts for what it runs in the background,
/// and `nohup` ignores HUP.
pub(crate) fn with_default_signals() -> Command {
    let mut command = Command::new("env");
    command.arg("--default-signal");
    command
}

pub(crate) fn script_args(options: &[&str], script: &str) -> Vec<String> {
    let words = [&["run"], options, &["job", "--", "sh", "-c", script]].concat();
    words.into_iter().map(String::from).collect()
}

/// What a program printed and how it ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ended {
    /// The last line of standard output, as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(self.out.lines().last().unwrap_or_default())
            .unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// A program that runs. Killed when it is dropped.
pub(crate) struct Running {
    child: Child,
    out: Arc<Mutex<String>>,
    err: Arc<Mutex<String>>,
    status: Option<ExitStatus>,
}

impl Running {
    pub(crate) fn of(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let out = gather(child.stdout.take().unwrap());
        let err = gather(child.stderr.take().unwrap());
        Self { child, out, err, status: None }
    }

    /// Writes all of its standard input, which has to be a pipe.
    pub(crate) fn write(&mut self, text: &str) {
        std::io::Write::write_all(&mut self.child.stdin.take().unwrap(), text.as_bytes()).unwrap();
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits until the program, or what it runs, has printed this.
    pub(crate) fn says(&self, text: &str) -> &Self {
        let said = || text_of(&self.out).contains(text) || text_of(&self.err).contains(text);
        if eventually("a line", || said().then_some(())).is_err() {
            panic!("never said {text:?}: {:?} {:?}", text_of(&self.out), text_of(&self.err));
        }
        self
    }

    /// The word that follows this one on standard output.
    pub(crate) fn word(&self, word: &str) -> String {
        let found = || Some(text_of(&self.out).split_once(word)?.1.split_once('\n')?.0.trim().to_owned());
        let shown = || panic!("no {word:?}: {:?} {:?}", text_of(&self.out), text_of(&self.err));
        eventually("a word", found).unwrap_or_else(|_| shown())
    }

    /// The number that follows this word on standard output.
    pub(crate) fn number(&self, word: &str) -> i32 {
        self.word(word).parse().unwrap()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.status = self.status.or_else(|| self.child.try_wait().unwrap());
        self.status.is_none()
    }

    pub(crate) fn ended(mut self) -> Ended {
        let status = eventually("the program to end", || {
            self.is_running();
            self.status
        });
        let Ok(status) = status else { panic!("still running: {:?} {:?}", text_of(&self.out), text_of(&self.err)) };
        // Pipes that others still hold are not waited for: what this program wrote is there, or comes at once.
        let _ = eventually("the pipes to end", || {
            (Arc::strong_count(&self.out) == 1 && Arc::strong_count(&self.err) == 1).then_some(())
        });
        Ended { code: status.code(), out: text_of(&self.out), err: text_of(&self.err) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn text_of(text: &Mutex<String>) -> String {
    text.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Collects lines as they come. The thread ends with the pipe.
pub(crate) fn gather(pipe: impl Read + Send + 'static) -> Arc<Mutex<String>> {
    let text = Arc::new(Mutex::new(String::new()));
    let collected = Arc::clone(&text);
    thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut line = Vec::new();
        while pipe.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
            collected.lock().unwrap_or_else(PoisonError::into_inner).push_str(&String::from_utf8_lossy(&line));
            line.clear();
        }
    });
    text
}

/// Whether a process is there, and no zombie.
pub(crate) fn is_alive(pid: i32) -> bool {
    state(pid).is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// `R`, `S`, `T`, `Z` …
pub(crate) fn state(pid: i32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// Whether a process is stopped, or waits for a child that is stopped before it becomes another program: a shell that has
/// called `vfork` is in no state to be stopped then.
pub(crate) fn is_stopped(pid: i32) -> bool {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    match state(pid) {
        Some('D') => children.split(' ').filter_map(|child| child.parse().ok()).any(|child| state(child) == Some('T')),
        state => state == Some('T'),
    }
}

pub(crate) fn dies(pid: i32) {
    eventually("the process to be gone", || (!is_alive(pid)).then_some(())).unwrap();
}
