//! The workspace's test programs: built by cargo once, then run from here, two at a time: cargo would run one
//! after the other, and some wait for most of a minute.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use cargo_metadata::{Artifact, Message};

use crate::beside;
use crate::command::{self, Failure, Outcome, cargo};
use crate::steps::{self, Counts};

/// Long ones that wait for nearly all of their time: one after the other, they run beside all the others, which run one
/// at a time as cargo runs them. What computes is not here: cases with a limit of time do not stand it beside them.
const WAITING: &[&str] = &["queue_herd", "server_mutants", "leaders"];

/// No test: it prints what a plain `cargo test` leaves out, and here nothing is.
const LEFT_OUT: &str = "left_out";

/// A built test program.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    name: String,
    executable: PathBuf,
    /// Where cargo would run it.
    folder: PathBuf,
}

/// Builds every test program of the workspace, with all features.
pub(crate) fn build() -> Outcome<Vec<Program>> {
    let args = ["test", "--workspace", "--all-features", "--no-run", "--message-format", "json-render-diagnostics"];
    let built = steps::within("building every test", || command::output(&mut cargo(&args)))?;
    let told = |error| Failure(format!("cargo tells of the tests what cannot be read: {error}"));
    let messages = Message::parse_stream(built.as_bytes()).collect::<Result<Vec<_>, _>>().map_err(told)?;
    let programs: Vec<Program> =
        messages.into_iter().filter_map(program).filter(|program| program.target() != LEFT_OUT).collect();
    if programs.is_empty() { Err(Failure("there are no tests".into())) } else { Ok(programs) }
}

fn program(message: Message) -> Option<Program> {
    let Message::CompilerArtifact(Artifact { executable: Some(executable), profile, target, manifest_path, .. }) =
        message
    else {
        return None;
    };
    let folder = PathBuf::from(manifest_path.parent()?);
    let package = folder.strip_prefix(command::root()).unwrap_or(&folder).display().to_string();
    let name = format!("{package} {} {}", target.kind.first()?, target.name);
    profile.test.then(|| Program { name: name.trim().to_owned(), executable: executable.into(), folder })
}

/// Runs them all; returns how many tests passed, and the programs that failed.
pub(crate) fn run_all(programs: &[Program]) -> (Counts, Vec<Program>) {
    let started = Instant::now();
    let lanes: (Vec<&Program>, Vec<&Program>) =
        programs.iter().partition(|program| WAITING.contains(&program.target()));
    let ended = beside::each(2, &[lanes.0, lanes.1], |lane| {
        lane.iter().map(|program| (*program, program.run(|command| command))).collect::<Vec<_>>()
    });
    let (mut counts, mut failed) = (Counts::default(), Vec::new());
    for (program, outcome) in ended.concat() {
        match outcome {
            Ok(passed) => counts += passed,
            Err(_) => failed.push(program.clone()),
        }
    }
    println!("{} test programs in {:.0} s: {counts}", programs.len(), started.elapsed().as_secs_f64());
    (counts, failed)
}

/// The program of this name, such as `driver-redis test interop`.
pub(crate) fn find<'a>(programs: &'a [Program], name: &str) -> Outcome<&'a Program> {
    programs.iter().find(|program| program.name == name).ok_or_else(|| Failure(format!("there is no {name}")))
}

impl Program {
    /// What cargo calls it: the name of its file under `tests/`, or its crate's.
    fn target(&self) -> &str {
        self.name.rsplit_once(' ').map_or(&self.name, |(_, target)| target)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Runs it to its end, as a step.
    pub(crate) fn run(&self, with: impl FnOnce(&mut Command) -> &mut Command) -> Outcome<Counts> {
        let mut command = Command::new(&self.executable);
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        let ended = steps::run_as(&self.name, with(&mut command), |stdout| Counts::of(stdout).to_string())?;
        Ok(Counts::of(&ended.stdout))
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn program(name: &str, executable: &str) -> Program {
        Program { name: name.to_owned(), executable: executable.into(), folder: command::root() }
    }

    #[test]
    fn every_program_is_run_and_those_that_fail_are_told() {
        let programs = [
            ("a test x", "true"),
            ("b test x", "false"),
            ("c test y", "true"),
            ("lib z", "/nowhere"),
            ("d test w", "true"),
        ]
        .map(|(name, executable)| program(name, executable));
        let (counts, failed) = run_all(&programs);
        assert_eq!(counts.passed, 0, "none printed a result");
        let failed: Vec<String> = failed.into_iter().map(|program| program.name).collect();
        assert_eq!(failed, ["b test x", "lib z"]);
        assert_eq!(find(&programs, "c test y").unwrap().target(), "y");
        assert!(find(&programs, "test y").is_err());
    }

    #[test]
    fn what_cargo_built_for_tests_is_a_program_and_what_it_built_beside_is_not() {
        let told = |test: bool| {
            format!(
                r#"{{"reason":"compiler-artifact","package_id":"p","manifest_path":"{}/core/Cargo.toml",
                "target":{{"kind":["test"],"crate_types":["bin"],"name":"engine","src_path":"/s","edition":"2024"}},
                "profile":{{"opt_level":"0","debuginfo":0,"debug_assertions":true,"overflow_checks":true,"test":{test}}},
                "features":[],"filenames":[],"executable":"/e","fresh":true}}"#,
                command::root().display()
            )
            .replace('\n', "")
        };
        let read = |told: &str| Message::parse_stream(told.as_bytes()).next().unwrap().unwrap();
        assert_eq!(super::program(read(&told(true))).unwrap().name(), "core test engine");
        assert!(super::program(read(&told(false))).is_none());
    }
}
