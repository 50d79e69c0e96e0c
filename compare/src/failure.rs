//! What goes wrong in this program.

/// Any error: it is printed, and nothing else is done about it.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

pub(crate) type Outcome<T = ()> = Result<T, Failure>;
