//! `cargo xtask`: the commands of this workspace. `cargo xtask help` lists them.

mod backends;
mod book;
mod chaos;
mod ci;
mod command;
mod compare;
mod conformance;
mod idle;
mod markdown;
mod others;
mod programs;
mod schedule;
mod setup;
mod steps;
mod swap;
mod test;
mod tidy;

use std::process::ExitCode;

use clap::Parser;
use command::Failure;

/// What `cargo xtask conformance` passes on.
const CONFORMANCE: &str = "\
Passed on:
  --list               print the backends and the cases
  --backend <id>       the backend to run (may be repeated; default: all that can run here)
  --versions           every backend on a server of a further version, such as redis/single@6.2
  --json <file>        write the report as JSON
  --filter <text>      only cases whose id contains the text";

/// What `cargo xtask chaos` passes on.
const CHAOS: &str = "\
Passed on:
  --list               print the backends
  --backend <id>       the backend to run
  --queue              producers and consumers of a delay queue, in place of locks
  --seconds <n>        for how long there are faults (default 30)
  --seed <n>           decides the faults (default 1)
  --faults <kinds>     none, or some of clients,servers,links (default: all)
  --data kept|lost     what a killed server has after its restart (default: kept)
  --processes <n>, --tasks <n>, --names <n>, --steady <n>
                       client processes (4), tasks of each (5) on the names that all want (3), and locks of each
                       that are held for several ttls (8)
  --patience <s>       how soon after the last fault everybody has to be served
  --broken <mutant>    clients whose driver has something wrong, or that lie, to try the judge
  --logs <folder>      leave the logs of the clients there
  --brief              one line, if nothing is wrong";

/// The commands of this workspace.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", arg_required_else_help = true)]
enum Xtask {
    /// Install what the tests need (Debian and Ubuntu), run every test, chaos, print the suite's tables
    Test(test::Options),
    /// Run the conformance suite alone
    #[command(after_help = CONFORMANCE, override_usage = "cargo xtask conformance [OPTIONS]")]
    Conformance(PassedOn),
    /// Client processes over servers that are stopped, killed and cut off, and a judge
    #[command(after_help = CHAOS, override_usage = "cargo xtask chaos [OPTIONS]")]
    Chaos(PassedOn),
    /// Measure beside other libraries and how cost grows, print the tables, rewrite docs/performance.md and docs/growth.md
    #[command(subcommand)]
    Compare(compare::What),
    /// Check dependency arrows, packages, file lengths, MSRV, case registration, links, generated docs
    Tidy(tidy::Options),
    /// Build the book in target/book/html, with `mdbook`
    Book,
    /// What the gate runs: fmt, clippy for each feature, docs, tidy, test
    Ci(test::Options),
}

/// Arguments of a program of the package `tenure-backends`.
#[derive(Debug, clap::Args)]
struct PassedOn {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    args: Vec<String>,
}

fn main() -> ExitCode {
    let command = Xtask::parse();
    if let Err(error) = std::env::set_current_dir(command::root()) {
        eprintln!("error: cannot enter the workspace: {error}");
        return ExitCode::FAILURE;
    }
    let outcome = match command {
        Xtask::Test(options) => test::run(&options),
        Xtask::Conformance(passed) => conformance::run(&passed.args),
        Xtask::Chaos(passed) => chaos::run(&passed.args),
        Xtask::Compare(what) => compare::run(what),
        Xtask::Tidy(options) => tidy::run(&options, None),
        Xtask::Book => book::build(),
        Xtask::Ci(options) => ci::run(&options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure(why)) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> String {
        let words = line.split_whitespace();
        Xtask::try_parse_from(words)
            .map_or_else(|error| format!("{:?}", error.kind()), |command| format!("{command:?}"))
    }

    #[test]
    fn arguments_are_read_and_those_of_other_programs_passed_on() {
        for (line, read) in [
            ("xtask test --full --no-install", "Test(Options { no_install: true, full: true, verbose: false })"),
            ("xtask ci", "Ci(Options { no_install: false, full: false, verbose: false })"),
            ("xtask book", "Book"),
            ("xtask tidy --fix", "Tidy(Options { fix: true })"),
            ("xtask compare page", "Compare(Page)"),
            ("xtask compare sql --quick", "Compare(Sql(Options { quick: true, json: None, only: [] }))"),
            ("xtask compare locks --quick", "Compare(Locks(Options { quick: true, json: None, only: [] }))"),
            (
                "xtask compare queue --only a --json f --only b",
                "Compare(Queue(Options { quick: false, json: Some(\"f\"), only: [\"a\", \"b\"] }))",
            ),
            ("xtask chaos --list", "Chaos(PassedOn { args: [\"--list\"] })"),
            (
                "xtask conformance --backend a --filter b",
                "Conformance(PassedOn { args: [\"--backend\", \"a\", \"--filter\", \"b\"] })",
            ),
            ("xtask conformance --help", "DisplayHelp"),
            ("xtask chaos --help", "DisplayHelp"),
            ("xtask test --fulll", "UnknownArgument"),
            ("xtask tidi", "InvalidSubcommand"),
            ("xtask compare", "DisplayHelpOnMissingArgumentOrSubcommand"),
        ] {
            assert_eq!(parsed(line), read, "{line}");
        }
    }
}
