//! The suite over drivers with combinations of abilities, also those that no backend of ours declares: the driver in
//! memory, which declares less than it can do.

#![allow(clippy::print_stdout, reason = "the reports are for people")]

use std::sync::Arc;
use std::time::Duration;

use tenure_conformance::harness::Administration;
use tenure_conformance::mutants::{Abilities, Listing, Permitting, ReducedMaker, Reentry};
use tenure_conformance::{HarnessMaker, Options, run_all};
use tenure_core::driver::{Introspection, Parking, Revocation, Waiting};

/// Every combination of how to wait, of fences, steps and looks. Re-entry and parking have nothing to do with those: they take
/// turns, so that each meets each of the others.
fn all() -> Vec<Abilities> {
    let only_queues = Abilities { parking: Some(Parking::Attended), ..Abilities::LEAST };
    let mut all = vec![Abilities::LEAST, only_queues];
    let looks = [
        (Introspection::None, Revocation::None, Listing::Kept),
        (Introspection::Full, Revocation::Forced, Listing::Gone),
        (Introspection::Full, Revocation::Forced, Listing::Kept),
    ];
    let offers = [
        (Reentry::Kept, None),
        (Reentry::Kept, Some(Parking::Attended)),
        (Reentry::Gone, Some(Parking::BackOff)),
        (Reentry::Gone, Some(Parking::Attended)),
    ];
    for (row, waiting) in [Waiting::Poll, Waiting::Notified, Waiting::Fifo].into_iter().enumerate() {
        for (turn, (max_fences, step)) in [(1, 1), (1, 1_000), (8, 1), (8, 1_000)].into_iter().enumerate() {
            for (look, (introspection, revocation, listing)) in looks.into_iter().enumerate() {
                let (reentry, parking) = offers[(row + turn + look) % offers.len()];
                let step = Duration::from_millis(step);
                let administration = Administration::Full;
                let permits = if turn % 2 == 0 { Permitting::Kept } else { Permitting::Gone };
                all.push(Abilities {
                    waiting,
                    max_fences,
                    step,
                    introspection,
                    revocation,
                    listing,
                    reentry,
                    permits,
                    parking,
                    administration,
                });
            }
        }
    }
    all
}

#[test]
fn the_suite_is_green_over_combinations_of_abilities() {
    let options = Options { seed: 7, slack: 1.0, ..Options::default() };
    let mut broken = Vec::new();
    for abilities in all() {
        let maker: Arc<dyn HarnessMaker> = Arc::new(ReducedMaker::with(crate::memory::maker(), abilities));
        let report = run_all(&maker, &options);
        if !report.is_green() {
            println!("{report}");
            broken.push(abilities);
        }
    }
    assert!(broken.is_empty(), "{} of {}: {broken:#?}", broken.len(), all().len());
}
