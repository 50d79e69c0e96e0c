//! Every test there is, with real servers.

use std::path::Path;
use std::thread;

use crate::command::{self, Failure, Outcome};
use crate::programs::{self, Built, Lane};
use crate::setup::{self, Install};
use crate::steps::{self, Counts};
use crate::{again, chaos, conformance, others, swap};

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Do not install anything; say what is missing
    #[arg(long)]
    no_install: bool,
    /// Also three minutes of processes over servers that are stopped and killed
    #[arg(long)]
    full: bool,
    /// Print all output of every step, not of those alone that fail
    #[arg(long)]
    verbose: bool,
}

impl Options {
    /// Decides what the steps print.
    pub(crate) fn begin(&self) {
        if self.verbose {
            steps::be_verbose();
        }
    }
}

pub(crate) fn run(options: &Options) -> Outcome {
    options.begin();
    let install = if options.no_install { Install::Never } else { Install::Allowed };
    setup::prepare(install)?;
    run_built(options, &programs::build()?, || Ok(()))
}

/// Runs every test that was built: those with servers, which mostly wait, and beside them what computes, and what compiles, `more`
/// as its last. These take what the others leave of the machine. Only what compiles calls cargo: one of its commands waits for
/// the other.
pub(crate) fn run_built(options: &Options, built: &Built, more: impl FnOnce() -> Outcome + Send) -> Outcome {
    let install = if options.no_install { Install::Never } else { Install::Allowed };
    let python = setup::python_with_redis(install)?;
    others::fetch(install);
    thread::scope(|scope| {
        let computing = scope.spawn(|| again::tests(&built.tests, &[Lane::Computing]).map(drop));
        let compiling = scope.spawn(|| examples().and_then(|()| more()));
        let waited = with_servers(options, built, &python);
        let end = |thread: thread::ScopedJoinHandle<'_, Outcome>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        let failed: Vec<_> = [waited, end(computing), end(compiling)].into_iter().filter_map(Result::err).collect();
        if failed.is_empty() {
            return Ok(());
        }
        Err(Failure(failed.into_iter().map(|Failure(why)| why).collect::<Vec<_>>().join("; ")))
    })
}

/// The examples in the docs.
fn examples() -> Outcome {
    let examples = ["test", "--workspace", "--all-features", "--doc", "--no-fail-fast"];
    let count = |out: &str| Counts::of(out).to_string();
    steps::run_as("examples in the docs", &mut command::cargo_giving_way(&examples), count).map(drop)
}

fn with_servers(options: &Options, built: &Built, python: &Path) -> Outcome {
    again::tests(&built.tests, &[Lane::Waiting, Lane::Other])?;
    swap::run(&built.tests)?;
    // Tests that need more than cargo and the servers are ignored by default; here it is at hand.
    let peers = programs::find(&built.tests, "driver-redis test interop")?;
    peers.run(|command| command.arg("--include-ignored").env("TENURE_PYTHON", python))?;
    // Few at a time: each starts many servers, which take each other for dead when the machine has no time for them.
    let topologies = programs::find(&built.tests, "backends test topologies")?;
    let failovers = |threads| {
        topologies.run(|command| command.args(["--include-ignored", "--nocapture", "--test-threads", threads]))
    };
    if let Err(Failure(why)) = failovers("2") {
        println!("again, one at a time: {why}");
        failovers("1")?;
    }
    if options.full {
        programs::find(&built.tests, "backends test chaos")?
            .run(|command| command.args(["--ignored", "--nocapture"]))?;
    }
    chaos::run_all(built.bin("chaos")?)?;
    conformance::run_all(built.bin("conformance")?, &setup::target().join("conformance"))
}
