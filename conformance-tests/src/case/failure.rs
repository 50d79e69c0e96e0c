//! The failure of a case, other than a panic.

use std::fmt;
use std::panic::Location;

use crate::harness::{BoxError, words};

/// The result of a case.
pub type CaseResult<T = ()> = Result<T, Failure>;

/// The reason and the place of a case's failure.
pub struct Failure {
    what: String,
    place: &'static Location<'static>,
}

impl Failure {
    /// A failure with this message, at the caller's line.
    #[must_use]
    #[track_caller]
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), place: Location::caller() }
    }

    /// The same, with what the last look at the condition said.
    pub(crate) fn because(self, why: &str) -> Self {
        Self { what: format!("{}; the last look failed: {why}", self.what), ..self }
    }
}

impl<E: Into<BoxError>> From<E> for Failure {
    #[track_caller]
    fn from(error: E) -> Self {
        Self { what: format!("unexpected error: {}", words(&error.into())), place: Location::caller() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}:{})", self.what, self.place.file(), self.place.line())
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Failure({self})")
    }
}
