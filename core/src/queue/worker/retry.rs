//! When a failed message is tried again.

use std::time::Duration;

/// How long a message waits after a failed attempt: `first × factor^(attempt − 1)`, at most `longest`, with jitter.
///
/// Default: 1 s, doubled each time, at most 10 minutes, half of it random.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryPolicy {
    first: Duration,
    factor: f64,
    longest: Duration,
    jitter: Jitter,
}

/// How much of a wait is left to chance, so that messages that failed together do not come back together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Jitter {
    /// Nothing.
    None,
    /// From half of the wait to all of it.
    Half,
    /// From nothing to all of it.
    Full,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        let (first, longest) = (Duration::from_secs(1), Duration::from_secs(600));
        Self { first, factor: 2.0, longest, jitter: Jitter::Half }
    }
}

impl RetryPolicy {
    /// Always the same wait.
    #[must_use]
    pub fn fixed(wait: Duration) -> Self {
        Self { first: wait, factor: 1.0, longest: wait, jitter: Jitter::None }
    }

    /// A wait that is doubled after each failure, from `first` to `longest`, half of it random.
    #[must_use]
    pub fn exponential(first: Duration, longest: Duration) -> Self {
        Self { first, factor: 2.0, longest, jitter: Jitter::Half }
    }

    /// How much is left to chance.
    #[must_use]
    pub fn jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }

    /// The wait after the failure of this attempt, 1 for the first. `chance` is from 0 to 1.
    #[must_use]
    pub fn wait(&self, attempt: u32, chance: f64) -> Duration {
        let power = self.factor.powi(i32::try_from(attempt.saturating_sub(1)).unwrap_or(i32::MAX));
        let seconds = (self.first.as_secs_f64() * power).min(self.longest.as_secs_f64());
        let chance = chance.clamp(0.0, 1.0);
        let share = match self.jitter {
            Jitter::None => 1.0,
            Jitter::Half => 0.5 + chance / 2.0,
            Jitter::Full => chance,
        };
        Duration::try_from_secs_f64(seconds * share).unwrap_or(self.longest)
    }

    /// As [`wait`](Self::wait), by chance.
    pub(super) fn random_wait(&self, attempt: u32) -> Duration {
        self.wait(attempt, fastrand::f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_cap_and_stay_within_their_jitter() {
        let policy = RetryPolicy::exponential(Duration::from_secs(1), Duration::from_secs(60)).jitter(Jitter::None);
        let waits: Vec<_> = [1, 2, 3, 7, 10_000].map(|attempt| policy.wait(attempt, 0.3).as_secs()).into();
        assert_eq!(waits, [1, 2, 4, 60, 60]);
        assert_eq!(policy.jitter(Jitter::Half).wait(1, 0.0), Duration::from_millis(500));
        assert_eq!(policy.jitter(Jitter::Full).wait(1, 0.0), Duration::ZERO);
        assert_eq!(policy.jitter(Jitter::Full).wait(1, 1.0), Duration::from_secs(1));
        assert_eq!(RetryPolicy::fixed(Duration::ZERO).wait(3, 0.5), Duration::ZERO);
    }
}
