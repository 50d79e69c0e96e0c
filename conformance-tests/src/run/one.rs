//! Runs one case, on a separate thread and runtime.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tokio::runtime::{Builder, Runtime};

use super::pace::Pace;
use super::report::{CaseReport, Outcome};
use super::{Options, panics};
use crate::case::{Case, Context, Listed, Selection};
use crate::harness::{CaseContext, HarnessMaker, Time, words};
use crate::journal::Journal;
use crate::rng::Rng;

/// Runs a listed case, or reports why it does not run.
#[must_use]
pub fn run_case(maker: &Arc<dyn HarnessMaker>, listed: &Listed, options: &Options) -> CaseReport {
    run_at(&Pace::new(maker, options), maker, listed, options)
}

/// Runs it with its waits stretched to the pace that is measured now.
pub(super) fn run_at(pace: &Pace, maker: &Arc<dyn HarnessMaker>, listed: &Listed, options: &Options) -> CaseReport {
    let case = listed.case;
    let start = Instant::now();
    let report = |outcome, reason| CaseReport {
        id: case.id,
        outcome,
        reason,
        proves: case.proves,
        properties: case.properties,
        ms: start.elapsed().as_millis() as u64,
    };
    let issue = match &listed.selection {
        Selection::Ignore(why) => return report(Outcome::Ignored, Some(why.clone())),
        Selection::ExpectFail(issue) => Some(*issue),
        Selection::Run => None,
    };
    match (on_its_thread(pace, maker, case, options), issue) {
        (Ok(()), None) if case.is_refusal() => report(Outcome::Refused, None),
        (Ok(()), None) => report(Outcome::Passed, None),
        (Err(why), None) => report(Outcome::Failed, Some(why)),
        (Err(why), Some(issue)) => report(Outcome::ExpectedFail, Some(format!("{issue}: {why}"))),
        (Ok(()), Some(issue)) => report(Outcome::Failed, Some(format!("passes, but {issue} says that it fails"))),
    }
}

fn on_its_thread(
    pace: &Pace,
    maker: &Arc<dyn HarnessMaker>,
    case: &'static Case,
    options: &Options,
) -> Result<(), String> {
    maker.configured().map_err(|missing| format!("required, but not configured: {missing}"))?;
    let ((done, result), journal) = (mpsc::channel(), Journal::default());
    let slack = pace.slack();
    let limit = options.hard_limit.mul_f64(slack);
    let (maker, context, written) = (Arc::clone(maker), context(case, options.seed, slack), journal.clone());
    let worker = std::thread::Builder::new().name(case.id.to_owned()).spawn(move || {
        panics::catch_here();
        let outcome = run(&*maker, case, context, written);
        let _late = done.send(outcome);
    });
    worker.map_err(|error| format!("no thread: {error}"))?;
    // A thread that hangs for good is left behind; the report says so.
    let hung = |_| Err(format!("still running after {limit:?} of wall time"));
    let outcome = result.recv_timeout(limit).unwrap_or_else(hung);
    let stretched = if slack > 1.0 { format!(" (with waits stretched {slack:.1} times)") } else { String::new() };
    outcome.map_err(|why| format!("{why}{stretched}{journal}"))
}

fn run(maker: &dyn HarnessMaker, case: &'static Case, context: CaseContext, journal: Journal) -> Result<(), String> {
    let declared = maker.declared();
    let runtime = runtime(declared.time).map_err(|error| format!("no runtime: {error}"))?;
    let limit = match declared.time {
        Time::Virtual => Duration::from_secs(6 * 3600),
        Time::Real => Duration::from_secs(60).mul_f64(context.slack),
    };
    let outcome = runtime.block_on(async {
        let made = maker.make(context.clone()).await;
        let harness = made.map_err(|error| format!("no harness: {}", words(&error)))?;
        let mut context = Context::new(harness, declared, context, journal);
        let ended = AssertUnwindSafe(tokio::time::timeout(limit, (case.run)(&mut context))).catch_unwind().await;
        let outcome = match ended {
            Ok(Ok(Ok(()))) => Ok(()),
            Ok(Ok(Err(failure))) => Err(failure.to_string()),
            Ok(Err(_)) => Err(format!("still running after {limit:?}")),
            Err(_panic) => Err(panics::caught().join("; ")),
        };
        let tidied = AssertUnwindSafe(context.teardown()).catch_unwind().await;
        outcome.and(match tidied {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(format!("teardown failed: {}", words(&error))),
            Err(_panic) => Err(format!("teardown {}", panics::caught().join("; "))),
        })
    });
    runtime.shutdown_timeout(Duration::from_secs(5));
    let background = panics::caught();
    match background.is_empty() {
        true => outcome,
        false => outcome.and(Err(format!("a background task {}", background.join("; ")))),
    }
}

fn runtime(time: Time) -> std::io::Result<Runtime> {
    let mut builder = Builder::new_current_thread();
    builder.enable_all();
    if time == Time::Virtual {
        builder.start_paused(true);
    }
    builder.build()
}

/// A prefix that no other run uses, and a seed that depends on the run's seed and the case alone.
fn context(case: &'static Case, seed: u64, slack: f64) -> CaseContext {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let hash = case.id.bytes().fold(seed, |hash, byte| Rng::new(hash ^ u64::from(byte)).bits());
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    CaseContext {
        case: case.id,
        prefix: format!("tc-{:x}-{:x}-{count:x}/", std::process::id(), seed & 0xffff_ffff),
        seed: hash,
        isolation: case.isolation(),
        slack,
    }
}
