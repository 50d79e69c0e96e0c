//! `cargo xtask`: the commands of this workspace. `cargo xtask help` lists them.

mod again;
mod backends;
mod chaos;
mod ci;
mod command;
mod compare;
mod conformance;
mod others;
mod setup;
mod swap;
mod test;
mod tidy;

use std::process::ExitCode;

use command::Failure;

const HELP: &str = "\
cargo xtask <command>

  test                       install what the tests need (Debian and Ubuntu), run every test, chaos, print the suite's tables
      --no-install           do not install anything; say what is missing
      --full                 also three minutes of processes over servers that are stopped and killed
  conformance                run the conformance suite alone
      --list                 print the backends and the cases
      --backend <id>         the backend to run (may be repeated; default: all that can run here)
      --json <file>          write the report as JSON
      --filter <text>        only cases whose id contains the text
  chaos                      client processes over servers that are stopped, killed and cut off, and a judge
      --list                 print the backends
      --backend <id>         the backend to run
      --queue                producers and consumers of a delay queue, in place of locks
      --seconds <n>          for how long there are faults (default 30)
      --seed <n>             decides the faults (default 1)
      --faults <kinds>       none, or some of clients,servers,links (default: all)
      --data kept|lost       what a killed server has after its restart (default: kept)
      --processes <n>, --tasks <n>, --names <n>, --steady <n>
                             client processes (4), tasks of each (5) on the names that all want (3), and locks of each
                             that are held for several ttls (8)
      --patience <s>         how soon after the last fault everybody has to be served
      --broken <mutant>      clients whose driver has something wrong, or that lie, to try the judge
      --logs <folder>        leave the logs of the clients there
      --brief                one line, if nothing is wrong
  compare locks|queue        measure beside other libraries, print the tables, rewrite docs/performance.md
      --quick                less of everything: at most ten minutes
      --json <file>          write the figures there, and leave the page alone
      --only <section>       one section (may be repeated)
  compare page               rewrite docs/performance.md from the figures that are there
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
        "chaos" => chaos::run(&args),
        "compare" => compare::run(&args),
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
