//! A second look at tests that failed among others: real servers, real waits and few processors make some fail that pass
//! by themselves. Both outcomes are printed; one that fails twice is a failure.

use crate::command::{self, Failure, Outcome, cargo};
use crate::programs::{self, Program};

/// Every test; the test programs that fail run once more, each by itself.
pub(crate) fn tests(programs: &[Program]) -> Outcome {
    let failed = programs::run_all(programs);
    for program in &failed {
        println!("\nagain, by itself: {}", program.name());
        let twice = |Failure(why)| Failure(format!("failed twice: {why}"));
        program.run(|command| command.args(["--test-threads", "2"])).map_err(twice)?;
        println!("  {} failed among the others and passed by itself", program.name());
    }
    command::run(&mut cargo(&["test", "--workspace", "--all-features", "--doc", "--no-fail-fast"]))
}
