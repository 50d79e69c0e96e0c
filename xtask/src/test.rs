//! Every test there is, with real servers.

use crate::command::{self, Failure, Outcome, cargo};
use crate::conformance::{self, Extent};
use crate::setup::{self, Install};

pub(crate) fn run(args: &[String]) -> Outcome {
    let (mut install, mut extent) = (Install::Allowed, Extent::Gate);
    for arg in args {
        match arg.as_str() {
            "--no-install" => install = Install::Never,
            "--full" => extent = Extent::Full,
            other => return Err(Failure(format!("test does not know {other:?}"))),
        }
    }
    setup::prepare(install)?;
    let python = setup::python_with_redis(install)?;
    command::run(&mut cargo(&["test", "--workspace", "--all-features", "--no-fail-fast"]))?;
    // Tests that need more than cargo and the servers are ignored by default; here it is at hand.
    let peers = ["test", "--package", "tenure-redis", "--test", "interop", "--", "--include-ignored"];
    command::run(cargo(&peers).env("TENURE_PYTHON", python))?;
    if extent == Extent::Full {
        let failovers = ["test", "--package", "tenure-backends", "--all-features", "--test", "topologies"];
        command::run(cargo(&failovers).args(["--", "--include-ignored", "--test-threads", "1"]))?;
    }
    conformance::run_all(&setup::target().join("conformance"), extent)
}
