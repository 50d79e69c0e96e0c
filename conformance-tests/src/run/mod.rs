//! Runs the cases: one by one, all of a backend, or as a test binary.

mod all;
mod mimic;
mod one;
mod options;
mod pace;
mod panics;
mod report;

pub use all::run_all;
pub use mimic::main;
pub use one::run_case;
pub use options::{Options, Progress, check_filters};
pub use report::{CaseReport, Outcome, Report};
