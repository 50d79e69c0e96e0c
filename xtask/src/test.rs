//! Every test there is, with real servers.

use std::path::Path;

use crate::again::{Later, Look};
use crate::command::{self, Outcome};
use crate::programs::{self, Built, Lane, Program};
use crate::setup::{self, Install};
use crate::steps::{self, Counts};
use crate::{beside, chaos, conformance, others, swap};

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
    let later = Later::default();
    beside::all([
        Box::new(|| with_servers(options, built, &python, &later)),
        Box::new(|| later.tests(&built.tests, &[Lane::Computing])),
        Box::new(|| examples().and_then(|()| more())),
    ])?;
    later.run()
}

/// The examples in the docs.
fn examples() -> Outcome {
    let examples = ["test", "--workspace", "--all-features", "--doc", "--no-fail-fast"];
    let count = |out: &str| Counts::of(out).to_string();
    steps::run_as("examples in the docs", &mut command::cargo_giving_way(&examples), count).map(drop)
}

fn with_servers<'a>(options: &Options, built: &'a Built, python: &Path, later: &Later<'a>) -> Outcome {
    let topologies = programs::find(&built.tests, "backends test topologies")?;
    beside::all([
        Box::new(|| later.tests(&built.tests, &[Lane::Waiting, Lane::Other])),
        Box::new(|| {
            later.look("clusters and sentinels", |look| failovers(topologies, look));
            Ok(())
        }),
    ])?;
    swap::run(&built.tests)?;
    // Tests that need more than cargo and the servers are ignored by default; here it is at hand.
    let peers = programs::find(&built.tests, "driver-redis test interop")?;
    peers.run(|command| command.arg("--include-ignored").env("TENURE_PYTHON", python))?;
    if options.full {
        programs::find(&built.tests, "backends test chaos")?
            .run(|command| command.args(["--ignored", "--nocapture"]))?;
    }
    chaos::run_all(built.bin("chaos")?)?;
    conformance::run_all(built.bin("conformance")?, setup::target().join("conformance"), later)
}

/// Clusters and sentinels whose servers die. Few at a time: each starts many servers, which take each other for dead when the
/// machine has no time for them.
fn failovers(topologies: &Program, look: Look) -> Outcome {
    let threads = if look == Look::First { "2" } else { "1" };
    let args = ["--include-ignored", "--nocapture", "--test-threads", threads];
    topologies.run(|command| command.args(args)).map(drop)
}
