//! `cargo xtask`: the commands of this workspace. `cargo xtask help` lists them.

mod ci;
mod command;
mod conformance;
mod setup;
mod test;
mod tidy;

use std::process::ExitCode;

use command::Failure;

const HELP: &str = "\
cargo xtask <command>

  test                       install what the tests need (Debian and Ubuntu), run every test, print the suite's tables
      --no-install           do not install anything; say what is missing
      --full                 also clusters, sentinels, TLS, least rights and larger quorums: many minutes more
  conformance                run the conformance suite alone
      --list                 print the backends and the cases
      --backend <id>         the backend to run (may be repeated; default: all that can run here)
      --json <file>          write the report as JSON
      --filter <text>        only cases whose id contains the text
  tidy                       check dependency arrows, file lengths, MSRV, case registration, generated docs
      --fix                  rewrite the generated docs
  ci                         fmt, clippy for each feature, docs, tidy, test
";

fn main() -> ExitCode {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let command = if args.is_empty() { String::from("help") } else { args.remove(0) };
    if let Err(error) = std::env::set_current_dir(command::root()) {
        eprintln!("error: cannot enter the workspace: {error}");
        return ExitCode::FAILURE;
    }
    let outcome = match command.as_str() {
        "test" => test::run(&args),
        "conformance" => conformance::run(&args),
        "tidy" => tidy::run(&args),
        "ci" => ci::run(&args),
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            Ok(())
        }
        other => Err(Failure(format!("there is no command \"{other}\"; see cargo xtask help"))),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure(why)) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}
