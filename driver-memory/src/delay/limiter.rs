//! How much of a queue may be handed out.

use std::time::Duration;

use tenure_core::driver::TokenBucket;
use tenure_core::queue::QueueLimits;

use super::slot::Nanos;

/// The limits of a queue, and how much of its rate is used up.
#[derive(Debug, Default)]
pub(super) struct Limiter {
    limits: QueueLimits,
    /// When the bucket is full again.
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
        self.bucket().map_or(usize::MAX, |bucket| bucket.tokens(self.full_at, now) as usize)
    }

    /// When there is a token; zero if there is one now.
    pub(super) fn next_token(&self, now: Nanos) -> Nanos {
        self.bucket().map_or(0, |bucket| bucket.token_at(self.full_at, now))
    }

    /// Takes tokens for deliveries.
    pub(super) fn spend(&mut self, now: Nanos, deliveries: usize) {
        if let Some(bucket) = self.bucket() {
            self.full_at = bucket.spent(self.full_at, now, deliveries);
        }
    }

    fn bucket(&self) -> Option<TokenBucket> {
        Some(TokenBucket::new(self.limits.max_rate()?, Duration::from_nanos(1)))
    }
}
