//! A second look at what failed among others: real servers, real waits and few processors make some fail that pass by
//! themselves. Both outcomes are printed; what fails twice is a failure.

use std::sync::{Mutex, PoisonError};

use crate::command::{Failure, Outcome};
use crate::programs::{self, Lane, Program};

/// Which look it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Beside all other work.
    First,
    /// By itself: nothing else runs.
    Second,
}

/// What failed, and how it is done once more.
struct Failed<'a> {
    name: String,
    why: String,
    again: Box<dyn FnOnce() -> Outcome + Send + 'a>,
}

/// What is looked at once more when all else has ended.
#[derive(Default)]
pub(crate) struct Later<'a>(Mutex<Vec<Failed<'a>>>);

impl<'a> Later<'a> {
    /// What failed now is done by `again` later.
    pub(crate) fn add(&self, name: &str, why: Failure, again: impl FnOnce() -> Outcome + Send + 'a) {
        let failed = Failed { name: name.to_owned(), why: why.0, again: Box::new(again) };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(failed);
    }

    /// Does it now, and later if that fails.
    pub(crate) fn look(&self, name: &str, job: impl Fn(Look) -> Outcome + Send + 'a) {
        if let Err(why) = job(Look::First) {
            self.add(name, why, move || job(Look::Second));
        }
    }

    /// Every test of these lanes.
    pub(crate) fn tests(&self, programs: &'a [Program], lanes: &[Lane]) -> Outcome {
        let (counts, failed) = programs::run_all(programs, lanes);
        for (program, why) in failed {
            self.add(program.name(), why, move || {
                program.run(|command| command.args(["--test-threads", "2"])).map(drop)
            });
        }
        if counts.passed == 0 { Err(Failure(String::from("no test ran"))) } else { Ok(()) }
    }

    /// Does again what failed, one after the other: nothing else may run now.
    pub(crate) fn run(self) -> Outcome {
        let failed = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        let twice = failed.into_iter().filter_map(|Failed { name, why, again }| {
            println!("again, by itself: {name}, which failed among the others: {why}");
            match again() {
                Ok(()) => {
                    println!("  {name} failed among the others and passed by itself");
                    None
                }
                Err(Failure(again)) => Some(format!("{name} failed twice: {why}; by itself: {again}")),
            }
        });
        let twice: Vec<String> = twice.collect();
        if twice.is_empty() { Ok(()) } else { Err(Failure(twice.join("\n"))) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::{Later, Look};
    use crate::command::Failure;

    #[test]
    fn what_fails_is_done_again_later_and_fails_if_it_fails_twice() {
        let (done, later) = (AtomicU32::new(0), Later::default());
        let count = |look: Look| done.fetch_add(if look == Look::First { 1 } else { 100 }, Ordering::Relaxed);
        later.look("green", |look| {
            count(look);
            Ok(())
        });
        later.look("busy", |look| {
            count(look);
            if look == Look::First { Err(Failure("slow".into())) } else { Ok(()) }
        });
        later.look("red", |look| {
            count(look);
            Err(Failure(format!("{look:?}")))
        });
        assert_eq!(done.load(Ordering::Relaxed), 3, "nothing is done again before all has ended");
        let Failure(why) = later.run().unwrap_err();
        assert_eq!(done.load(Ordering::Relaxed), 203);
        assert_eq!(why, "red failed twice: First; by itself: Second");
        assert!(Later::default().run().is_ok());
    }
}
