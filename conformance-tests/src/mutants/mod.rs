//! Deliberately broken drivers, which the suite must catch.
//!
//! Each mutant is a wrapper with one defect over any honest driver, so that it runs wherever that one runs. A mutant
//! names the cases that kill it; the test `suite_catches_mutants` proves that they do, and that every case kills at
//! least one.

mod abandons;
mod census;
mod crowds;
mod delay;
mod delay_bend;
mod delay_bent;
mod delay_more;
mod delay_rules;
mod entries;
mod exits;
mod faults;
mod fences;
mod forces;
mod harness;
mod holders;
mod leases;
mod looks;
mod maker;
mod names;
mod permit_turns;
mod permits;
mod queues;
mod ranges;
mod reduced;
mod turns;
mod twist;

use harness::MUTANT;
pub use maker::{Base, Mutant, MutantMaker};
pub use reduced::{Abilities, Listing, Permitting, ReducedMaker, Reentry};
use tenure_core::driver::Backend;

/// All mutants.
pub fn all() -> impl Iterator<Item = &'static Mutant> {
    let themes: &'static [&'static [Mutant]] = &[
        abandons::MUTANTS,
        census::MUTANTS,
        crowds::MUTANTS,
        delay::MUTANTS,
        delay_more::MUTANTS,
        delay_rules::MUTANTS,
        entries::MUTANTS,
        exits::MUTANTS,
        faults::MUTANTS,
        fences::MUTANTS,
        forces::MUTANTS,
        holders::MUTANTS,
        leases::MUTANTS,
        looks::MUTANTS,
        names::MUTANTS,
        permit_turns::MUTANTS,
        permits::MUTANTS,
        queues::MUTANTS,
        ranges::MUTANTS,
        turns::MUTANTS,
    ];
    themes.iter().copied().flatten()
}

/// The backend of a worker, as broken as the harness that started it.
pub(crate) fn of_environment(backend: Backend) -> Backend {
    let wanted = std::env::var(MUTANT).unwrap_or_default();
    match all().find(|mutant| mutant.id == wanted) {
        Some(mutant) => mutant.over(backend),
        None => backend,
    }
}
