//! The conformance suite over the workspace's own drivers: the package `tenure-backends` has the makers.

use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::time::Instant;

use crate::command::{self, Failure, Outcome, cargo};
use crate::setup;

const SUITE: &[&str] = &["--quiet", "--package", "tenure-backends", "--bin", "conformance"];

/// How many backends run at a time. Their cases wait much more than they compute.
const AT_ONCE: usize = 4;
/// By how much real waits are stretched, as so many leave a machine busy; `TENURE_SLACK` says otherwise.
const SLACK: &str = "2";

/// The command that runs the suite, with every backend that can be built here.
pub(crate) fn suite() -> Command {
    let mut command = over_suite("run");
    command.arg("--");
    command
}

/// `cargo build` or `run` of the suite. etcd's client library needs `protoc`.
fn over_suite(verb: &str) -> Command {
    let mut command = cargo(&[verb]);
    command.args(SUITE);
    if command::on_path("protoc") || std::env::var_os("PROTOC").is_some() {
        command.arg("--all-features");
    } else {
        eprintln!("without protoc (Debian: protobuf-compiler, libprotobuf-dev) the etcd backends are left out");
    }
    command
}

/// Passes everything on.
pub(crate) fn run(args: &[String]) -> Outcome {
    command::run(suite().args(args))
}

/// The suite on every backend, with a report for each; one that cannot run here is a failure.
pub(crate) fn run_all(reports: &Path) -> Outcome {
    let failed = |error| Failure(format!("cannot make {}: {error}", reports.display()));
    std::fs::create_dir_all(reports).map_err(failed)?;
    command::run(&mut over_suite("build"))?;
    let program = setup::target().join("debug").join(format!("conformance{}", std::env::consts::EXE_SUFFIX));
    let backends = command::output(Command::new(&program).args(["--page", "backends"]))?;
    let started = Instant::now();
    let waiting = Mutex::new(backends.lines());
    let next = || waiting.lock().ok()?.next();
    let ended = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(backend) = next() {
                    let one = run_one(&program, backend, reports);
                    ended.lock().map(|mut ended| ended.push((backend, one))).unwrap_or_default();
                }
            });
        }
    });
    let mut ended = ended.into_inner().unwrap_or_default();
    println!("\nconformance, {AT_ONCE} backends at a time: {:.0} s", started.elapsed().as_secs_f64());
    for (backend, outcome) in &mut ended {
        if let Err(Failure(line)) = outcome {
            // Beside others it may have had too little of the machine: both outcomes are told, the second one counts.
            println!("  {line}\n  again, by itself: {backend}");
            *outcome = run_one(&program, backend, reports);
        }
    }
    for (_, outcome) in &ended {
        println!("  {}", outcome.as_ref().unwrap_or_else(|Failure(line)| line));
    }
    let red = ended.iter().filter(|(_, outcome)| outcome.is_err()).count();
    match (red, ended.len() == backends.lines().count()) {
        (0, true) => Ok(()),
        (0, false) => Err(Failure("not every backend was run".into())),
        _ => Err(Failure(format!("{red} backends do not keep the contract"))),
    }
}

/// The suite on one backend. Prints its table whole, and on failure what it told on the way; returns its counts.
fn run_one(program: &Path, backend: &str, reports: &Path) -> Outcome<String> {
    let started = Instant::now();
    let report = reports.join(format!("{}.json", backend.replace('/', "-")));
    let mut command = Command::new(program);
    command.args(["--backend", backend, "--json"]).arg(report);
    if std::env::var_os("TENURE_SLACK").is_none() {
        command.env("TENURE_SLACK", SLACK);
    }
    let output = command.output().map_err(|error| Failure(format!("{backend}: {error}")))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let (table, counts) = text.trim().rsplit_once('\n').unwrap_or(("", &text));
    let line = format!("{backend:<28}{counts:<26} in {:.0} s", started.elapsed().as_secs_f64());
    if output.status.success() {
        println!("\n{table}");
        return Ok(line);
    }
    println!("\n{table}\n{}", String::from_utf8_lossy(&output.stderr));
    Err(Failure(format!("{line}: {}", output.status)))
}
