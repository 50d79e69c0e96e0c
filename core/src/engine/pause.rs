//! How long to wait before asking again.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::alarm;
use crate::driver::Queueing;

/// Pauses that grow, with jitter, so that many clients do not come back as one.
#[derive(Default)]
pub(crate) struct Pause {
    step: u32,
}

impl Pause {
    pub(crate) fn reset(&mut self) {
        self.step = 0;
    }

    /// For drivers that cannot wake: 5 ms, doubling to 250 ms.
    pub(crate) fn polling(&mut self) -> Duration {
        self.next(Duration::from_millis(5), Duration::from_millis(250))
    }

    /// While the backend fails: 50 ms, doubling to 1 s.
    pub(crate) fn outage(&mut self) -> Duration {
        self.next(Duration::from_millis(50), Duration::from_secs(1))
    }

    /// While a lock that nobody wants is held: 50 ms, doubling to 1 s.
    pub(crate) fn looking(&mut self) -> Duration {
        self.next(Duration::from_millis(50), Duration::from_secs(1))
    }

    /// Between half and all of `base × 2^step`, at most `cap`.
    fn next(&mut self, base: Duration, cap: Duration) -> Duration {
        let full = base.saturating_mul(1 << self.step.min(10)).min(cap);
        self.step += 1;
        full.mul_f64(0.5 + 0.5 * fastrand::f64())
    }
}

/// Waits before a waiter asks again. The one that keeps its place in the backend's queue by asking is not late although something
/// blocks the worker that looks at the timers.
pub(super) async fn rest(queue: Queueing, pause: Duration) {
    match queue {
        Queueing::None => sleep(pause).await,
        Queueing::Join { .. } => alarm::sleep_until(Instant::now() + pause).await,
    }
}
