//! Jobs side by side for as long as the machine has idle processors, and a second run, alone, of failed jobs.
//!
//! Real servers under real time fail on a machine that is too busy. So a job starts only when a processor is idle, jobs that
//! load the machine do not run beside each other, and jobs that only compute run at the lowest priority and take the rest.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::command::{Failure, Outcome};
use crate::idle::Gauge;
use crate::steps::Counts;

/// How much of the machine a job needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// Waits for most of its time.
    Light,
    /// Its servers or a judge watch limits of time: one of these at a time.
    Heavy,
    /// Computes, at the lowest priority, and no limit of time concerns it: one of these at a time while others wait or run.
    Computing,
}

/// What a job counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Tests,
    Cases,
    /// Its outcome alone.
    Nothing,
}

/// The action after a job has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Second {
    /// What failed runs once more, alone.
    Run,
    /// It is a failure: a judge found a broken promise, or a compiler an error.
    Never,
}

/// The result of one run.
#[derive(Debug, Default)]
pub(crate) struct Ran {
    pub(crate) counts: Counts,
    /// Why it failed, if it did.
    pub(crate) failure: Option<String>,
    /// The tests or cases that failed, where they are known by name.
    pub(crate) failed: Vec<String>,
}

/// Runs everything, or only the parts named.
type Work<'a> = Box<dyn Fn(&[String]) -> Ran + Send + Sync + 'a>;

/// Something to run.
pub(crate) struct Job<'a> {
    pub(crate) name: String,
    pub(crate) load: Load,
    pub(crate) unit: Unit,
    pub(crate) second: Second,
    pub(crate) work: Work<'a>,
}

impl<'a> Job<'a> {
    /// A job that succeeds or fails as a whole and is not repeated.
    pub(crate) fn whole(name: &str, load: Load, work: impl Fn() -> Outcome + Send + Sync + 'a) -> Self {
        let work = move |_: &[String]| Ran { failure: work().err().map(|Failure(why)| why), ..Ran::default() };
        Self { name: name.to_owned(), load, unit: Unit::Nothing, second: Second::Never, work: Box::new(work) }
    }
}

/// How many tests and cases may fail among the others and pass alone before the run fails.
const FLAKY: usize = 2;

/// How many processors have to be idle before one more job starts.
const ROOM: f64 = 0.75;

/// How many more jobs than processors run at a time, beside those that compute: waits that are stretched leave processors idle, and
/// more jobs would stretch them further.
const MORE: usize = 1;

/// How often the idle time is read. A job has this long to start its servers before the next reading counts.
const LOOK: Duration = Duration::from_secs(2);

/// Runs all jobs, then failed ones once more; prints the counts, the flaky jobs and the failed ones.
pub(crate) fn run(jobs: &[Job<'_>]) -> Outcome {
    let ended = all(jobs);
    let (mut tests, mut cases) = (Counts::default(), Counts::default());
    let (mut flaky, mut red) = (Vec::new(), Vec::new());
    for (job, ran) in jobs.iter().zip(ended) {
        match job.unit {
            Unit::Tests => tests += ran.counts,
            Unit::Cases => cases += ran.counts,
            Unit::Nothing => {}
        }
        let Some(why) = ran.failure else {
            if job.unit != Unit::Nothing && ran.counts.passed == 0 {
                red.push(format!("{}: nothing ran", job.name));
            }
            continue;
        };
        let Some(again) = repeat(job, &ran.failed, &why) else {
            red.push(format!("{}: {why}", job.name));
            continue;
        };
        match again.failure {
            None if ran.failed.is_empty() => flaky.push(format!("{}: {why}", job.name)),
            None => flaky.extend(ran.failed.iter().map(|part| format!("{} {part}", job.name))),
            Some(again) => red.push(format!("{} failed twice: {why}; alone: {again}", job.name)),
        }
    }
    println!("\n{tests} (tests); {cases} (cases of the suite); {} flaky", flaky.len());
    flaky.iter().for_each(|name| println!("FLAKY  {name}: failed among the others, passed alone"));
    red.extend((flaky.len() > FLAKY).then(|| format!("{} flaky tests; at most {FLAKY} are accepted", flaky.len())));
    if red.is_empty() { Ok(()) } else { Err(Failure(red.join("\n"))) }
}

/// The second run of what failed, if the job has one.
fn repeat(job: &Job<'_>, failed: &[String], why: &str) -> Option<Ran> {
    if job.second == Second::Never {
        return None;
    }
    println!("\nalone: {} {}, which failed among the others: {why}", job.name, failed.join(" "));
    Some((job.work)(failed))
}

/// Runs each job once; returns the results in the order of the jobs.
fn all(jobs: &[Job<'_>]) -> Vec<Ran> {
    let (done, ends) = mpsc::channel();
    let mut results: Vec<Option<Ran>> = jobs.iter().map(|_| None).collect();
    let (mut waiting, mut running): (Vec<usize>, Vec<usize>) = ((0..jobs.len()).collect(), Vec::new());
    let mut gauge = Gauge::new();
    let processors = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        while !(waiting.is_empty() && running.is_empty()) {
            let loads = |indices: &[usize]| indices.iter().map(|index| jobs[*index].load).collect::<Vec<_>>();
            let idle = gauge.idle(LOOK, running.len());
            if let Some(next) = next(&loads(&waiting), &loads(&running), processors, idle) {
                let index = waiting.remove(next);
                running.push(index);
                gauge.restart();
                let (job, done) = (&jobs[index], done.clone());
                scope.spawn(move || {
                    let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (job.work)(&[])));
                    let ran = ran.unwrap_or_else(|_| Ran { failure: Some("panicked".into()), ..Ran::default() });
                    done.send((index, ran)).unwrap_or_default();
                });
            } else if let Ok((index, ran)) = ends.recv_timeout(LOOK / 4) {
                running.retain(|other| *other != index);
                results[index] = Some(ran);
            }
        }
    });
    results.into_iter().map(Option::unwrap_or_default).collect()
}

/// Which of the waiting jobs starts now, if any may.
fn next(waiting: &[Load], running: &[Load], processors: usize, idle: Option<f64>) -> Option<usize> {
    let first = |may: &dyn Fn(Load) -> bool| waiting.iter().position(|load| may(*load));
    let computes = |load: &Load| *load == Load::Computing;
    let computing = running.iter().filter(|load| computes(load)).count();
    let free = processors.saturating_sub(running.len() - computing).max(1);
    if computing < if waiting.iter().all(computes) { free } else { 1 }
        && let Some(index) = first(&|load| computes(&load))
    {
        return Some(index);
    }
    if running.iter().all(computes) {
        return first(&|load| !computes(&load));
    }
    if idle.is_none_or(|idle| idle < ROOM) || running.len() - computing >= processors + MORE {
        return None;
    }
    let heavy = if running.contains(&Load::Heavy) { None } else { first(&|load| load == Load::Heavy) };
    heavy.or_else(|| first(&|load| load == Load::Light))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn heavy_jobs_run_one_at_a_time_light_ones_while_there_is_room_and_computing_ones_at_last() {
        use Load::{Computing as C, Heavy as H, Light as L};
        for (waiting, running, idle, expected) in [
            (&[L, H, C][..], &[][..], None, Some(2)),
            (&[L, H, C], &[C], None, Some(0)),
            (&[L, H], &[C], Some(0.1), Some(0)),
            (&[L, H], &[L], None, None),
            (&[L, H], &[L], Some(0.1), None),
            (&[L, H], &[L], Some(1.0), Some(1)),
            (&[H, L], &[H], Some(1.0), Some(1)),
            (&[H], &[H, C], Some(1.0), None),
            (&[C, C], &[C], Some(2.0), Some(0)),
            (&[C, C], &[C, C], Some(2.0), None),
            (&[C, C], &[L, C], Some(2.0), None),
            (&[C, L], &[C], None, Some(1)),
            (&[L], &[L, L, C], Some(2.0), Some(0)),
            (&[L], &[L, L, C, H], Some(2.0), None),
            (&[], &[], Some(2.0), None),
        ] {
            assert_eq!(next(waiting, running, 2, idle), expected, "{waiting:?} beside {running:?} with {idle:?}");
        }
    }

    fn job<'a>(
        name: &str,
        second: Second,
        runs: &'a AtomicU32,
        work: impl Fn(u32) -> Ran + Send + Sync + 'a,
    ) -> Job<'a> {
        let work = Box::new(move |_: &[String]| work(runs.fetch_add(1, Ordering::Relaxed)));
        Job { name: name.to_owned(), load: Load::Light, unit: Unit::Tests, second, work }
    }

    fn passed() -> Ran {
        Ran { counts: Counts::of("test result: ok. 1 passed"), ..Ran::default() }
    }

    fn failed(parts: &[&str]) -> Ran {
        let parts = parts.iter().map(|part| (*part).to_owned()).collect();
        Ran { failure: Some("red".into()), failed: parts, ..Ran::default() }
    }

    #[test]
    fn a_job_that_passes_alone_is_flaky_and_more_than_two_fail_the_run() {
        let counts: [AtomicU32; 3] = Default::default();
        let flaky = |parts: &'static [&str]| move |run| if run == 0 { failed(parts) } else { passed() };
        let jobs = [
            job("green", Second::Run, &counts[0], |_| passed()),
            job("busy", Second::Run, &counts[1], flaky(&["a", "b"])),
        ];
        assert!(run(&jobs).is_ok());
        assert_eq!(counts.each_ref().map(|count| count.load(Ordering::Relaxed)), [1, 2, 0]);
        let jobs = [job("busy", Second::Run, &counts[2], flaky(&["a", "b", "c"]))];
        assert_eq!(run(&jobs).unwrap_err().0, "3 flaky tests; at most 2 are accepted");
    }

    #[test]
    fn what_fails_twice_or_tested_nothing_fails_the_run() {
        let counts: [AtomicU32; 3] = Default::default();
        let jobs = [
            job("red", Second::Run, &counts[0], |_| failed(&["a"])),
            job("judge", Second::Never, &counts[1], |_| failed(&[])),
            job("empty", Second::Run, &counts[2], |_| Ran::default()),
        ];
        let Failure(why) = run(&jobs).unwrap_err();
        assert_eq!(why, "red failed twice: red; alone: red\njudge: red\nempty: nothing ran");
        assert_eq!(counts.each_ref().map(|count| count.load(Ordering::Relaxed)), [2, 1, 1]);
    }
}
