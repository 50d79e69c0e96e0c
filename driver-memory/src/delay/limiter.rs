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
