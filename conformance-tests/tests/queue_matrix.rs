//! The test of the tests of queues: the mutants of delay queues die by the cases that they name.

mod memory;

use std::sync::Arc;
use std::time::Duration;

use tenure_conformance::mutants::{self, Mutant, MutantMaker};
use tenure_conformance::{HarnessMaker, Listed, Options, Outcome, Selection, list, run_case};

fn options() -> Options {
    Options { seed: 7, slack: 1.0, hard_limit: Duration::from_secs(60), ..Options::default() }
}

/// Prints which cases of queues kill which mutants.
#[test]
#[ignore = "prints the whole matrix, on request"]
fn print_matrix() {
    for mutant in mutants::all().filter(|mutant| mutant.killed_by.iter().any(|case| case.starts_with("queue/"))) {
        let maker: Arc<dyn HarnessMaker> = Arc::new(MutantMaker::new(memory::maker(), mutant));
        let fails = |listed: &Listed| {
            listed.selection == Selection::Run
                && listed.case.id.starts_with("queue/")
                && run_case(&maker, listed, &options()).outcome == Outcome::Failed
        };
        let killers: Vec<_> = list(&*maker, &[]).iter().filter(|listed| fails(listed)).map(|l| l.case.id).collect();
        println!("{}\t{}", mutant.id, killers.join(" "));
    }
}

fn survives(mutant: &'static Mutant) -> Vec<String> {
    let maker: Arc<dyn HarnessMaker> = Arc::new(MutantMaker::new(memory::maker(), mutant));
    let listed = list(&*maker, &[]);
    let named = |id: &&&str| listed.iter().any(|l| l.case.id == **id && l.selection == Selection::Run);
    let unknown = mutant.killed_by.iter().filter(|id| !named(id)).map(|id| format!("{}: no case {id}", mutant.id));
    let dies = |listed: &&Listed| run_case(&maker, listed, &options()).outcome == Outcome::Failed;
    let killers = listed.iter().filter(|l| mutant.killed_by.contains(&l.case.id));
    let survived = killers.filter(|l| !dies(l)).map(|l| format!("{} survives {}", mutant.id, l.case.id));
    unknown.chain(survived).collect()
}

#[test]
fn every_mutant_of_queues_dies_by_the_cases_that_it_names() {
    let mutants = mutants::all().filter(|mutant| mutant.killed_by.iter().any(|case| case.starts_with("queue/")));
    let survivors: Vec<String> = mutants.flat_map(survives).collect();
    assert!(survivors.is_empty(), "{}", survivors.join("\n"));
}
