//! What a case is, what it is given, and which cases a backend gets.

mod context;
mod definition;
mod failure;
mod need;
mod property;
mod select;

pub use context::Context;
pub(crate) use definition::case;
pub use definition::{Case, CaseFn};
pub use failure::{CaseResult, Failure};
pub use need::{Need, Verdict};
pub use property::{Property, properties};
pub use select::{Listed, Selection, list};
