//! Running some tests of a test program, until one fails or time is up.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::build::Program;
use crate::command::{self, Failure, Outcome};

/// Real time may stretch, and what is drawn at random is drawn less often, unless the environment says otherwise: a mistake is
/// tried in seconds.
const SETTINGS: &[(&str, &str)] = &[
    ("TENURE_SLACK", "3"),
    ("TENURE_INPUTS", "2000"),
    ("TENURE_SCHEDULES", "600"),
    ("TENURE_TRACE_STEPS", "3000"),
    ("TENURE_MODEL_STEPS", "3000"),
];

/// For how long tests may run: by their own use of a processor, since others may be busy, and at most so many times as
/// long by the clock.
const CLOCK: u32 = 8;
/// How often a look is taken at what they have used.
const LOOK: Duration = Duration::from_millis(200);

/// Tests of what other tests notice, by their names: they make mistakes of their own.
const LEFT_OUT: &[&str] = &[
    "faults_that_were_put_into_the_scripts_are_noticed",
    "mistakes_are_found",
    "mistakes_of_queues_are_found",
    "the_schedules_find_the_double_hold_of_a_node_that_does_not_wait",
];

/// What became of the tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Passed,
    /// This one failed; without a name, the program ended otherwise than it should.
    Failed(Option<String>),
    TimedOut,
}

/// The tests of a program, but for those that are ignored, or about tests.
pub(crate) fn list(program: &Program) -> Outcome<Vec<String>> {
    let names = |extra: &[&str]| {
        let mut command = Command::new(&program.executable);
        command.current_dir(&program.folder).args(["--list", "--format", "terse"]).args(extra).stderr(Stdio::null());
        let output = command::output(&mut command)?;
        Ok(output.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect::<Vec<_>>())
    };
    let ignored = names(&["--ignored"])?;
    let last = |name: &str| name.rsplit("::").next().unwrap_or_default().to_owned();
    let is_wanted = |name: &String| !ignored.contains(name) && !LEFT_OUT.contains(&last(name).as_str());
    Ok(names(&[])?.into_iter().filter(is_wanted).collect())
}

/// Runs these tests, with this variable for the code that has the mistakes.
pub(crate) fn run(program: &Program, tests: &[&str], limit: Duration, switch: (&str, &OsStr)) -> Outcome<End> {
    let mut command = Command::new(&program.executable);
    command.current_dir(&program.folder).env("CARGO_MANIFEST_DIR", &program.folder);
    command.args(["--exact", "--test-threads", "2"]).args(tests).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let unset = |(name, _): &&(&str, &str)| std::env::var_os(name).is_none();
    command.envs(SETTINGS.iter().filter(unset).copied()).env(switch.0, switch.1);
    let mut child = command.spawn().map_err(|error| Failure(format!("cannot run {}: {error}", program.name)))?;
    let end = watch(&mut child, limit);
    // Whatever is left of it: servers that it started, or itself.
    let group = format!("-{}", child.id());
    let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
    let status = child.wait().map_err(|error| Failure(format!("cannot wait for {}: {error}", program.name)))?;
    Ok(match end {
        Some(end) => end,
        None if status.success() => End::Passed,
        None => End::Failed(None),
    })
}

/// `None` if it ended, and told of no failure.
fn watch(child: &mut Child, limit: Duration) -> Option<End> {
    let (told, heard) = mpsc::channel();
    let output = BufReader::new(child.stdout.take()?);
    std::thread::spawn(move || {
        for line in output.lines().map_while(Result::ok) {
            if told.send(line).is_err() {
                break;
            }
        }
    });
    let until = Instant::now() + limit * CLOCK;
    let is_over = |id| Instant::now() >= until || used(id).is_some_and(|used| used >= limit);
    loop {
        match heard.recv_timeout(LOOK) {
            Ok(line) => {
                if let Some(name) = failed(&line) {
                    return Some(End::Failed(Some(name)));
                }
            }
            Err(mpsc::RecvTimeoutError::Timeout) if is_over(child.id()) => return Some(End::TimedOut),
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
        }
    }
    // It printed its last line; it ends by itself, or not.
    while !is_over(child.id()) {
        if child.try_wait().ok().flatten().is_some() {
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Some(End::TimedOut)
}

/// How long this process has used a processor, where the system tells.
fn used(process: u32) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    ticks(&stat).map(|ticks| Duration::from_millis(ticks * 10))
}

/// In hundredths of a second, for itself and for the system on its behalf: the 14th and 15th field, of which the second
/// is a name in parentheses.
fn ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

/// The test that this line tells to have failed.
fn failed(line: &str) -> Option<String> {
    let name = line.strip_prefix("test ")?.strip_suffix("FAILED")?.split(" ... ").next()?.trim_end();
    Some(name.trim_end_matches(" - should panic").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> End {
        let folder = with_program(script);
        let program = Program { name: "p".into(), executable: folder.join("p"), folder: folder.clone() };
        let end = run(&program, &["a"], Duration::from_millis(300), ("TENURE_MUTANT", "1".as_ref()));
        let _ = std::fs::remove_dir_all(folder);
        end.unwrap()
    }

    fn with_program(script: &str) -> std::path::PathBuf {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = std::env::temp_dir().join(format!("xtask-{}-{}", std::process::id(), script.len()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("p"), format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(folder.join("p"), std::fs::Permissions::from_mode(0o755)).unwrap();
        folder
    }

    #[test]
    fn ends_are_told_apart() {
        assert_eq!(shell("echo test a ... ok"), End::Passed);
        assert_eq!(shell("echo test a ... FAILED; sleep 60"), End::Failed(Some("a".into())));
        assert_eq!(shell("exit 3"), End::Failed(None));
        assert_eq!(shell("sleep 61"), End::TimedOut);
        assert_eq!(shell("while :; do :; done"), End::TimedOut);
    }

    #[test]
    fn what_a_process_used_is_read() {
        let stat = "12 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 250 31 14 15";
        assert_eq!(ticks(stat), Some(281));
        assert_eq!(ticks("no"), None);
        assert!(used(std::process::id()).is_some() || !std::path::Path::new("/proc/self/stat").exists());
    }

    #[test]
    fn the_test_that_failed_is_named() {
        assert_eq!(failed("test a::b ... FAILED"), Some("a::b".into()));
        assert_eq!(failed("test a::b - should panic ... FAILED"), Some("a::b".into()));
        assert_eq!(failed("test a::b ... ok"), None);
        assert_eq!(failed("test result: FAILED. 1 passed"), None);
    }
}
