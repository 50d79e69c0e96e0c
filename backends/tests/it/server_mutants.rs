//! Mutants over a real Redis server, for the cases that need one: several processes, restarts, a clock that moves. All
//! other cases are tried in `tenure-conformance` itself, on a paused clock.

use std::sync::Arc;
use std::time::Duration;

use tenure_backends::{Library, RedisMaker, Setup};
use tenure_conformance::mutants::{self, MutantMaker};
use tenure_conformance::{HarnessMaker, Options, Outcome, Selection, list, run_case};

/// A case, and a mutant that it kills. Workers in other processes are as broken as their harness.
const KILLS: &[(&str, &str)] = &[
    ("fence/outlives-a-restart", "fence/sinks"),
    ("fence/outlives-lost-data", "fence/sinks"),
    ("process/contending-history-is-clean", "exclusion/none"),
    ("process/killed-holder-is-outlasted", "lease/never-expires"),
    ("process/killed-waiter-is-passed-over", "wake/never"),
    ("process/killed-waiter-lapses", "release/does-nothing"),
    ("process/owner-spans-processes", "entry/owner-is-the-client"),
    ("process/stopped-holder-is-fenced-off", "fence/constant"),
    ("queue/clock-step-back", "fence/of-the-message"),
    ("queue/clock-step-forward", "fence/of-the-message"),
    ("queue/restart-without-data-begins-anew", "receipt/stale-is-done"),
    ("server/clock-step-back-keeps-fences", "fence/sinks"),
    ("server/clock-step-forward-keeps-fences", "fence/sinks"),
    ("server/cut-notifications-only-delay", "exclusion/none"),
    ("server/forgotten-scripts-are-sent-again", "renew/does-nothing"),
    ("server/restart-with-data-keeps-the-hold", "renew/does-nothing"),
    ("server/restart-without-data-is-a-loss", "renew/never-lost"),
    ("server/waiter-survives-a-restart", "exclusion/none"),
];

fn run(maker: &Arc<dyn HarnessMaker>, case: &str) -> Outcome {
    let listed = list(&**maker, &[]).into_iter().find(|listed| listed.case.id == case).expect("the case is listed");
    assert_eq!(listed.selection, Selection::Run, "{case} can run here");
    let options = Options { hard_limit: Duration::from_secs(60), ..Options::default() };
    run_case(maker, &listed, &options).outcome
}

#[test]
fn each_case_that_needs_a_server_kills_a_mutant() {
    let survived: Vec<String> = std::thread::scope(|scope| {
        let half = KILLS.len().div_ceil(2);
        let threads = KILLS.chunks(half).map(|kills| scope.spawn(|| kills.iter().filter_map(survivor).collect()));
        let threads: Vec<std::thread::ScopedJoinHandle<'_, Vec<String>>> = threads.collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no case panics here")).collect()
    });
    assert!(survived.is_empty(), "{survived:#?}");
}

fn survivor((case, mutant): &(&str, &str)) -> Option<String> {
    let honest: Arc<dyn HarnessMaker> =
        Arc::new(RedisMaker::new(Library::Redis, Setup::Single).worker(env!("CARGO_BIN_EXE_conformance")));
    let mutant = mutants::all().find(|known| known.id == *mutant).expect("the mutant exists");
    let maker: Arc<dyn HarnessMaker> = Arc::new(MutantMaker::new(honest, mutant));
    let outcome = run(&maker, case);
    (outcome != Outcome::Failed).then(|| format!("{} survives {case}: {outcome:?}", mutant.id))
}
