//! The tests of the suite.

mod abilities;
mod history;
mod memory;
mod reports;
mod suite_catches_mutants;
