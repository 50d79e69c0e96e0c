//! Every test there is, with real servers.

use crate::command::{self, Failure, Outcome, cargo};
use crate::conformance;
use crate::setup::{self, Install};

pub(crate) fn run_tests(install: Install) -> Outcome {
    setup::prepare(install)?;
    let python = setup::python_with_redis(install)?;
    command::run(&mut cargo(&["test", "--workspace", "--all-features", "--no-fail-fast"]))?;
    // Tests that need more than cargo and the servers are ignored by default; here it is at hand.
    let peers = ["test", "--package", "tenure-redis", "--test", "interop", "--", "--include-ignored"];
    command::run(cargo(&peers).env("TENURE_PYTHON", python))?;
    conformance::run_all(&setup::target().join("conformance"))
}

pub(crate) fn run(args: &[String]) -> Outcome {
    match args {
        [] => run_tests(Install::Allowed),
        [flag] if flag == "--no-install" => run_tests(Install::Never),
        other => Err(Failure(format!("test does not know {other:?}"))),
    }
}
