//! The workspace's programs, built by cargo once and together, so that the same libraries serve all of them. Test programs run
//! from here, as jobs side by side: cargo would run one after the other, and most wait for servers most of the time.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use cargo_metadata::{Artifact, Message};

use crate::command::{self, Failure, Outcome, cargo};
use crate::others;
use crate::schedule::{Job, Load, Ran, Second, Unit};
use crate::steps::{self, Counts};

/// No test: it prints what a plain `cargo test` leaves out, and here nothing is.
const LEFT_OUT: &str = "left_out";

/// Tests that differ from the others of their program: by how much of the machine they need, or by their arguments.
struct Part {
    program: &'static str,
    /// The modules; none means the whole program.
    modules: &'static [&'static str],
    load: Load,
    args: &'static [&'static str],
    /// The server of another version that they need, and without which they are left out.
    server: Option<&'static str>,
}

const fn computing(program: &'static str, modules: &'static [&'static str]) -> Part {
    Part { program, modules, load: Load::Computing, args: &[], server: None }
}

const PARTS: &[Part] = &[
    computing("core test it", &["world::"]),
    computing("core test parsers", &[]),
    computing("conformance-tests test it", &[]),
    computing("driver-redis test it", &["lock_model::", "queue_model::"]),
    computing("driver-redlock lib tenure_redlock", &[]),
    computing("driver-redlock test it", &["simulation::", "traces::"]),
    computing("redis-support lib tenure_redis_support", &[]),
    Part {
        program: "backends test it",
        modules: &["topologies::"],
        load: Load::Heavy,
        // Servers of a cluster take each other for dead when the machine has no time for them: two clusters at a time.
        args: &["--include-ignored", "--test-threads", "2"],
        server: None,
    },
    Part {
        program: "driver-redis test it",
        modules: &["interop::"],
        load: Load::Light,
        args: &["--include-ignored"],
        server: None,
    },
    Part {
        program: "driver-mysql test it",
        modules: &["mysql_8::"],
        load: Load::Light,
        args: &["--include-ignored"],
        server: Some("mysql-8.0"),
    },
    Part {
        program: "driver-etcd test it",
        // Thousands of places on leases of 2 s.
        modules: &["leaders::", "contention::"],
        load: Load::Heavy,
        args: &["--test-threads", "1"],
        server: None,
    },
];

/// A built test program.
#[derive(Debug)]
pub(crate) struct Program {
    name: String,
    executable: PathBuf,
    /// Where cargo would run it.
    folder: PathBuf,
}

/// The built programs.
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) tests: Vec<Program>,
    bins: BTreeMap<String, PathBuf>,
}

/// Builds every test program of the workspace, with all features, and the programs that tests run.
pub(crate) fn build() -> Outcome<Built> {
    let args = ["test", "--workspace", "--all-features", "--no-run", "--message-format", "json-render-diagnostics"];
    let built = steps::within("building every test", || command::output(&mut cargo(&args)))?;
    let unreadable = |error| Failure(format!("cannot read what cargo printed of the tests: {error}"));
    let messages = Message::parse_stream(built.as_bytes()).collect::<Result<Vec<_>, _>>().map_err(unreadable)?;
    let artifacts = messages.into_iter().filter_map(|message| match message {
        Message::CompilerArtifact(artifact) => Some(artifact),
        _ => None,
    });
    let (tests, others): (Vec<Artifact>, Vec<Artifact>) = artifacts.partition(|artifact| artifact.profile.test);
    let bins = others.into_iter().filter_map(|bin| Some((bin.target.name, bin.executable?.into())));
    let built = Built { tests: tests.into_iter().filter_map(program).collect(), bins: bins.collect() };
    for part in PARTS {
        find(&built.tests, part.program)?;
    }
    Ok(built)
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

/// The program of this name, such as `driver-redis test it`.
pub(crate) fn find<'a>(programs: &'a [Program], name: &str) -> Outcome<&'a Program> {
    programs.iter().find(|program| program.name == name).ok_or_else(|| Failure(format!("there is no {name}")))
}

/// Every test of these programs, with `environment` set: the parts that differ, and a job for the rest of each program.
pub(crate) fn jobs<'a>(programs: &'a [Program], environment: &'a [(&'a str, PathBuf)]) -> Vec<Job<'a>> {
    let mut jobs = Vec::new();
    for program in programs {
        let parts = PARTS.iter().filter(|part| part.program == program.name);
        let (whole, some): (Vec<_>, Vec<_>) = parts.partition(|part| part.modules.is_empty());
        let (run, left): (Vec<&Part>, Vec<_>) =
            some.iter().copied().partition(|part| part.server.is_none_or(others::has));
        for Part { modules, server, .. } in left {
            println!("  {} {} LEFT OUT: no {}", program.name, modules.join(" "), server.unwrap_or_default());
        }
        jobs.extend(run.iter().map(|part| program.job(part.modules, part.load, part.args, environment)));
        let rest = some.iter().flat_map(|part| part.modules).flat_map(|module| ["--skip", module]).collect::<Vec<_>>();
        let load = whole.first().map_or(Load::Light, |part| part.load);
        jobs.push(program.job(&[], load, &rest, environment));
    }
    jobs
}

impl Program {
    pub(crate) fn job<'a>(
        &'a self,
        modules: &[&str],
        load: Load,
        args: &[&str],
        environment: &'a [(&'a str, PathBuf)],
    ) -> Job<'a> {
        let shown = modules.iter().map(|module| module.trim_end_matches(':'));
        let name = std::iter::once(self.name.as_str()).chain(shown).collect::<Vec<_>>().join(" ");
        let own = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let (step, modules, args) = (name.clone(), own(modules), own(args));
        let work = move |only: &[String]| {
            let exact: &[&str] = if only.is_empty() { &[] } else { &["--exact"] };
            let chosen = if only.is_empty() { &modules } else { only };
            let command = |command: &mut Command| {
                command
                    .args(exact)
                    .args(chosen)
                    .args(&args)
                    .envs(environment.iter().map(|(name, value)| (name, value)));
            };
            self.run(&step, load, command)
        };
        Job { name, load, unit: Unit::Tests, second: Second::Run, work: Box::new(work) }
    }

    /// Runs it to its end, as a step.
    pub(crate) fn run(&self, step: &str, load: Load, with: impl FnOnce(&mut Command)) -> Ran {
        let mut command = match load {
            Load::Computing => command::giving_way(&self.executable),
            Load::Light | Load::Heavy => Command::new(&self.executable),
        };
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        with(&mut command);
        let ended = steps::ended(step, &mut command, |stdout| Counts::of(stdout).to_string());
        Ran {
            counts: Counts::of(&ended.stdout),
            failure: ended.failure.map(|Failure(why)| why),
            failed: failed_tests(&ended.stdout),
        }
    }
}

/// The tests that a test program lists as failed, at the end of its output.
fn failed_tests(stdout: &str) -> Vec<String> {
    let Some((_, list)) = stdout.rsplit_once("\nfailures:\n") else { return Vec::new() };
    list.lines().map_while(|line| line.strip_prefix("    ")).map(str::to_owned).collect()
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_program_are_jobs_and_the_rest_skips_them() {
        let program = |name: &str, executable: &str| Program {
            name: name.to_owned(),
            executable: executable.into(),
            folder: command::root(),
        };
        let programs = [program("core test it", "echo"), program("core test parsers", "false")];
        let jobs = jobs(&programs, &[]);
        let seen: Vec<_> = jobs.iter().map(|job| (job.name.as_str(), job.load)).collect();
        assert_eq!(
            seen,
            [
                ("core test it world", Load::Computing),
                ("core test it", Load::Light),
                ("core test parsers", Load::Computing)
            ]
        );
        assert_eq!((jobs[0].work)(&[]).failure, None);
        assert!((jobs[2].work)(&[]).failure.is_some());
        assert!(find(&programs, "core test world").is_err());
    }

    #[test]
    fn failed_tests_are_those_of_the_last_list() {
        let stdout = "failures:\n\n---- a::b stdout ----\nfailures:\n    no\n\n\nfailures:\n    a::b\n    c\n\ntest result: FAILED.\n";
        assert_eq!(failed_tests(stdout), ["a::b", "c"]);
        assert!(failed_tests("test result: ok.").is_empty());
    }

    #[test]
    fn a_program_is_named_after_its_package() {
        let artifact = |kind: &str, name: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","package_id":"p","manifest_path":"{}/core/Cargo.toml",
                "target":{{"kind":["{kind}"],"crate_types":["bin"],"name":"{name}","src_path":"/s","edition":"2024"}},
                "profile":{{"opt_level":"0","debuginfo":0,"debug_assertions":true,"overflow_checks":true,"test":true}},
                "features":[],"filenames":[],"executable":"/e","fresh":true}}"#,
                command::root().display()
            )
            .replace('\n', "")
        };
        let read = |reported: &str| match Message::parse_stream(reported.as_bytes()).next().unwrap().unwrap() {
            Message::CompilerArtifact(artifact) => super::program(artifact),
            other => panic!("{other:?}"),
        };
        assert_eq!(read(&artifact("test", "it")).unwrap().name, "core test it");
        assert!(read(&artifact("test", LEFT_OUT)).is_none());
    }
}
