//! The conformance suite: it proves that a tenure driver keeps the contract.
//!
//! A driver's author writes a [`HarnessMaker`] (about 40 lines) and a test binary:
//!
//! ```no_run
//! # use std::sync::Arc;
//! # fn maker() -> Arc<dyn tenure_conformance::HarnessMaker> { unimplemented!() }
//! // In Cargo.toml: [[test]] name = "conformance", harness = false
//! fn main() {
//!     tenure_conformance::main([maker()])
//! }
//! ```
//!
//! The suite drives the portable types ([`Client`](tenure_core::Client) and the types that it returns) and, where the
//! driver alone is the subject, the raw traits. It never names a backend.
//!
//! * **The cases to run are selected when listing**, from the maker's declaration. The refusal of undeclared abilities
//!   is tested. Cases that need an ability which the harness lacks are listed as ignored, with the reason. A backend
//!   that is configured and not reachable fails.
//! * **Time** is virtual if the backend uses tokio's clock, and the machine's otherwise; `TENURE_SLACK=3` stretches
//!   real waits on a slow machine.
//! * **Faults** occur on two levels: [`FaultLayer`] between engine and driver, free for every driver, and [`Fault`],
//!   the faults that the harness can inject into its server.
//! * **Mutants** (feature `mutants`) are deliberately broken drivers, for tests of the suite itself: each must be
//!   caught, and each case must catch one.
//! * All random values come from one seed; `TENURE_SEED` replays it.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

pub mod case;
pub mod harness;
pub mod history;
pub mod layer;
#[cfg(feature = "mutants")]
pub mod mutants;
pub mod poll;
pub mod witness;
#[cfg(unix)]
pub mod worker;

mod cases;
mod journal;
mod rng;
mod run;

pub use case::{Case, Context, Listed, Need, Property, Selection, list, properties};
pub use cases::all as all_cases;
pub use harness::{
    BoxError, CaseContext, Declared, Fault, FaultKind, Harness, HarnessMaker, Healer, Inspector, Isolation, Missing,
    Residue,
};
pub use layer::FaultLayer;
pub use rng::Rng;
pub use run::{CaseReport, Options, Outcome, Progress, Report, check_filters, main, run_all, run_case};
