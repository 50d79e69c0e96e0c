//! How much of a queue may be handed out.

use tenure_core::QueueLimits;

use super::slot::{Nanos, after};

/// The limits of a queue, and the bucket of its rate: a count of tokens that is kept as the instant at which the bucket
/// is full again.
#[derive(Debug, Default)]
pub(super) struct Limiter {
    limits: QueueLimits,
    full_at: Nanos,
}

impl Limiter {
    /// With a full bucket.
    pub(super) fn new(limits: QueueLimits) -> Self {
        Self { limits, full_at: 0 }
    }

    pub(super) fn limits(&self) -> &QueueLimits {
        &self.limits
    }

    /// How many deliveries the rate allows.
    pub(super) fn tokens(&self, now: Nanos) -> usize {
        let Some((interval, tokens)) = self.bucket() else { return usize::MAX };
        let missing = self.full_at.saturating_sub(now).div_ceil(interval);
        tokens.saturating_sub(missing) as usize
    }

    /// When there is a token: `now` at the latest if there is one now.
    pub(super) fn next_token(&self, now: Nanos) -> Nanos {
        match self.bucket() {
            Some((interval, tokens)) if self.tokens(now) == 0 => self.full_at - interval * (tokens - 1),
            _ => 0,
        }
    }

    /// Takes tokens for deliveries.
    pub(super) fn spend(&mut self, now: Nanos, deliveries: usize) {
        if let Some((interval, _)) = self.bucket() {
            self.full_at = self.full_at.max(now) + interval * deliveries as u64;
        }
    }

    /// From one token to the next, and how many there may be.
    fn bucket(&self) -> Option<(Nanos, u64)> {
        let rate = self.limits.most_in_a_time()?;
        Some((after(0, rate.interval()), u64::from(rate.deliveries().get())))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tenure_core::Rate;

    use super::*;

    const MS: Nanos = 1_000_000;

    fn limiter(deliveries: u32, millis: u64) -> Limiter {
        let rate = Rate::new(deliveries, Duration::from_millis(millis)).unwrap();
        Limiter::new(QueueLimits::none().rate(rate))
    }

    #[test]
    fn without_a_rate_nothing_is_counted() {
        let mut limiter = Limiter::default();
        limiter.spend(5, 1_000);
        assert_eq!((limiter.tokens(5), limiter.next_token(5)), (usize::MAX, 0));
    }

    #[test]
    fn the_bucket_is_full_at_first_and_after_an_idle_time_and_never_more_than_full() {
        let mut limiter = limiter(3, 30);
        for now in [0, 7 * MS, 1_000 * MS] {
            limiter = Limiter::new(limiter.limits);
            assert_eq!(limiter.tokens(now), 3);
            limiter.spend(now, 3);
            assert_eq!(limiter.tokens(now), 0);
            assert_eq!(limiter.tokens(now + 1_000 * MS), 3, "an idle time fills it");
        }
    }

    #[test]
    fn tokens_come_back_one_by_one_at_the_told_instants() {
        let mut limiter = limiter(3, 30);
        limiter.spend(0, 3);
        for (token, at) in [(1, 10 * MS), (2, 20 * MS), (3, 30 * MS)] {
            assert_eq!((limiter.tokens(at - 1), limiter.tokens(at)), (token - 1, token));
        }
        assert_eq!(limiter.next_token(0), 10 * MS);
        assert_eq!(limiter.next_token(10 * MS), 0, "there is one now");
    }

    #[test]
    fn a_part_of_an_interval_is_not_lost() {
        let mut limiter = limiter(3, 30);
        limiter.spend(0, 3);
        limiter.spend(15 * MS, 1);
        assert_eq!((limiter.tokens(15 * MS), limiter.next_token(15 * MS)), (0, 20 * MS));
    }

    #[test]
    fn over_a_long_time_no_more_is_handed_out_than_said() {
        for (deliveries, millis) in [(1, 1), (7, 10), (3, 1_000), (1_000, 1), (999, 7)] {
            let mut limiter = limiter(deliveries, millis);
            let (mut now, mut handed_out, span) = (0, 0, 20 * millis * MS);
            while now < span {
                let some = limiter.tokens(now).min(3);
                limiter.spend(now, some);
                handed_out += some as u64;
                now = if limiter.tokens(now) > 0 { now } else { limiter.next_token(now) };
            }
            let most = u64::from(deliveries) * 21; // a full bucket at the beginning
            assert!(handed_out <= most && handed_out * 100 >= most * 85, "{handed_out} of {most}");
        }
    }
}
