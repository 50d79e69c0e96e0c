//! How long to wait before asking again.

use std::time::Duration;

/// Pauses that grow, with jitter, so that many clients do not come back as one.
pub(super) struct Pause {
    random: u64,
    step: u32,
}

impl Pause {
    pub(super) fn new(seed: &[u8]) -> Self {
        let random = seed
            .iter()
            .fold(0x9e37_79b9_7f4a_7c15, |all: u64, byte| (all ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
        Self { random: random | 1, step: 0 }
    }

    pub(super) fn reset(&mut self) {
        self.step = 0;
    }

    /// For drivers that cannot wake: 5 ms, doubling to 250 ms.
    pub(super) fn polling(&mut self) -> Duration {
        self.next(Duration::from_millis(5), Duration::from_millis(250))
    }

    /// While the backend fails: 50 ms, doubling to 1 s.
    pub(super) fn outage(&mut self) -> Duration {
        self.next(Duration::from_millis(50), Duration::from_secs(1))
    }

    /// Between half and all of `base × 2^step`, at most `cap`.
    fn next(&mut self, base: Duration, cap: Duration) -> Duration {
        let full = base.saturating_mul(1 << self.step.min(10)).min(cap);
        self.step += 1;
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let part = 0.5 + 0.5 * (self.random >> 11) as f64 / (1_u64 << 53) as f64;
        full.mul_f64(part)
    }
}
