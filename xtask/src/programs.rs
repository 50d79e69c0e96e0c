//! The workspace's test programs: built by cargo once, then run from here, two at a time: cargo would run one
//! after the other, and some wait for most of a minute.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use cargo_metadata::{Artifact, Message};

use crate::beside;
use crate::command::{self, Failure, Outcome, cargo};

/// Long ones that wait for nearly all of their time: one after the other, they run beside all the others, which run one
/// at a time as cargo runs them. What computes is not here: cases with a limit of time do not stand it beside them.
const WAITING: &[&str] = &["queue_herd", "server_mutants", "leaders"];

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
    println!("\n$ cargo {}", args.join(" "));
    let started = Instant::now();
    let output = command::output(cargo(&args).stderr(Stdio::inherit()))?;
    println!("  done in {:.0} s", started.elapsed().as_secs_f64());
    let told = |error| Failure(format!("cargo tells of the tests what cannot be read: {error}"));
    let messages = Message::parse_stream(output.as_bytes()).collect::<Result<Vec<_>, _>>().map_err(told)?;
    let programs: Vec<Program> = messages.into_iter().filter_map(program).collect();
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

/// Runs them all, and prints what each has printed when it ends; returns those that failed.
pub(crate) fn run_all(programs: &[Program]) -> Vec<Program> {
    let started = Instant::now();
    let lanes: (Vec<&Program>, Vec<&Program>) =
        programs.iter().partition(|program| WAITING.contains(&program.target()));
    let failed = beside::each(2, &[lanes.0, lanes.1], |lane| {
        lane.iter().filter(|program| program.run(|command| command).is_err()).copied().cloned().collect::<Vec<_>>()
    });
    println!("\n{} test programs in {:.0} s", programs.len(), started.elapsed().as_secs_f64());
    failed.concat()
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

    /// Runs it to its end, then prints all that it printed, so that those beside it do not get in between.
    pub(crate) fn run(&self, with: impl FnOnce(&mut Command) -> &mut Command) -> Outcome {
        let started = Instant::now();
        let mut command = Command::new(&self.executable);
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        let output =
            with(&mut command).output().map_err(|error| Failure(format!("cannot run {}: {error}", self.name)))?;
        let word = if output.status.success() { "done" } else { "failed" };
        println!(
            "\n     Running {}\n{}{}  {word}: {} in {:.0} s",
            self.name,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
            self.name,
            started.elapsed().as_secs_f64()
        );
        if output.status.success() { Ok(()) } else { Err(Failure(format!("{}: {}", self.name, output.status))) }
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
        let failed: Vec<String> = run_all(&programs).into_iter().map(|program| program.name).collect();
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
