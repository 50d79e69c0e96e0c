//! The part that a backend's author writes: how to reach the backend, its promises, and the faults for it.

mod declared;
mod fault;
mod inspector;
mod maker;

pub use declared::{Administration, Declared, Floors, Leftovers, Passing, Processes, Time};
pub use fault::{ClockStep, Data, Fault, FaultKind, Healer, OpenPush};
pub(crate) use inspector::Named;
pub use inspector::{Inspector, Residue};
pub use maker::{CaseContext, Harness, HarnessMaker, Isolation, Missing};

/// An error of a harness.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What an error says, with its causes.
pub(crate) fn words(error: &BoxError) -> String {
    tenure_core::driver::reason(&error.to_string(), error.source())
}
