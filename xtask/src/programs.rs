//! The workspace's programs, built by cargo once and together: the same libraries serve all of them. Test programs are run from
//! here, in lanes side by side: cargo would run one after the other, and some wait for most of a minute.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use cargo_metadata::{Artifact, Message};

use crate::beside;
use crate::command::{self, Failure, Outcome, cargo};
use crate::steps::{self, Counts};

/// Long ones that wait for nearly all of their time: one after the other, they run beside all the others, which run one
/// at a time as cargo runs them.
const WAITING: &[&str] = &["chaos", "queue_herd", "server_mutants", "leaders", "command", "far", "bad_days", "restart"];

/// Long ones that compute, and that no limit of time concerns: they take what programs that wait leave of the machine.
const COMPUTING: &[&str] =
    &["world", "lock_model", "queue_model", "parsers", "tenure_redis_support", "tenure_redlock", "traces"];

/// No test: it prints what a plain `cargo test` leaves out, and here nothing is.
const LEFT_OUT: &str = "left_out";

/// A built test program.
#[derive(Debug)]
pub(crate) struct Program {
    name: String,
    executable: PathBuf,
    /// Where cargo would run it.
    folder: PathBuf,
}

/// What was built.
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) tests: Vec<Program>,
    bins: BTreeMap<String, PathBuf>,
}

/// Builds every test program of the workspace, with all features, and the programs that tests run.
pub(crate) fn build() -> Outcome<Built> {
    let args = ["test", "--workspace", "--all-features", "--no-run", "--message-format", "json-render-diagnostics"];
    let built = steps::within("building every test", || command::output(&mut cargo(&args)))?;
    let told = |error| Failure(format!("cargo tells of the tests what cannot be read: {error}"));
    let messages = Message::parse_stream(built.as_bytes()).collect::<Result<Vec<_>, _>>().map_err(told)?;
    let artifacts = messages.into_iter().filter_map(|message| match message {
        Message::CompilerArtifact(artifact) => Some(artifact),
        _ => None,
    });
    let (tests, others): (Vec<Artifact>, Vec<Artifact>) = artifacts.partition(|artifact| artifact.profile.test);
    let bins = others.into_iter().filter_map(|bin| Some((bin.target.name, bin.executable?.into())));
    let built = Built { tests: tests.into_iter().filter_map(program).collect(), bins: bins.collect() };
    if built.tests.is_empty() { Err(Failure("there are no tests".into())) } else { Ok(built) }
}

fn program(artifact: Artifact) -> Option<Program> {
    let Artifact { executable, target, manifest_path, .. } = artifact;
    let folder = PathBuf::from(manifest_path.parent()?);
    let package = folder.strip_prefix(command::root()).unwrap_or(&folder).display().to_string();
    let name = format!("{package} {} {}", target.kind.first()?, target.name);
    (target.name != LEFT_OUT).then_some(Program {
        name: name.trim().to_owned(),
        executable: executable?.into(),
        folder,
    })
}

impl Built {
    /// A program that tests run, by its name.
    pub(crate) fn bin(&self, name: &str) -> Outcome<&Path> {
        let found = self.bins.get(name).map(PathBuf::as_path);
        found.ok_or_else(|| Failure(format!("cargo did not build {name} with the tests")))
    }
}

/// What a test program does for most of its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    Waiting,
    Computing,
    Other,
}

/// Runs the programs of these lanes, those of one lane one after the other and the lanes side by side; returns how many tests
/// passed, and the programs that failed, with the reason.
pub(crate) fn run_all<'a>(programs: &'a [Program], lanes: &[Lane]) -> (Counts, Vec<(&'a Program, Failure)>) {
    let started = Instant::now();
    let lane = |lane: &Lane| programs.iter().filter(|program| program.lane() == *lane).collect::<Vec<_>>();
    let lanes: Vec<_> = lanes.iter().map(lane).collect();
    let ended = beside::each(lanes.len(), &lanes, |lane| {
        lane.iter().map(|program| (*program, program.run(|command| command))).collect::<Vec<_>>()
    });
    let (ended, mut counts, mut failed) = (ended.concat(), Counts::default(), Vec::new());
    let count = ended.len();
    for (program, outcome) in ended {
        match outcome {
            Ok(passed) => counts += passed,
            Err(why) => failed.push((program, why)),
        }
    }
    println!("{count} test programs in {:.0} s: {counts}", started.elapsed().as_secs_f64());
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

    fn lane(&self) -> Lane {
        match self.target() {
            target if WAITING.contains(&target) => Lane::Waiting,
            target if COMPUTING.contains(&target) => Lane::Computing,
            _ => Lane::Other,
        }
    }

    /// Runs it to its end, as a step.
    pub(crate) fn run(&self, with: impl FnOnce(&mut Command) -> &mut Command) -> Outcome<Counts> {
        let mut command = match self.lane() {
            Lane::Computing => command::giving_way(&self.executable),
            Lane::Waiting | Lane::Other => Command::new(&self.executable),
        };
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
        let (counts, failed) = run_all(&programs, &[Lane::Waiting, Lane::Other]);
        assert_eq!(counts.passed, 0, "none printed a result");
        let failed: Vec<&str> = failed.iter().map(|(program, _)| program.name()).collect();
        assert_eq!(failed, ["b test x", "lib z"]);
        assert_eq!(find(&programs, "c test y").unwrap().target(), "y");
        assert!(find(&programs, "test y").is_err());
    }

    #[test]
    fn a_program_is_named_after_its_package_and_has_a_lane() {
        let told = |kind: &str, name: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","package_id":"p","manifest_path":"{}/core/Cargo.toml",
                "target":{{"kind":["{kind}"],"crate_types":["bin"],"name":"{name}","src_path":"/s","edition":"2024"}},
                "profile":{{"opt_level":"0","debuginfo":0,"debug_assertions":true,"overflow_checks":true,"test":true}},
                "features":[],"filenames":[],"executable":"/e","fresh":true}}"#,
                command::root().display()
            )
            .replace('\n', "")
        };
        let read = |told: &str| match Message::parse_stream(told.as_bytes()).next().unwrap().unwrap() {
            Message::CompilerArtifact(artifact) => super::program(artifact),
            other => panic!("{other:?}"),
        };
        let world = read(&told("test", "world")).unwrap();
        assert_eq!((world.name(), world.lane()), ("core test world", Lane::Computing));
        assert_eq!(read(&told("test", "engine")).unwrap().lane(), Lane::Other);
        assert!(read(&told("test", LEFT_OUT)).is_none());
    }
}
