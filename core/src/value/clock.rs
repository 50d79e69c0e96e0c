//! The one place where time comes from: monotonic, pausable in tests, and not stopped by suspend.
//!
//! Timers are tokio's, so a paused runtime makes everything deterministic. Tokio's clock stands still while the
//! machine is suspended, though, and a lease does not: on Linux and Android the time spent in suspend
//! (`CLOCK_BOOTTIME − CLOCK_MONOTONIC`) is added. Elsewhere a suspended machine sees its leases end late; fencing
//! tokens protect the resource all the same.

use std::num::NonZeroU64;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

/// A reading of the lease clock: time since an arbitrary start, suspend included.
///
/// Not comparable between processes and not related to the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseInstant(NonZeroU64); // nanoseconds: enough for 584 years, and half of a Duration

impl LeaseInstant {
    /// A reading that is never later than the true time: for the moment *before* a request leaves.
    #[must_use]
    pub fn before_send() -> Self {
        let boot = suspend::since_boot();
        let awake = Instant::now().into_std();
        Self::at(since_start(awake) + suspend::at_least(boot, awake))
    }

    /// A reading that is never earlier than the true time: for asking whether a lease has ended.
    #[must_use]
    pub fn now() -> Self {
        let awake = Instant::now().into_std();
        let boot = suspend::since_boot();
        Self::at(since_start(awake) + suspend::at_most(boot, awake))
    }

    /// The instant `span` later; saturates at the far future.
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        let span = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(span))
    }

    /// How long after `earlier` this instant is; zero if it is not after it.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.get().saturating_sub(earlier.0.get()))
    }

    /// How long from now until this instant; zero if it has passed.
    #[must_use]
    pub fn remaining(self) -> Duration {
        self.since(Self::now())
    }

    /// The number of whole milliseconds before this instant.
    pub(crate) fn millis(self) -> u64 {
        self.0.get() / 1_000_000
    }

    /// The instant before which there are so many milliseconds.
    pub(crate) fn at_millis(millis: u64) -> Self {
        Self::at(Duration::from_millis(millis))
    }

    fn at(reading: Duration) -> Self {
        let nanos = u64::try_from(reading.as_nanos()).unwrap_or(u64::MAX);
        Self(NonZeroU64::new(nanos).unwrap_or(NonZeroU64::MIN))
    }

    /// Sleeps until this instant has passed.
    pub(crate) async fn reached(self) {
        loop {
            match self.remaining() {
                Duration::ZERO => return,
                left => tokio::time::sleep(left).await,
            }
        }
    }
}

/// Time since the first call, on tokio's clock.
fn since_start(now: std::time::Instant) -> Duration {
    static START: OnceLock<std::time::Instant> = OnceLock::new();
    // A paused runtime may start its clock before ours; a day of headroom keeps the difference positive.
    const HEADROOM: Duration = Duration::from_secs(86_400);
    let start = *START.get_or_init(|| now);
    match now.checked_duration_since(start) {
        Some(later) => HEADROOM + later,
        None => HEADROOM.saturating_sub(start.duration_since(now)),
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod suspend {
    use std::sync::OnceLock;
    use std::time::{Duration, Instant};

    use rustix::time::{ClockId, Timespec, clock_gettime};

    /// Shorter suspends are not told from the noise of reading two clocks. The safety margin of every lease covers it.
    const NOISE: Duration = Duration::from_millis(1);

    /// Time spent in suspend since boot lies between the two.
    #[derive(Clone, Copy)]
    struct Bounds {
        least: Duration,
        most: Duration,
    }

    fn span(time: Timespec) -> Duration {
        Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
    }

    /// The time since boot, suspend included.
    pub(crate) fn since_boot() -> Duration {
        let time = span(clock_gettime(ClockId::Boottime));
        #[cfg(test)]
        let time = time + super::tests::suspended();
        time
    }

    /// The time since boot, suspend not included.
    fn awake_since_boot() -> Duration {
        span(clock_gettime(ClockId::Monotonic))
    }

    /// What passes between the readings widens the bounds; a reading that was interrupted is repeated a few times.
    fn so_far() -> Bounds {
        let read = || {
            let (before, boot, after) = (awake_since_boot(), since_boot(), awake_since_boot());
            Bounds { least: boot.saturating_sub(after), most: boot.saturating_sub(before) }
        };
        let mut bounds = read();
        for _ in 0..3 {
            if bounds.most - bounds.least < NOISE / 4 {
                break;
            }
            bounds = read();
        }
        bounds
    }

    struct Start {
        suspended: Bounds,
        boot: Duration,
        awake: Instant,
    }

    fn at_start() -> &'static Start {
        static START: OnceLock<Start> = OnceLock::new();
        START.get_or_init(|| {
            let suspended = so_far();
            let boot = since_boot(); // before the other: then what passes in between looks like a suspend
            Start { suspended, boot, awake: Instant::now() }
        })
    }

    /// Whether one has to look closer: there was a suspend since the start, or something came between the two readings, or the
    /// second is of a paused clock. Nearly always there was none, and the two readings tell that.
    fn may_be_beyond_noise(boot: Duration, awake: Instant) -> bool {
        let start = at_start();
        boot.saturating_sub(start.boot) >= awake.saturating_duration_since(start.awake) + NOISE / 2
    }

    fn beyond_noise(span: Duration) -> Duration {
        if span < NOISE { Duration::ZERO } else { span }
    }

    /// Of a reading of the lease clock's two parts, the time since boot first. Whatever comes between two readings makes it less.
    pub(crate) fn at_least(boot: Duration, awake: Instant) -> Duration {
        if !may_be_beyond_noise(boot, awake) {
            return Duration::ZERO;
        }
        let boot = since_boot();
        let least = boot.saturating_sub(awake_since_boot());
        beyond_noise(least.saturating_sub(at_start().suspended.most))
    }

    /// As [`at_least`], the time since boot last. Whatever comes between two readings makes it more: what looks like a suspend is
    /// looked at again.
    pub(crate) fn at_most(boot: Duration, awake: Instant) -> Duration {
        if !may_be_beyond_noise(boot, awake) {
            return Duration::ZERO;
        }
        let start = at_start().suspended;
        let awake = awake_since_boot();
        let most = since_boot().saturating_sub(awake);
        match beyond_noise(most.saturating_sub(start.least)) {
            Duration::ZERO => Duration::ZERO,
            _ => beyond_noise(so_far().most.saturating_sub(start.least)),
        }
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod suspend {
    use std::time::{Duration, Instant};

    pub(crate) fn since_boot() {}

    pub(crate) fn at_least(_boot: (), _awake: Instant) -> Duration {
        Duration::ZERO
    }

    pub(crate) fn at_most(_boot: (), _awake: Instant) -> Duration {
        Duration::ZERO
    }
}

// The wall clock of the machine, for what users name by date and time. Spans are counted by the backend, or by the lease
// clock.

/// The time of day. On a runtime whose clock is paused it moves with that clock.
pub(crate) fn wall_clock() -> SystemTime {
    let (wall, real) = (SystemTime::now(), std::time::Instant::now());
    let runtime = Instant::now().into_std();
    match runtime.checked_duration_since(real) {
        Some(ahead) => wall + ahead,
        None => wall - real.duration_since(runtime),
    }
}

/// How long until then; zero if it is past.
pub(crate) fn until_wall_clock(at: SystemTime) -> Duration {
    at.duration_since(wall_clock()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        static SUSPENDED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    }

    /// For how long this thread pretends that the machine was suspended.
    pub(super) fn suspended() -> Duration {
        SUSPENDED.get()
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    #[tokio::test(start_paused = true)]
    async fn time_in_suspend_counts_and_the_noise_of_two_clocks_does_not() {
        let noise = Duration::from_millis(1);
        // The nearest of some: other work may come between the readings of the clocks.
        let nearest = || {
            let all: [_; 10] = std::array::from_fn(|_| (LeaseInstant::now(), LeaseInstant::before_send()));
            (all.map(|one| one.0).into_iter().min().unwrap(), all.map(|one| one.1).into_iter().max().unwrap())
        };
        let (first, _) = nearest();
        SUSPENDED.set(noise / 2);
        assert_eq!(nearest(), (first, first), "it may be the time between two readings");
        for slept in [2 * noise, Duration::from_secs(7), Duration::from_secs(100_000)] {
            SUSPENDED.set(slept);
            let (now, before_send) = nearest();
            let passed = now.since(first);
            assert!(passed >= slept && passed < slept + noise, "a lease may have ended: {passed:?} of {slept:?}");
            let passed = before_send.since(first);
            assert!(passed <= slept && passed + noise > slept, "a lease begins no later: {passed:?} of {slept:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn follows_the_paused_clock() {
        let start = LeaseInstant::before_send();
        tokio::time::advance(Duration::from_secs(5)).await;
        let passed = LeaseInstant::now().since(start);
        assert!(passed >= Duration::from_secs(5) && passed < Duration::from_millis(5_100), "{passed:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_paused_clock_does_not_tremble() {
        let first = LeaseInstant::now();
        for _ in 0..10_000 {
            assert_eq!((LeaseInstant::now(), LeaseInstant::before_send()), (first, first));
        }
    }

    #[tokio::test]
    async fn before_send_is_never_later_than_now() {
        for _ in 0..10_000 {
            let sent = LeaseInstant::before_send();
            assert!(sent <= LeaseInstant::now());
        }
    }
}
