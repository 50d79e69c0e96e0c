//! The clock that all processes of one machine share, and the machine run that it belongs to.

use rustix::time::ClockId;
use tenure_core::Result;

use crate::error::{misconfigured, of_system};

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const OFFSETS: &str = "/proc/self/timens_offsets";

/// The clock of this machine since it was started, sleep included. No step of the wall clock moves it.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    boot: String,
    /// How far a time namespace shifts the clock for this process.
    shift: i64,
}

impl Clock {
    /// Finds out which run of the machine this is.
    pub(crate) fn find() -> Result<Self> {
        let text = std::fs::read_to_string(BOOT_ID);
        let text =
            text.map_err(|error| of_system(format_args!("identify this boot of the system: {BOOT_ID}"), error))?;
        let boot = text.trim().to_owned();
        if boot.is_empty() {
            return Err(misconfigured(format!("cannot identify this boot of the system: {BOOT_ID} is empty")));
        }
        // Absent where the kernel has no time namespaces.
        let shift = std::fs::read_to_string(OFFSETS).map_or(0, |text| shift_of(&text));
        Ok(Self { boot, shift })
    }

    /// The identity of this run.
    pub(crate) fn boot(&self) -> &str {
        &self.boot
    }

    /// Microseconds since the machine was started.
    pub(crate) fn now(&self) -> i64 {
        micros(ClockId::Boottime) - self.shift
    }

    /// By how much the wall clock is ahead of this one now.
    pub(crate) fn wall_ahead(&self) -> i64 {
        micros(ClockId::Realtime) - self.now()
    }
}

fn micros(clock: ClockId) -> i64 {
    let time = rustix::time::clock_gettime(clock);
    time.tv_sec * 1_000_000 + time.tv_nsec / 1_000
}

/// The line `boottime SECONDS NANOSECONDS`, in microseconds.
fn shift_of(offsets: &str) -> i64 {
    let boot = offsets.lines().find_map(|line| line.trim().strip_prefix("boottime"));
    let mut numbers = boot.unwrap_or_default().split_whitespace().map(|part| part.parse::<i64>().unwrap_or(0));
    let (seconds, nanos) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    seconds * 1_000_000 + nanos / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_namespace_is_seen_through() {
        assert_eq!(shift_of("monotonic           7         1\nboottime         86400 500000000\n"), 86_400_500_000);
        assert_eq!(shift_of("monotonic           0         0\nboottime         -1   0\n"), -1_000_000);
        assert_eq!((shift_of(""), shift_of("boottime")), (0, 0));
    }

    #[test]
    fn the_clock_runs_and_the_wall_clock_is_that_far_ahead() {
        let clock = Clock::find().unwrap();
        let wall = || i64::try_from(tenure_core::FenceFloor::now().get()).unwrap();
        let (before, ahead, after) = (wall(), clock.wall_ahead() + clock.now(), wall());
        assert!(before - 1_000_000 < ahead && ahead < after + 1_000_000, "{before} {ahead} {after}");
    }
}
