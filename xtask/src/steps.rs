//! What `test` and `ci` print: a line for each step when it ends, the steps that run now, and all output of a step that
//! fails; with `--verbose`, of every step.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tenure_testkit::TempDir;

use crate::command::{Failure, Outcome, show};

static VERBOSE: AtomicBool = AtomicBool::new(false);

/// The steps that run now, in the order of their beginning. Who prints holds the lock, so that no line gets into another.
static RUNNING: Mutex<Vec<Running>> = Mutex::new(Vec::new());

/// How often the steps that run are printed: in place on a terminal, as a line of its own in a log.
const ON_A_TERMINAL: Duration = Duration::from_secs(1);
const IN_A_LOG: Duration = Duration::from_secs(60);

/// A step that takes longer hangs: the longest take five minutes, ten on a slow machine.
const LONGEST: Duration = Duration::from_secs(20 * 60);

/// Back to the beginning of the line, which is cleared.
const CLEAR_LINE: &str = "\r\x1b[K";

#[derive(Debug)]
struct Running {
    name: String,
    since: Instant,
}

/// A program that ran as a step.
#[derive(Debug)]
pub(crate) struct Ended {
    /// What the program printed to its standard output.
    pub(crate) stdout: String,
    /// Why it failed, if it did.
    pub(crate) failure: Option<Failure>,
}

/// From now on, every step prints all of its output.
pub(crate) fn be_verbose() {
    VERBOSE.store(true, Ordering::Relaxed);
}

/// Runs a program as a step with the name of its command line.
pub(crate) fn run(command: &mut Command) -> Outcome<Ended> {
    run_as(&show(command), command, |_| String::new())
}

/// Runs a program as a step that must succeed; the summary is made of what it printed.
pub(crate) fn run_as(name: &str, command: &mut Command, summary: impl FnOnce(&str) -> String) -> Outcome<Ended> {
    let mut ended = ended(name, command, summary);
    ended.failure.take().map_or(Ok(ended), Err)
}

/// Runs a program as a step, to its end; the summary is made of what it printed. What it started and left behind, with the
/// same output, does not hold up the step.
pub(crate) fn ended(name: &str, command: &mut Command, summary: impl FnOnce(&str) -> String) -> Ended {
    let since = begin(name);
    match finished(command, LONGEST) {
        Ok((status, [stdout, stderr])) => {
            let (counts, succeeded) = (summary(&stdout), status.is_ok());
            let shown = !succeeded || VERBOSE.load(Ordering::Relaxed);
            let output = if shown { format!("{stdout}{stderr}") } else { String::new() };
            end(name, since, if succeeded { "done" } else { "failed" }, &counts, &output);
            Ended { stdout, failure: status.err().map(|why| Failure(format!("{name}: {counts} {why}"))) }
        }
        Err(error) => {
            end(name, since, "failed", "", "");
            Ended { stdout: String::new(), failure: Some(Failure(format!("cannot run {name}: {error}"))) }
        }
    }
}

/// How a program ended, in words unless it succeeded, and what it printed. One that takes longer than `longest` is killed.
fn finished(command: &mut Command, longest: Duration) -> io::Result<(Result<(), String>, [String; 2])> {
    let folder = TempDir::new("step")?;
    let files = ["stdout", "stderr"].map(|name| folder.path().join(name));
    command.stdin(Stdio::null()).stdout(File::create(&files[0])?).stderr(File::create(&files[1])?);
    let (mut child, since) = (command.spawn()?, Instant::now());
    let status = loop {
        match child.try_wait()? {
            Some(status) if status.success() => break Ok(()),
            Some(status) => break Err(status.to_string()),
            None if since.elapsed() < longest => thread::sleep(Duration::from_millis(20)),
            None => {
                child.kill()?;
                child.wait()?;
                break Err(format!("killed after {longest:?}"));
            }
        }
    };
    let [stdout, stderr] = files.map(std::fs::read);
    let text = |bytes: io::Result<Vec<u8>>| bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    Ok((status, [text(stdout)?, text(stderr)?]))
}

/// Does work of this program as a step.
pub(crate) fn within<T>(name: &str, work: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    let since = begin(name);
    let outcome = work();
    end(name, since, if outcome.is_ok() { "done" } else { "failed" }, "", "");
    outcome
}

/// Says that a step did not run because a program is missing, and how to install that.
pub(crate) fn left_out(name: &str, install: &str) {
    println!("{}", line_of_left_out(name, install));
}

fn line_of_left_out(name: &str, install: &str) -> String {
    format!("left out          {name}  not installed: {install}")
}

fn begin(name: &str) -> Instant {
    static TICKER: Once = Once::new();
    TICKER.call_once(|| drop(thread::spawn(tick)));
    let since = Instant::now();
    running().push(Running { name: name.to_owned(), since });
    since
}

fn end(name: &str, since: Instant, word: &str, summary: &str, output: &str) {
    let mut running = running();
    running.retain(|step| (step.name.as_str(), step.since) != (name, since));
    if std::io::stderr().is_terminal() {
        eprint!("{CLEAR_LINE}");
    }
    if !output.is_empty() {
        println!("\n     Running {name}\n{}", output.trim_end());
    }
    println!("{}", line(word, since.elapsed(), name, summary));
}

fn line(word: &str, took: Duration, name: &str, summary: &str) -> String {
    let line = format!("{word:>8} {:>5.0} s  {name:<44} {summary}", took.as_secs_f64());
    line.trim_end().to_owned()
}

fn running() -> MutexGuard<'static, Vec<Running>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Prints the steps that run now, again and again.
fn tick() {
    let terminal = std::io::stderr().is_terminal();
    loop {
        thread::sleep(if terminal { ON_A_TERMINAL } else { IN_A_LOG });
        let running = running();
        if running.is_empty() {
            continue;
        }
        let steps: Vec<String> =
            running.iter().map(|step| format!("{} ({:.0} s)", step.name, step.since.elapsed().as_secs_f64())).collect();
        let now = format!("running: {}", steps.join(", "));
        if terminal {
            let short: String = now.chars().take(118).collect();
            eprint!("{CLEAR_LINE}{short}");
        } else {
            eprintln!("{now}");
        }
        std::io::stderr().flush().unwrap_or_default();
    }
}

/// How many tests a test program, or several, ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: u32,
    pub(crate) failed: u32,
    pub(crate) ignored: u32,
}

impl Counts {
    /// Reads the lines `test result: ok. 3 passed; 0 failed; 1 ignored; …`.
    pub(crate) fn of(stdout: &str) -> Self {
        let mut counts = Self::default();
        let results = stdout.lines().filter_map(|line| line.strip_prefix("test result: "));
        for part in results.flat_map(|result| result.split([';', '.'])) {
            let Some((number, word)) = part.trim().split_once(' ') else { continue };
            let number = number.parse().unwrap_or(0);
            match word {
                "passed" => counts.passed += number,
                "failed" => counts.failed += number,
                "ignored" => counts.ignored += number,
                _ => {}
            }
        }
        counts
    }
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} passed", self.passed)?;
        for (number, word) in [(self.failed, "failed"), (self.ignored, "ignored")] {
            if number > 0 {
                write!(f, ", {number} {word}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_tests_are_counted() {
        let stdout = "running 3 tests\ntest result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out\n\
                      test result: FAILED. 1 passed; 4 failed; 0 ignored; 0 measured; 7 filtered out; finished in 0.10s\n";
        let counts = Counts::of(stdout);
        assert_eq!(counts, Counts { passed: 3, failed: 4, ignored: 1 });
        assert_eq!(counts.to_string(), "3 passed, 4 failed, 1 ignored");
        assert_eq!(Counts::of("nothing"), Counts::default());
    }

    #[test]
    fn a_step_has_one_line() {
        let line = line("done", Duration::from_secs(12), "core test engine", "3 passed");
        assert_eq!(line, "    done    12 s  core test engine                             3 passed");
    }

    #[test]
    fn a_step_that_is_left_out_has_a_line_as_well() {
        let line = line_of_left_out("cargo deny check", "cargo install cargo-deny");
        assert_eq!(line, "left out          cargo deny check  not installed: cargo install cargo-deny");
    }

    #[cfg(unix)]
    #[test]
    fn a_step_returns_what_its_program_printed_and_its_failure_tells_the_summary() {
        let ended = run(Command::new("echo").arg("a")).unwrap();
        assert_eq!(ended.stdout, "a\n");
        let script = ["-c", "echo 3 red; exit 1"];
        let Failure(why) = run_as("x", Command::new("sh").args(script), |out| out.trim().to_owned()).unwrap_err();
        assert!(why.starts_with("x: 3 red exit"), "{why}");
        assert!(run(&mut Command::new("/nowhere")).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn a_step_that_hangs_is_killed_and_what_one_left_behind_is_not_waited_for() {
        let begun = Instant::now();
        let (status, [stdout, _]) = finished(Command::new("sh").args(["-c", "echo a; sleep 60 &"]), LONGEST).unwrap();
        assert_eq!((status, stdout.as_str()), (Ok(()), "a\n"));
        let (status, [stdout, _]) =
            finished(Command::new("sh").args(["-c", "echo a; exec sleep 60"]), Duration::from_secs(1)).unwrap();
        assert_eq!((status, stdout.as_str()), (Err("killed after 1s".into()), "a\n"));
        assert!(begun.elapsed() < Duration::from_secs(50));
    }
}
