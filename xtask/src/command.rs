//! Running other programs.

use std::ffi::OsStr;
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

/// How a program lets all others go first, where the system knows that.
const NICE: &[&str] = &["nice", "-n", "19"];

/// A program that only takes what the others leave of the machine.
pub(crate) fn giving_way(program: impl AsRef<OsStr>) -> Command {
    if !on_path(NICE[0]) {
        return Command::new(program);
    }
    let mut command = Command::new(NICE[0]);
    command.args(&NICE[1..]).arg(program);
    command
}

/// cargo, beside programs that go first.
pub(crate) fn cargo_giving_way(args: &[&str]) -> Command {
    let mut command = giving_way(cargo(&[]).get_program());
    command.args(args);
    command
}

/// Whether a program is on the PATH.
pub(crate) fn on_path(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|folder| folder.join(program).is_file())
}

/// The command line, without what comes before the program to give way.
pub(crate) fn show(command: &Command) -> String {
    let mut args = command.get_args();
    let gives_way = command.get_program() == NICE[0] && args.by_ref().take(2).eq(NICE[1..].iter().map(OsStr::new));
    let program = if gives_way { args.next() } else { None };
    let args = if gives_way { args } else { command.get_args() };
    let program = PathBuf::from(program.unwrap_or(command.get_program()));
    let name = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned();
    let args = args.map(|arg| arg.to_string_lossy().into_owned());
    std::iter::once(name).chain(args).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_as_it_would_be_typed() {
        assert_eq!(show(Command::new("/bin/echo").arg("a")), "echo a");
        assert_eq!(show(giving_way("/bin/echo").args(["-n", "a"])), "echo -n a");
        assert_eq!(show(Command::new("nice").arg("-n")), "nice -n");
        assert!(show(&cargo_giving_way(&["doc"])).ends_with("cargo doc") || std::env::var_os("CARGO").is_some());
    }
}
