//! Every test there is, with real servers.

use crate::again;
use crate::chaos;
use crate::command::{Failure, Outcome, cargo};
use crate::conformance;
use crate::others;
use crate::programs;
use crate::setup::{self, Install};
use crate::steps;
use crate::swap;

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
    let python = setup::python_with_redis(install)?;
    others::fetch(install);
    let programs = programs::build()?;
    again::tests(&programs)?;
    swap::run()?;
    // Tests that need more than cargo and the servers are ignored by default; here it is at hand.
    let peers = programs::find(&programs, "driver-redis test interop")?;
    peers.run(|command| command.arg("--include-ignored").env("TENURE_PYTHON", python))?;
    // Few at a time: each starts many servers, which take each other for dead when the machine has no time for them.
    let topologies = programs::find(&programs, "backends test topologies")?;
    let failovers = |threads| {
        topologies.run(|command| command.args(["--include-ignored", "--nocapture", "--test-threads", threads]))
    };
    if let Err(Failure(why)) = failovers("2") {
        println!("again, one at a time: {why}");
        failovers("1")?;
    }
    if options.full {
        let long = ["test", "--package", "tenure-backends", "--all-features", "--test", "chaos"];
        steps::run(cargo(&long).args(["--", "--ignored", "--nocapture"]))?;
    }
    chaos::run_all()?;
    conformance::run_all(&setup::target().join("conformance"))
}
