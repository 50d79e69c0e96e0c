//! The test of the tests: every mutant is caught, and every case catches one.

#![allow(clippy::print_stdout, reason = "the matrix and the reports are for people")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tenure_conformance::mutants::{self, Mutant, MutantMaker, ReducedMaker};
use tenure_conformance::{
    HarnessMaker, Listed, Options, Outcome, Selection, all_cases, list, properties, run_all, run_case,
};

fn options() -> Options {
    Options { seed: 7, slack: 1.0, hard_limit: Duration::from_secs(20), ..Options::default() }
}

fn mutated(mutant: &'static Mutant) -> Arc<dyn HarnessMaker> {
    Arc::new(MutantMaker::new(crate::memory::maker(), mutant))
}

/// A case that fails for a mutant, and where.
struct Killer {
    case: &'static str,
    reason: String,
}

/// Which of the `wanted` cases fail for each mutant.
fn kills(wanted: impl Fn(&Mutant, &str) -> bool + Sync) -> BTreeMap<&'static str, Vec<Killer>> {
    let all: Vec<&'static Mutant> = mutants::all().collect();
    let (next, found) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(mutant) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let maker = mutated(mutant);
                    let run = |listed: &Listed| {
                        if listed.selection != Selection::Run || !wanted(mutant, listed.case.id) {
                            return None;
                        }
                        let report = run_case(&maker, listed, &options());
                        let reason = report.reason.filter(|_| report.outcome == Outcome::Failed)?;
                        Some(Killer { case: listed.case.id, reason })
                    };
                    let killers = list(&*maker, &[]).iter().filter_map(run).collect();
                    found.lock().unwrap().insert(mutant.id, killers);
                }
            });
        }
    });
    found.into_inner().unwrap()
}

/// Every case that can run here, over the honest driver or over its reduced form.
fn runnable() -> BTreeSet<&'static str> {
    let full = crate::memory::maker();
    let reduced: Arc<dyn HarnessMaker> = Arc::new(ReducedMaker::new(crate::memory::maker()));
    let cases = [full, reduced].map(|maker| list(&*maker, &[]));
    cases.into_iter().flatten().filter(|l| l.selection == Selection::Run).map(|l| l.case.id).collect()
}

#[test]
fn every_mutant_is_killed_by_the_cases_that_it_names() {
    let survived: Vec<String> = kills(|mutant, case| mutant.killed_by.contains(&case))
        .into_iter()
        .flat_map(|(id, killers)| {
            let mutant = mutants::all().find(|mutant| mutant.id == id).expect("it was listed");
            assert!(!mutant.killed_by.is_empty(), "{id} names no case");
            let missing =
                mutant.killed_by.iter().filter(move |case| !killers.iter().any(|killer| killer.case == **case));
            missing.map(move |case| format!("{id} survives {case}"))
        })
        .collect();
    assert!(survived.is_empty(), "{survived:#?}");
    assert!(mutants::all().count() >= 20);
}

#[test]
fn every_case_kills_a_mutant() {
    let named: BTreeSet<&str> = mutants::all().flat_map(|mutant| mutant.killed_by).copied().collect();
    let idle: Vec<&str> = runnable().into_iter().filter(|case| !named.contains(case)).collect();
    assert!(idle.is_empty(), "cases that no mutant names: {idle:#?}");
}

#[test]
fn the_honest_driver_passes_as_it_is_and_reduced() {
    let reduced: Arc<dyn HarnessMaker> = Arc::new(ReducedMaker::new(crate::memory::maker()));
    for maker in [crate::memory::maker(), reduced] {
        let report = run_all(&maker, &options());
        assert!(report.is_green(), "{report}");
        println!("{report}");
    }
}

#[test]
fn ids_are_unique_and_every_case_says_what_it_proves() {
    let mut seen = BTreeSet::new();
    for case in all_cases() {
        assert!(seen.insert(case.id), "{} is there twice", case.id);
        assert!(case.proves.ends_with('.') && case.proves.len() > 30, "{}: {}", case.id, case.proves);
        assert!(!case.properties.is_empty(), "{} covers no property", case.id);
    }
    for mutant in mutants::all() {
        assert!(seen.insert(mutant.id), "{} is there twice", mutant.id);
        assert!(!mutant.wrong.is_empty());
    }
}

#[test]
fn every_property_is_covered_and_every_number_of_a_case_is_a_property() {
    let covered: BTreeSet<&str> = all_cases().flat_map(|case| case.properties).copied().collect();
    let known: BTreeSet<&str> = properties().iter().map(|property| property.number).collect();
    assert_eq!(known, covered);
    assert_eq!(known.len(), properties().len(), "a number is there twice");
    for property in properties() {
        assert!(property.holds.ends_with('.') && property.holds.len() > 20, "{property:?}");
    }
}

/// Prints where each case fails for the mutants that name it: at what it claims, or at its closing release.
#[test]
#[ignore = "prints where each case fails, on request"]
fn print_kills() {
    for (mutant, killers) in kills(|mutant, case| mutant.killed_by.contains(&case)) {
        for Killer { case, reason } in killers {
            println!("{case}\t{mutant}\t{}", reason.replace('\n', " "));
        }
    }
}

/// Prints which cases kill which mutants, and where each fails: the source of the lists in the mutants. Takes a few minutes;
/// `TENURE_THEME` names the beginning of the cases that are tried, and of those that the mutants tried name.
#[test]
#[ignore = "prints the whole matrix, on request"]
fn print_matrix() {
    let only = std::env::var("TENURE_THEME").unwrap_or_default();
    let concerns = |mutant: &Mutant, case: &str| {
        case.starts_with(&only) && mutant.killed_by.iter().any(|known| known.starts_with(&only))
    };
    for (mutant, killers) in kills(concerns) {
        for Killer { case, reason } in killers {
            println!("{mutant}\t{case}\t{}", reason.lines().next().unwrap_or_default());
        }
    }
}
