//! How a case fails, other than by panicking.

use std::fmt;
use std::panic::Location;

use crate::harness::BoxError;

/// What a case returns.
pub type CaseResult<T = ()> = Result<T, Failure>;

/// Why a case failed, and where.
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
}

impl<E: Into<BoxError>> From<E> for Failure {
    #[track_caller]
    fn from(error: E) -> Self {
        Self { what: format!("unexpected error: {}", error.into()), place: Location::caller() }
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
