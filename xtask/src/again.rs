//! A second look at tests that failed among others: real servers, real waits and few processors make some fail that pass
//! by themselves. Both outcomes are printed; one that fails twice is a failure.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use crate::command::{self, Failure, Outcome, cargo};

/// What cargo runs for every test of the workspace.
const ALL: &[&str] = &["test", "--workspace", "--all-features", "--no-fail-fast"];

/// Every test; the test programs that fail run once more, each by itself.
pub(crate) fn tests() -> Outcome {
    let failed = failed_targets(cargo(ALL))?;
    for target in &failed {
        println!("\nagain, by itself: {target}");
        let (package, kind) = split(target)?;
        command::run(cargo(ALL).args(kind).args(["--", "--test-threads", "2"]))
            .map_err(|Failure(why)| Failure(format!("{package} failed twice: {why}")))?;
        println!("  {target} failed among the others and passed by itself");
    }
    Ok(())
}

/// A test program as cargo names it, `-p package --test name`: the package, and what selects the program.
fn split(target: &str) -> Outcome<(String, Vec<String>)> {
    let words: Vec<String> = target.split(' ').map(str::to_owned).collect();
    match words.as_slice() {
        [flag, package, kind @ ..] if flag == "-p" && !kind.is_empty() => Ok((package.clone(), kind.to_vec())),
        _ => Err(Failure(format!("tests failed that cannot be told apart: {target}"))),
    }
}

/// Runs cargo, showing what it prints, and picks out the test programs that it says failed.
fn failed_targets(mut all: Command) -> Outcome<Vec<String>> {
    let failure = |error| Failure(format!("cannot run the tests: {error}"));
    let mut child = all.stderr(Stdio::piped()).spawn().map_err(failure)?;
    let mut failed = Vec::new();
    let output = child.stderr.take().ok_or_else(|| Failure("the tests have no output".into()))?;
    for line in BufReader::new(output).lines() {
        let line = line.map_err(failure)?;
        eprintln!("{line}");
        let named = line.trim().strip_prefix('`').and_then(|line| line.strip_suffix('`'));
        failed.extend(named.filter(|name| name.starts_with("-p ")).map(str::to_owned));
    }
    match (child.wait().map_err(failure)?.success(), failed.is_empty()) {
        (true, _) => Ok(Vec::new()),
        (false, false) => Ok(failed),
        (false, true) => Err(Failure("the tests cannot be built, or failed without saying which".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_program_is_told_by_what_selects_it() {
        let (package, kind) = split("-p tenure-core --test engine").unwrap();
        assert_eq!((package.as_str(), kind), ("tenure-core", vec!["--test".to_owned(), "engine".to_owned()]));
        assert!(split("-p tenure-core").is_err() && split("engine").is_err());
    }

    #[cfg(unix)]
    #[test]
    fn what_cargo_names_is_run_again_and_a_build_that_breaks_is_not() {
        let says = |text: &str| {
            let mut shell = Command::new("sh");
            shell.args(["-c", &format!("printf '%s\\n' '{text}' >&2; exit 1")]);
            failed_targets(shell)
        };
        assert_eq!(says("    `-p tenure-core --test engine`").unwrap(), ["-p tenure-core --test engine"]);
        assert!(says("error: could not compile `tenure-core`").is_err());
    }
}
