//! Spans, as the tables store them.

use std::time::Duration;

/// The longest span that is kept; a longer one would overflow when it is added to the clock.
const LONGEST: i64 = i64::MAX / 4;

/// In microseconds.
pub(crate) fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).map_or(LONGEST, |micros| micros.min(LONGEST))
}

/// From microseconds; a negative span has passed and becomes zero.
pub(crate) fn of_micros(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}
