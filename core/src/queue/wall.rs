//! The wall clock of the machine, for what users name by date and time. Spans are counted by the backend, or by the lease
//! clock.

use std::time::{Duration, Instant, SystemTime};

/// The time of day. On a runtime whose clock is paused it moves with that clock.
pub(super) fn now() -> SystemTime {
    let (wall, real) = (SystemTime::now(), Instant::now());
    let runtime = tokio::time::Instant::now().into_std();
    match runtime.checked_duration_since(real) {
        Some(ahead) => wall + ahead,
        None => wall - real.duration_since(runtime),
    }
}

/// How long until then; zero if it is past.
pub(super) fn until(at: SystemTime) -> Duration {
    at.duration_since(now()).unwrap_or_default()
}
