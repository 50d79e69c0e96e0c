//! The definition of a case, its context, and the selection of cases for a backend.

mod context;
mod definition;
mod failure;
mod need;
mod property;
mod select;

pub use context::{Context, Seen};
pub(crate) use definition::case;
pub use definition::{Case, CaseFn};
pub use failure::{CaseResult, Failure};
pub use need::{Need, Verdict};
pub use property::{Property, properties};
pub use select::{Listed, Selection, list};
