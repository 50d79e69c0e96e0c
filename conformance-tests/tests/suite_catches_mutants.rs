//! The test of the tests: every mutant is caught, and every case catches one.

mod memory;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use tenure_conformance::mutants::{self, Mutant, MutantMaker, ReducedMaker};
use tenure_conformance::{HarnessMaker, Listed, Options, Outcome, Selection, list, run_all, run_case};

fn options() -> Options {
    Options { seed: 7, slack: 1.0, ..Options::default() }
}

fn mutated(mutant: &'static Mutant) -> Arc<dyn HarnessMaker> {
    Arc::new(MutantMaker::new(memory::maker(), mutant))
}

/// Which of `wanted` (or of all) cases fail for each mutant.
fn kills(wanted: impl Fn(&Mutant, &str) -> bool + Sync) -> BTreeMap<&'static str, Vec<&'static str>> {
    let all: Vec<&'static Mutant> = mutants::all().collect();
    let (next, found) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(mutant) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let maker = mutated(mutant);
                    let run = |listed: &Listed| {
                        listed.selection == Selection::Run
                            && wanted(mutant, listed.case.id)
                            && run_case(&maker, listed, &options()).outcome == Outcome::Failed
                    };
                    let killers = list(&*maker, &[]).iter().filter(|l| run(l)).map(|l| l.case.id).collect();
                    found.lock().unwrap().insert(mutant.id, killers);
                }
            });
        }
    });
    found.into_inner().unwrap()
}

/// Prints which cases kill which mutants: the source of the lists in the mutants. Takes a few minutes.
#[test]
#[ignore = "prints the whole matrix, on request"]
fn print_matrix() {
    for (mutant, killers) in kills(|_, _| true) {
        println!("{mutant}\t{}", killers.join(" "));
    }
}
