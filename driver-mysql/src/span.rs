//! Spans as the procedures count them: microseconds.

use std::time::Duration;

pub(crate) fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX / 4).min(i64::MAX / 4)
}

/// A negative one is none.
pub(crate) fn of_micros(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}
