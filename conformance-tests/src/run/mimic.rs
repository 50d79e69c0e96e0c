//! The suite as a test binary.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use libtest_mimic::{Arguments, Trial};

use super::one::run_at;
use super::pace::Pace;
use super::report::{CaseReport, Outcome, Report};
use super::{Options, all, check_filters};
use crate::case::{Listed, Selection, list};
use crate::harness::HarnessMaker;

type Reports = Arc<Mutex<BTreeMap<usize, Vec<CaseReport>>>>;

/// Runs the suite against these backends as a test binary (`harness = false`), and exits.
///
/// It accepts the arguments of `cargo test`: filters, `--list`, `--test-threads`, `--ignored`. A filter with a `/` that
/// matches no case is an error; other filters may be meant for another test binary, as cargo passes its filter to all
/// of them. Ignored cases are known when listing and carry their reason as the test's kind. If
/// `TENURE_CONFORMANCE_JSON` names a directory, each backend's report is written there as `<backend>.json`, with `/` as
/// `-`.
pub fn main(makers: impl IntoIterator<Item = Arc<dyn HarnessMaker>>) -> ! {
    let makers: Vec<Arc<dyn HarnessMaker>> = makers.into_iter().collect();
    let mut arguments = Arguments::from_args();
    let options = Options::default();
    if arguments.test_threads.is_none() {
        arguments.test_threads = makers.iter().map(|maker| all::jobs(&**maker, &options)).max();
    }
    if !arguments.list {
        eprintln!("replay with TENURE_SEED={}", options.seed);
    }
    if let Some(filter) = arguments.filter.as_deref().filter(|filter| filter.contains('/')) {
        let part = filter.rsplit("::").next().unwrap_or(filter); // behind the name of the backend
        if let (Err(why), true) = (check_filters([part]), makers.iter().all(|maker| !maker.id().contains(filter))) {
            eprintln!("error: {why}");
            std::process::exit(101);
        }
    }
    let reports = Reports::default();
    let mut trials = Vec::new();
    for (index, maker) in makers.iter().enumerate() {
        let pace = Arc::new(Pace::new(maker, &options));
        for listed in list(&**maker, &options.required) {
            trials.push(trial(index, &pace, maker, listed, &options, &reports));
        }
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    if let (Ok(folder), false) = (std::env::var("TENURE_CONFORMANCE_JSON"), arguments.list) {
        write(Path::new(&folder), &makers, &options, &reports);
    }
    conclusion.exit()
}

fn trial(
    index: usize,
    pace: &Arc<Pace>,
    maker: &Arc<dyn HarnessMaker>,
    listed: Listed,
    options: &Options,
    reports: &Reports,
) -> Trial {
    let name = format!("{}::{}", maker.id(), listed.case.id);
    let ignored = match &listed.selection {
        Selection::Ignore(why) => Some(why.clone()),
        Selection::Run | Selection::ExpectFail(_) => None,
    };
    let keep = move |reports: &Reports, report: CaseReport| {
        reports.lock().unwrap_or_else(PoisonError::into_inner).entry(index).or_default().push(report);
    };
    if ignored.is_some() {
        keep(reports, run_at(pace, maker, &listed, options));
    }
    let (pace, maker) = (Arc::clone(pace), Arc::clone(maker));
    let (options, reports) = (options.clone(), Arc::clone(reports));
    let trial = Trial::test(name, move || {
        let report = run_at(&pace, &maker, &listed, &options);
        let (outcome, reason) = (report.outcome, report.reason.clone().unwrap_or_default());
        keep(&reports, report);
        match outcome {
            Outcome::Failed => Err(format!("{reason}\nproves: {}", listed.case.proves).into()),
            Outcome::Ignored => Err(format!("cannot run: {reason}").into()),
            Outcome::Passed | Outcome::Refused | Outcome::ExpectedFail => Ok(()),
        }
    });
    match ignored {
        Some(why) => trial.with_kind(why).with_ignored_flag(true),
        None => trial,
    }
}

fn write(folder: &Path, makers: &[Arc<dyn HarnessMaker>], options: &Options, reports: &Reports) {
    let mut reports = std::mem::take(&mut *reports.lock().unwrap_or_else(PoisonError::into_inner));
    for (index, maker) in makers.iter().enumerate() {
        let cases = reports.remove(&index).unwrap_or_default();
        let report = Report::new(maker.id(), maker.server(), options.seed, cases);
        let file = folder.join(format!("{}.json", maker.id().replace('/', "-")));
        let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&file, report.to_json()));
        if let Err(error) = written {
            eprintln!("cannot write {}: {error}", file.display());
        }
    }
}
