//! Clients in other processes, which the suite kills, stops and wakes.
//!
//! A harness that declares several processes returns a command whose program connects to the same backend and calls
//! [`serve`]. Commands arrive as lines on its standard input, and answers leave as lines on its standard output:
//!
//! | command | answer |
//! |---|---|
//! | `keep NAME TTL` | `took FENCE`, once the lock is granted; it is renewed |
//! | `wait NAME TTL PRESENCE` | `waiting` when it has its place, and later `took FENCE` |
//! | `enter NAME OWNER TTL` | `entered FENCE DEPTH` |
//! | `held` | `held yes` or `held no`, for the guard of the last `keep`, `wait` or `enter` |
//! | `release` | `released` or `not-held` |
//! | `turns NAME COUNT TTL` | `turn FENCE ASKED GRANTED UNTIL ENDED`, COUNT times, and `done` |
//!
//! Names are in hexadecimal, spans in milliseconds, instants in nanoseconds of `CLOCK_MONOTONIC`, which all processes
//! of a machine share. The answer to a failed command is `error`, its kind and its text.

mod remote;
mod serve;

pub use remote::Worker;
pub(crate) use remote::hex;
pub use serve::serve;

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A reading of the clock that all processes share.
#[must_use]
pub fn monotonic() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}
