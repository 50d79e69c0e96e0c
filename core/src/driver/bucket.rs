//! The rate of a queue, counted in one number.

use std::time::Duration;

use crate::value::limits::Rate;

/// A token bucket whose whole state is the instant at which it is full again, on whatever clock the backend has: an instant in
/// the past, or zero, is a full bucket. A driver that counts deliveries by itself stores that number with its queue.
///
/// (The generic cell rate algorithm: a token is an interval, and the bucket is how far ahead of now its end may be.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    /// From one token to the next.
    interval: u64,
    size: u64,
}

impl TokenBucket {
    /// The bucket of a rate, on a clock that counts units of `unit`: a microsecond or less, as a rate can be one delivery a
    /// microsecond.
    #[must_use]
    pub fn new(rate: Rate, unit: Duration) -> Self {
        let interval = rate.interval().as_nanos().div_ceil(unit.as_nanos().max(1));
        Self { interval: u64::try_from(interval).unwrap_or(u64::MAX), size: u64::from(rate.deliveries().get()) }
    }

    /// How many deliveries it allows now.
    #[must_use]
    pub fn tokens(&self, full_at: u64, now: u64) -> u64 {
        self.size.saturating_sub(full_at.saturating_sub(now).div_ceil(self.interval))
    }

    /// When there is a token; zero if there is one now.
    #[must_use]
    pub fn token_at(&self, full_at: u64, now: u64) -> u64 {
        match self.tokens(full_at, now) {
            0 => full_at.saturating_sub(self.interval.saturating_mul(self.size - 1)),
            _ => 0,
        }
    }

    /// When it is full again after so many deliveries.
    #[must_use]
    pub fn spent(&self, full_at: u64, now: u64, deliveries: usize) -> u64 {
        full_at.max(now).saturating_add(self.interval.saturating_mul(deliveries as u64))
    }

    /// When it is full again if it is empty now. What says more was counted by a clock that is ahead of this one.
    #[must_use]
    pub fn emptied(&self, now: u64) -> u64 {
        now.saturating_add(self.interval.saturating_mul(self.size))
    }

    /// When it is full again after so many deliveries that were counted, but not made.
    #[must_use]
    pub fn given_back(&self, full_at: u64, deliveries: usize) -> u64 {
        full_at.saturating_sub(self.interval.saturating_mul(deliveries as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn bucket(deliveries: u32, millis: u64) -> TokenBucket {
        TokenBucket::new(Rate::new(deliveries, Duration::from_millis(millis)).unwrap(), Duration::from_nanos(1))
    }

    #[test]
    fn it_is_full_at_first_and_after_an_idle_time_and_never_more_than_full() {
        let bucket = bucket(3, 30);
        for now in [0, 7 * MS, 1_000 * MS] {
            assert_eq!(bucket.tokens(0, now), 3);
            let empty = bucket.spent(0, now, 3);
            assert_eq!(bucket.tokens(empty, now), 0);
            assert_eq!(bucket.tokens(empty, now + 1_000 * MS), 3, "an idle time fills it");
        }
    }

    #[test]
    fn tokens_come_back_one_by_one_at_the_told_instants() {
        let bucket = bucket(3, 30);
        let empty = bucket.spent(0, 0, 3);
        for (token, at) in [(1, 10 * MS), (2, 20 * MS), (3, 30 * MS)] {
            assert_eq!((bucket.tokens(empty, at - 1), bucket.tokens(empty, at)), (token - 1, token));
        }
        assert_eq!(bucket.token_at(empty, 0), 10 * MS);
        assert_eq!(bucket.token_at(empty, 10 * MS), 0, "there is one now");
    }

    #[test]
    fn no_spending_that_there_are_tokens_for_goes_beyond_the_empty_bucket() {
        let bucket = bucket(3, 30);
        for tokens in 0..=3 {
            let full_at = bucket.spent(0, 7 * MS, tokens);
            assert!(full_at <= bucket.emptied(7 * MS));
            assert_eq!(full_at == bucket.emptied(7 * MS), bucket.tokens(full_at, 7 * MS) == 0);
        }
    }

    #[test]
    fn a_part_of_an_interval_is_not_lost() {
        let bucket = bucket(3, 30);
        let empty = bucket.spent(bucket.spent(0, 0, 3), 15 * MS, 1);
        assert_eq!((bucket.tokens(empty, 15 * MS), bucket.token_at(empty, 15 * MS)), (0, 20 * MS));
    }

    #[test]
    fn what_is_given_back_is_there_again() {
        let bucket = bucket(3, 30);
        let empty = bucket.spent(0, 5 * MS, 3);
        assert_eq!(bucket.tokens(bucket.given_back(empty, 2), 5 * MS), 2);
    }

    #[test]
    fn the_unit_is_that_of_the_clock() {
        let rate = Rate::new(4, Duration::from_secs(4)).unwrap();
        let bucket = TokenBucket::new(rate, Duration::from_micros(1));
        assert_eq!(bucket.token_at(bucket.spent(0, 5, 4), 5), 5 + 1_000_000);
    }

    #[test]
    fn over_a_long_time_no_more_is_handed_out_than_said() {
        for (deliveries, millis) in [(1, 1), (7, 10), (3, 1_000), (1_000, 1), (999, 7)] {
            let bucket = bucket(deliveries, millis);
            let (mut full_at, mut now, mut handed_out, span) = (0, 0, 0, 20 * millis * MS);
            while now < span {
                let some = bucket.tokens(full_at, now).min(3);
                full_at = bucket.spent(full_at, now, some as usize);
                handed_out += some;
                now = now.max(bucket.token_at(full_at, now));
            }
            let most = u64::from(deliveries) * 21; // a full bucket at the beginning
            assert!(handed_out <= most && handed_out * 100 >= most * 85, "{handed_out} of {most}");
        }
    }
}
