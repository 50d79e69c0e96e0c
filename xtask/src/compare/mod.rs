//! Comparing with other libraries: the package in `compare/` measures, this runs it, prints what came out, and writes it
//! into `docs/performance.md` and `docs/growth.md`.

mod chart;
mod growth;
pub(crate) mod page;
mod table;

use std::path::PathBuf;

use crate::command::{self, Outcome, cargo};
use crate::setup::{self, Install};

/// The package is outside the workspace, so that other libraries do not enter the workspace's lock file.
const MANIFEST: &str = "compare/Cargo.toml";

#[derive(Debug, clap::Subcommand)]
pub(crate) enum What {
    /// Locks
    Locks(Options),
    /// Delay queues
    Queue(Options),
    /// Locks and delay queues of databases
    Sql(Options),
    /// How cost grows: over waiters, held locks, names, clients, payloads and round trips
    Growth(Options),
    /// Rewrite docs/performance.md and docs/growth.md from the figures that are there
    Page,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Less of everything: at most ten minutes
    #[arg(long)]
    quick: bool,
    /// Write the figures there, and leave the page alone
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The sections whose names begin with it (may be repeated)
    #[arg(long, value_name = "SECTION")]
    only: Vec<String>,
}

pub(crate) fn run(what: What) -> Outcome {
    match what {
        What::Locks(options) => measure("locks", options),
        What::Queue(options) => measure("queue", options),
        What::Sql(options) => measure("sql", options),
        What::Growth(options) => measure(growth::NAME, options),
        What::Page => page::rewrite(),
    }
}

fn measure(name: &str, Options { quick, json, only }: Options) -> Outcome {
    let passed = quick.then_some("--quick").into_iter().chain(only.iter().flat_map(|section| ["--only", section]));
    let documented = json.is_none();
    let json = json.unwrap_or_else(|| page::source(name));
    let mut command = cargo(&["run", "--release", "--quiet", "--manifest-path", MANIFEST]);
    if name == "sql" {
        command.args(["--features", "sql"]);
    } else if command::on_path("protoc") || std::env::var_os("PROTOC").is_some() {
        command.args(["--features", "etcd"]);
    }
    if std::env::var_os("TENURE_PYTHON").is_none()
        && let Ok(python) = setup::python_with_redis(Install::Never)
    {
        command.env("TENURE_PYTHON", python);
    }
    command::run(command.arg("--").arg(name).args(passed).arg("--json").arg(&json))?;
    println!("\n{}", page::tables(&page::read(&json)?));
    if documented { page::rewrite() } else { Ok(()) }
}
