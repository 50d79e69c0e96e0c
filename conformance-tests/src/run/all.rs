//! Runs every case of one backend and reports.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::one::run_at;
use super::pace::Pace;
use super::report::{CaseReport, Report};
use super::{Options, Progress};
use crate::case::{Listed, list};
use crate::harness::{HarnessMaker, Time};

/// Runs every case of the backend that `options` select, several at a time, and then each burst by itself: a burst of a
/// thousand requests tests how they are served, not the other load of the machine.
#[must_use]
pub fn run_all(maker: &Arc<dyn HarnessMaker>, options: &Options) -> Report {
    let wanted = list(&**maker, &options.required).into_iter().filter(|entry| options.wants(entry.case));
    let (bursts, others): (Vec<Listed>, Vec<Listed>) = wanted.partition(|entry| entry.case.theme() == "burst");
    let pace = Pace::new(maker, options);
    let mut reports = run_some(&pace, maker, &others, jobs(&**maker, options), options);
    reports.extend(run_some(&pace, maker, &bursts, 1, options));
    Report::new(maker.id(), maker.server(), options.seed, reports)
}

/// Runs these cases, so many at a time.
fn run_some(
    pace: &Pace,
    maker: &Arc<dyn HarnessMaker>,
    wanted: &[Listed],
    at_once: usize,
    options: &Options,
) -> Vec<CaseReport> {
    let (next, running) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let reports: Mutex<Vec<CaseReport>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                while let Some(listed) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let _running = turn(&running, || most_now(at_once, pace.slack()));
                    let report = run_at(pace, maker, listed, options);
                    if let Some(Progress(reported)) = &options.progress {
                        reported(listed.case, &report);
                    }
                    reports.lock().unwrap_or_else(PoisonError::into_inner).push(report);
                }
            });
        }
    });
    reports.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// How many cases run at the same time while waits have to be stretched so much: the fewer the slower the machine is.
fn most_now(at_once: usize, slack: f64) -> usize {
    ((at_once as f64 / slack.sqrt()).ceil() as usize).max(1)
}

/// One of the cases that run, until it is dropped.
struct Running<'a>(&'a AtomicUsize);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Waits until fewer than `most` run.
fn turn<'a>(running: &'a AtomicUsize, most: impl Fn() -> usize) -> Running<'a> {
    let one_more = |running: usize| (running < most()).then_some(running + 1);
    while running.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).is_err() {
        std::thread::sleep(Duration::from_millis(20));
    }
    Running(running)
}

pub(super) fn jobs(maker: &dyn HarnessMaker, options: &Options) -> usize {
    let usual = if maker.declared().time == Time::Virtual { 2 } else { 6 };
    options.jobs.unwrap_or(usual).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_cases_run_at_a_time_on_a_slow_machine() {
        assert_eq!([1.0, 1.5, 4.0, 9.0, 100.0].map(|slack| most_now(6, slack)), [6, 5, 3, 2, 1]);
        let running = AtomicUsize::new(0);
        let first = turn(&running, || 2);
        let _second = turn(&running, || 2);
        std::thread::scope(|scope| {
            let third = scope.spawn(|| drop(turn(&running, || 2)));
            std::thread::sleep(Duration::from_millis(50));
            assert!(!third.is_finished());
            drop(first);
        });
        assert_eq!(running.load(Ordering::Relaxed), 1);
    }
}
