//! Mutants of the code: one small mistake at a time, and the tests that have to notice it.
//!
//! Rust is mutated by `cargo-mutants`, which has to be installed; Lua by the models of driver-redis, which put a mistake into a
//! script before they send it and so need no build for each.

use clap::ValueEnum as _;

use crate::command::{self, Failure, Outcome, cargo, on_path};
use crate::setup;

/// Whose code is mutated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Driver {
    Core,
    Memory,
    Redis,
    Redlock,
    Etcd,
    /// The scripts of Redis
    Lua,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Whose code is mutated (may be repeated; default: all)
    #[arg(long)]
    driver: Vec<Driver>,
    /// For cargo-mutants, such as `-- --shard 1/50 --list`
    #[arg(last = true)]
    rest: Vec<String>,
}

impl Driver {
    /// The package, and those whose tests have to notice; nothing for what is not written in Rust.
    fn packages(self) -> Option<(&'static str, &'static [&'static str])> {
        match self {
            Self::Core => Some(("tenure-core", &["tenure-core", "tenure-memory"])),
            Self::Memory => Some(("tenure-memory", &["tenure-memory", "tenure-conformance"])),
            Self::Redis => Some(("tenure-redis-support", &["tenure-redis-support", "tenure-redis"])),
            Self::Redlock => Some(("tenure-redlock", &["tenure-redlock"])),
            Self::Etcd => Some(("tenure-etcd", &["tenure-etcd"])),
            Self::Lua => None,
        }
    }
}

pub(crate) fn run(options: &Options) -> Outcome {
    let chosen = |driver: &&Driver| options.driver.is_empty() || options.driver.contains(driver);
    Driver::value_variants().iter().filter(chosen).try_for_each(|driver| match driver.packages() {
        Some((package, tests)) => rust(package, tests, &options.rest),
        None => lua(),
    })
}

/// `TENURE_MUTANTS_EACH`, `TENURE_MUTANTS_FROM` and `TENURE_MUTANT_STEPS` say which, and for how long.
fn lua() -> Outcome {
    let models =
        ["test", "--package", "tenure-redis", "--all-features", "--test", "lock_model", "--test", "queue_model"];
    command::run(cargo(&models).args(["--no-fail-fast", "--", "--ignored", "--nocapture", "--test-threads", "1"]))
}

fn rust(package: &str, tests: &[&str], rest: &[String]) -> Outcome {
    if !on_path("cargo-mutants") {
        let install = "cargo install cargo-mutants --locked";
        return Err(Failure(format!("cargo-mutants is not on the PATH: {install}")));
    }
    let output = setup::target().join("mutants").join(package);
    std::fs::create_dir_all(&output).map_err(|error| Failure(format!("cannot make {}: {error}", output.display())))?;
    let mut command = cargo(&["mutants", "--all-features", "--package", package]);
    for tests in tests {
        command.args(["--test-package", tests]);
    }
    command::run(command.arg("--output").arg(output).args(rest))
}
