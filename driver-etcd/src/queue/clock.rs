//! The queue's clock: etcd has none, so it is the client's wall clock, made to never step back.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// Microseconds since 1970.
pub(crate) type Micros = u64;

#[derive(Debug, Default)]
pub(crate) struct Clock {
    latest: AtomicU64,
    /// The last number that was given to a message.
    numbered: AtomicU64,
}

impl Clock {
    pub(crate) fn now(&self) -> Micros {
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let now = wall.as_micros() as Micros;
        self.latest.fetch_max(now, Ordering::AcqRel).max(now)
    }

    /// Stops the clock at `now`, if that is later than the present time.
    #[cfg(test)]
    pub(super) fn at_least(&self, now: Micros) {
        self.latest.fetch_max(now, Ordering::AcqRel);
    }

    /// The first of so many numbers, greater than all before them: near the time in microseconds.
    pub(crate) fn numbers(&self, count: usize) -> u64 {
        let (now, count) = (self.now(), count as u64);
        let taken = |last: u64| Some(last.max(now) + count);
        let last = self.numbered.fetch_update(Ordering::AcqRel, Ordering::Acquire, taken);
        last.unwrap_or_else(|last| last).max(now) + 1
    }
}

/// `span` after `now`.
pub(crate) fn after(now: Micros, span: Duration) -> Micros {
    now.saturating_add(u64::try_from(span.as_micros()).unwrap_or(u64::MAX))
}

/// From `earlier` to `later`; zero if it is not later.
pub(crate) fn span(earlier: Micros, later: Micros) -> Duration {
    Duration::from_micros(later.saturating_sub(earlier))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_grow_and_leave_room_for_a_batch() {
        let clock = Clock::default();
        let first = clock.numbers(10);
        assert!(first > clock.latest.load(Ordering::Acquire) - 1);
        assert!(clock.numbers(1) >= first + 10);
    }

    #[test]
    fn the_clock_does_not_step_back() {
        let clock = Clock::default();
        let far = clock.now() + 1_000_000_000;
        clock.latest.store(far, Ordering::Release);
        assert_eq!(clock.now(), far);
    }

    #[test]
    fn each_number_is_given_once() {
        let clock = Clock::default();
        let now = clock.now() + 3_600_000_000;
        clock.at_least(now);
        assert_eq!([10, 1, 0, 2, 1].map(|count| clock.numbers(count) - now), [1, 11, 12, 12, 14]);
        clock.at_least(now + 100);
        assert_eq!([1, 1].map(|count| clock.numbers(count) - now), [101, 102]);
    }

    #[test]
    fn spans_are_added_and_taken_away_within_bounds() {
        assert_eq!(after(5, Duration::from_micros(3)), 8);
        assert_eq!([after(u64::MAX - 1, Duration::from_secs(1)), after(5, Duration::MAX)], [u64::MAX; 2]);
        assert_eq!([span(5, 9), span(9, 5)], [Duration::from_micros(4), Duration::ZERO]);
    }
}
