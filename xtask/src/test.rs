//! Every test there is, with real servers.

use crate::command::{self, Failure, Outcome};
use crate::programs::{self, Built};
use crate::schedule::{self, Job, Load, Ran, Second, Unit};
use crate::setup::{self, Install};
use crate::steps::{self, Counts};
use crate::{chaos, conformance, others, swap};

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

    fn install(&self) -> Install {
        if self.no_install { Install::Never } else { Install::Allowed }
    }
}

pub(crate) fn run(options: &Options) -> Outcome {
    options.begin();
    setup::prepare(options.install())?;
    run_built(options, &programs::build()?, Vec::new())
}

/// Runs every test that was built, the suite on every backend and chaos, and `more` that compiles. Only what compiles calls
/// cargo: one of its commands waits for the other.
pub(crate) fn run_built<'a>(options: &Options, built: &'a Built, more: Vec<Job<'a>>) -> Outcome {
    // Tests that need more than cargo and the servers are ignored by default; here it is at hand.
    let python = setup::python_with_redis(options.install())?;
    let environment = [("TENURE_PYTHON", python), ("TENURE_SERVERS", others::folder())];
    others::fetch(options.install());
    let reports = setup::target().join("conformance");
    let mut jobs = programs::jobs(&built.tests, &environment);
    jobs.extend(conformance::jobs(built.bin("conformance")?, &reports)?);
    jobs.extend(chaos::jobs(built.bin("chaos")?));
    jobs.push(swap::job(&built.tests));
    jobs.push(examples());
    jobs.extend(more);
    if options.full {
        let program = programs::find(&built.tests, "backends test it")?;
        jobs.push(program.job(&["chaos::"], Load::Heavy, &["--ignored", "--nocapture"], &[]));
    }
    schedule::run(&jobs)
}

/// The examples in the docs.
fn examples() -> Job<'static> {
    let name = String::from("examples in the docs");
    let work = |_: &[String]| {
        let args = ["test", "--workspace", "--all-features", "--doc", "--no-fail-fast"];
        let count = |out: &str| Counts::of(out).to_string();
        let ended = steps::ended("examples in the docs", &mut command::cargo_giving_way(&args), count);
        Ran { counts: Counts::of(&ended.stdout), failure: ended.failure.map(|Failure(why)| why), failed: Vec::new() }
    };
    Job { name, load: Load::Computing, unit: Unit::Tests, second: Second::Never, work: Box::new(work) }
}
