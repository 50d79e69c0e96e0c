//! `compare`: measures tenure beside other lock and queue libraries, in interleaved rounds on one machine.
//!
//! Called by `cargo xtask compare`, which also prints the tables. The measuring is done in child processes of this same
//! program (`compare worker`), so that every Rust subject runs in the same kind of process; Python and Node peers speak
//! the same protocol of JSON lines.

mod job;
mod measure;
mod run;
mod worker;

use std::process::ExitCode;

use clap::Parser;

/// Measures tenure beside other lock and queue libraries. `cargo xtask compare` calls it and prints the tables.
#[derive(Debug, Parser)]
#[command(name = "compare", bin_name = "compare", arg_required_else_help = true)]
enum Compare {
    /// Locks
    Locks(run::Options),
    /// Delay queues
    Queue(run::Options),
    /// Locks and delay queues of databases (feature `sql`)
    Sql(run::Options),
    /// How the cost of locks and queues grows
    Growth(run::Options),
    /// Measure what standard input asks for: a child process of this program
    #[command(hide = true)]
    Worker,
}

fn main() -> ExitCode {
    let outcome = match Compare::parse() {
        Compare::Locks(options) => run::locks(&options),
        Compare::Queue(options) => run::queue(&options),
        Compare::Sql(options) => run::sql(&options),
        Compare::Growth(options) => run::growth(&options),
        Compare::Worker => worker::serve(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("compare: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> String {
        let words = line.split_whitespace();
        Compare::try_parse_from(words)
            .map_or_else(|error| format!("{:?}", error.kind()), |command| format!("{command:?}"))
    }

    #[test]
    fn arguments_are_read() {
        for (line, read) in [
            ("compare locks --quick", "Locks(Options { quick: true, json: None, only: [] })"),
            (
                "compare queue --only late --json f --only idle",
                "Queue(Options { quick: false, json: Some(\"f\"), only: [\"late\", \"idle\"] })",
            ),
            ("compare sql --only pg-pair", "Sql(Options { quick: false, json: None, only: [\"pg-pair\"] })"),
            ("compare growth --quick", "Growth(Options { quick: true, json: None, only: [] })"),
            ("compare worker", "Worker"),
            ("compare", "DisplayHelpOnMissingArgumentOrSubcommand"),
            ("compare locks --json", "InvalidValue"),
            ("compare locks --quik", "UnknownArgument"),
            ("compare lock", "InvalidSubcommand"),
            ("compare --help", "DisplayHelp"),
        ] {
            assert_eq!(parsed(line), read, "{line}");
        }
    }
}
