//! Core of tenure.
//!
//! skeleton

pub mod driver;

mod clock;
mod error;
mod fence_gate;
mod name;
mod token;
mod ttl;

pub use clock::LeaseInstant;
pub use error::{Error, ErrorKind, Result};
pub use fence_gate::{FenceGate, StaleFence};
pub use name::{Label, LockName};
pub use token::{FencingToken, OwnerId, OwnerToken, TokenText};
pub use ttl::{DriftBound, Ttl};
