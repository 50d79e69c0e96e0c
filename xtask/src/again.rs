//! A second look at tests that failed among others: real servers, real waits and few processors make some fail that pass
//! by themselves. Both outcomes are printed; one that fails twice is a failure.

use crate::command::{Failure, Outcome};
use crate::programs::{self, Lane, Program};

/// Every test of these lanes; the test programs that fail run once more, each by itself.
pub(crate) fn tests(programs: &[Program], lanes: &[Lane]) -> Outcome {
    let (counts, failed) = programs::run_all(programs, lanes);
    for program in &failed {
        println!("again, by itself: {}", program.name());
        let twice = |Failure(why)| Failure(format!("failed twice: {why}"));
        program.run(|command| command.args(["--test-threads", "2"])).map_err(twice)?;
        println!("  {} failed among the others and passed by itself", program.name());
    }
    if counts.passed == 0 { Err(Failure(String::from("no test ran"))) } else { Ok(()) }
}
