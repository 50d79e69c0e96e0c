//! The suite that proves that a tenure driver keeps the contract.
//!
//! A driver's author writes a [`HarnessMaker`] (about 40 lines) and a test binary:
//!
//! ```no_run
//! # use std::sync::Arc;
//! # fn maker() -> Arc<dyn tenure_conformance::HarnessMaker> { unimplemented!() }
//! fn main() {
//!     tenure_conformance::main([maker()]) // [[test]] name = "conformance", harness = false
//! }
//! ```
//!
//! The suite drives the portable types ([`Client`](tenure_core::Client) and what it gives) and, where the driver alone
//! is the subject, the raw traits. It never names a backend.
//!
//! * **Which cases run is decided when listing**, from what the maker declares. What is not declared is tested for its
//!   refusal; what the harness cannot do is listed as ignored, with the reason. A backend that is configured and not
//!   reachable fails.
//! * **Time** is virtual where the backend lives on tokio's clock, and the machine's otherwise; `TENURE_SLACK=3`
//!   stretches real waits on a slow machine.
//! * **Faults** come on two planes: [`FaultLayer`] between engine and driver, free for every driver, and
//!   [`Fault`], what the harness can do to its server.
//! * **Mutants** (feature `mutants`) are deliberately broken drivers, for tests of the suite itself: each must be caught,
//!   and each case must catch one.
//! * Everything random comes from one seed; `TENURE_SEED` replays it.

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
pub use run::{CaseReport, Options, Outcome, Progress, Report, main, run_all, run_case};
