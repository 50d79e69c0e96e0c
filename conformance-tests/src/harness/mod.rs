//! What a backend's author writes: how to reach the backend, what it promises, and what can be done to it.

mod declared;
mod fault;
mod inspector;
mod maker;

pub use declared::{Declared, Floors, Leftovers, Passing, Processes, Time};
pub use fault::{ClockStep, Data, Fault, FaultKind, Healer, OpenPush};
pub use inspector::{Inspector, Residue};
pub use maker::{CaseContext, Harness, HarnessMaker, Isolation, Missing};

/// Whatever went wrong in a harness.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
