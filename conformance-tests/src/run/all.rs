//! Runs every case of one backend and reports.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::report::{CaseReport, Report};
use super::{Options, Progress, run_case};
use crate::case::{Listed, list};
use crate::harness::{HarnessMaker, Time};

/// Runs every case of the backend that `options` ask for, several at a time.
#[must_use]
pub fn run_all(maker: &Arc<dyn HarnessMaker>, options: &Options) -> Report {
    let wanted: Vec<Listed> =
        list(&**maker, &options.required).into_iter().filter(|entry| options.wants(entry.case)).collect();
    let next = AtomicUsize::new(0);
    let reports: Mutex<Vec<CaseReport>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..jobs(&**maker, options) {
            scope.spawn(|| {
                while let Some(listed) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let report = run_case(maker, listed, options);
                    if let Some(Progress(told)) = &options.progress {
                        told(listed.case, &report);
                    }
                    reports.lock().unwrap_or_else(PoisonError::into_inner).push(report);
                }
            });
        }
    });
    let reports = reports.into_inner().unwrap_or_else(PoisonError::into_inner);
    Report::new(maker.id(), maker.server(), options.seed, reports)
}

pub(super) fn jobs(maker: &dyn HarnessMaker, options: &Options) -> usize {
    let usual = if maker.declared().time == Time::Virtual { 2 } else { 6 };
    options.jobs.unwrap_or(usual).max(1)
}
