//! Running other programs.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

/// Why a command failed, in words.
#[derive(Clone, Debug)]
pub(crate) struct Failure(pub(crate) String);

/// What a rule of the workspace found.
pub(crate) type Findings = Vec<String>;

pub(crate) type Outcome<T = ()> = Result<T, Failure>;

/// The workspace's folder.
pub(crate) fn root() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.parent().map(PathBuf::from).unwrap_or(here)
}

/// Runs a program to its end, showing its output.
pub(crate) fn run(command: &mut Command) -> Outcome {
    let shown = show(command);
    println!("\n$ {shown}");
    let started = Instant::now();
    let status = command.status().map_err(|error| Failure(format!("cannot run {shown}: {error}")))?;
    println!("  {} in {:.0} s", if status.success() { "done" } else { "failed" }, started.elapsed().as_secs_f64());
    if status.success() { Ok(()) } else { Err(Failure(format!("{shown}: {status}"))) }
}

/// Runs a program and returns what it printed.
pub(crate) fn output(command: &mut Command) -> Outcome<String> {
    let shown = show(command);
    let output = command.output().map_err(|error| Failure(format!("cannot run {shown}: {error}")))?;
    if output.status.success() {
        return String::from_utf8(output.stdout).map_err(|_| Failure(format!("{shown} printed no UTF-8")));
    }
    Err(Failure(format!("{shown}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr))))
}

pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var("CARGO").unwrap_or_else(|_| String::from("cargo")));
    command.args(args);
    command
}

/// Whether a program is on the PATH.
pub(crate) fn on_path(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|folder| folder.join(program).is_file())
}

pub(crate) fn show(command: &Command) -> String {
    let program = PathBuf::from(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned();
    let args = command.get_args().map(|arg| arg.to_string_lossy().into_owned());
    std::iter::once(name).chain(args).collect::<Vec<_>>().join(" ")
}
