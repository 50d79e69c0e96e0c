//! Deliberately broken drivers: what the suite must catch.
//!
//! Each mutant is a wrapper with one thing wrong over any honest driver, so that it runs wherever that one runs. A
//! mutant names the cases that kill it; the test `suite_catches_mutants` proves that they do, and that every case
//! kills at least one.

mod maker;
mod twist;

pub use maker::{Mutant, MutantMaker};

/// Every mutant there is.
pub fn all() -> impl Iterator<Item = &'static Mutant> {
    let themes: [&'static [Mutant]; 0] = [];
    themes.into_iter().flatten()
}
