//! Time: the clock of leases, the length of a lease, and the part of it that a holder may rely on.
//!
//! The clock is the only source of time: monotonic, pausable in tests, and not stopped by suspend. Timers are tokio's,
//! so a paused runtime makes everything deterministic. But tokio's clock pauses while the machine is suspended, and a
//! lease does not: on Linux and Android the time spent in suspend (`CLOCK_BOOTTIME − CLOCK_MONOTONIC`) is added.
//! Elsewhere a suspended machine notices the end of its leases late; fencing tokens protect the resource nevertheless.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::value::error::{Error, ErrorKind, Result};

/// A reading of the lease clock: time since an arbitrary start, suspend included.
///
/// Not comparable between processes and not related to the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseInstant(NonZeroU64); // nanoseconds: enough for 584 years, and half of a Duration

impl LeaseInstant {
    /// Takes a reading that is never later than the true time: for the moment *before* a request leaves.
    #[must_use]
    pub fn before_send() -> Self {
        let boot = suspend::since_boot();
        let awake = Instant::now().into_std();
        Self::at(since_start(awake) + suspend::at_least(boot, awake))
    }

    /// Takes a reading that is never earlier than the true time: to check if a lease has ended.
    #[must_use]
    pub fn now() -> Self {
        let awake = Instant::now().into_std();
        let boot = suspend::since_boot();
        Self::at(since_start(awake) + suspend::at_most(boot, awake))
    }

    /// Returns the instant `span` later; saturates at the far future.
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        let span = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(span))
    }

    /// Returns the time from `earlier` to this instant; zero if it is not after it.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.get().saturating_sub(earlier.0.get()))
    }

    /// Returns the time from now until this instant; zero if it has passed.
    #[must_use]
    pub fn remaining(self) -> Duration {
        self.since(Self::now())
    }

    /// Returns the number of whole milliseconds before this instant.
    pub(crate) fn millis(self) -> u64 {
        self.0.get() / 1_000_000
    }

    /// Returns the instant after so many milliseconds.
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

/// Returns the time since the first call, on tokio's clock.
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

    /// The longest suspend that is within the noise of reading two clocks. The safety margin of every lease covers it.
    const NOISE: Duration = Duration::from_millis(1);

    /// A lower and an upper bound of the time spent in suspend since boot.
    #[derive(Clone, Copy)]
    struct Bounds {
        least: Duration,
        most: Duration,
    }

    fn span(time: Timespec) -> Duration {
        Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
    }

    /// Returns the time since boot, suspend included.
    pub(crate) fn since_boot() -> Duration {
        let time = span(clock_gettime(ClockId::Boottime));
        #[cfg(test)]
        let time = time + super::tests::suspended();
        time
    }

    /// Returns the time since boot, suspend not included.
    fn awake_since_boot() -> Duration {
        span(clock_gettime(ClockId::Monotonic))
    }

    /// Reads the bounds. Time between the readings widens them; a reading that was interrupted is repeated a few times.
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

    /// Returns true if a closer check is needed: there was a suspend since the start, or a delay between the two
    /// readings, or the second is of a paused clock. Nearly always there was none, and the two readings show that.
    fn may_be_beyond_noise(boot: Duration, awake: Instant) -> bool {
        let start = at_start();
        boot.saturating_sub(start.boot) >= awake.saturating_duration_since(start.awake) + NOISE / 2
    }

    fn beyond_noise(span: Duration) -> Duration {
        if span < NOISE { Duration::ZERO } else { span }
    }

    /// Combines the two parts of a lease clock reading, the time since boot read first. A delay between the readings
    /// makes it less.
    pub(crate) fn at_least(boot: Duration, awake: Instant) -> Duration {
        if !may_be_beyond_noise(boot, awake) {
            return Duration::ZERO;
        }
        let boot = since_boot();
        let least = boot.saturating_sub(awake_since_boot());
        beyond_noise(least.saturating_sub(at_start().suspended.most))
    }

    /// Combines them as [`at_least`], the time since boot read last. A delay between the readings makes it more: an
    /// apparent suspend is checked again.
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

/// Returns the time of day. On a runtime whose clock is paused it moves with that clock.
pub(crate) fn wall_clock() -> SystemTime {
    let (wall, real) = (SystemTime::now(), std::time::Instant::now());
    let runtime = Instant::now().into_std();
    match runtime.checked_duration_since(real) {
        Some(ahead) => wall + ahead,
        None => wall - real.duration_since(runtime),
    }
}

/// Returns the time until then; zero if it is past.
pub(crate) fn until_wall_clock(at: SystemTime) -> Duration {
    at.duration_since(wall_clock()).unwrap_or_default()
}

// How long a lease lasts, and what of it may be believed.

/// The length of a lease without renewal: [`Ttl::MIN`] to [`Ttl::MAX`], whole milliseconds.
///
/// Drivers may declare a narrower range ([`TtlRange`](crate::driver::TtlRange)); it is checked before anything is sent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ttl(u32); // milliseconds

impl Ttl {
    /// The shortest lease: 10 ms. Below that, clock margins would leave nothing to hold.
    pub const MIN: Duration = Duration::from_millis(10);
    /// The longest lease: 24 days, which fits a signed 32-bit count of milliseconds.
    pub const MAX: Duration = Duration::from_secs(24 * 86_400);
    /// The default of a lock: 30 s.
    pub const DEFAULT: Self = Self(30_000);

    /// Checks `ttl`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when it is zero, outside [`Ttl::MIN`]..=[`Ttl::MAX`], or has a fraction of a
    /// millisecond (it would have to be rounded, and a silently shorter lease is a broken promise).
    pub fn new(ttl: Duration) -> Result<Self> {
        if ttl < Self::MIN || ttl > Self::MAX {
            let text = format!("a ttl of {ttl:?} is outside {:?} to {:?}", Self::MIN, Self::MAX);
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        if !ttl.subsec_nanos().is_multiple_of(1_000_000) {
            let text = format!("a ttl of {ttl:?} has a fraction of a millisecond");
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        Ok(Self(ttl.as_millis() as u32)) // at most MAX
    }

    /// Returns the length.
    #[must_use]
    pub const fn get(self) -> Duration {
        Duration::from_millis(self.as_millis())
    }

    /// Returns the length in milliseconds.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0 as u64
    }
}

impl fmt::Debug for Ttl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ttl({:?})", self.get())
    }
}

/// The maximum difference between the clocks of client and backend while a lease lasts.
///
/// A holder's view of its lease ends at `sent_at + ttl − bound(ttl)`, where `sent_at` is read before the last confirmed
/// acquire or renewal left. The bound is `ttl × rate + fixed`, and a safety margin of `max(1 ms, ttl / 1000)` on top.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DriftBound {
    rate: f64,
    fixed: Duration,
}

impl DriftBound {
    /// 1 % and 2 ms. If a time daemon may slew faster (chrony's limit is about 8 %), use 10 %.
    pub const DEFAULT: Self = Self { rate: 0.01, fixed: Duration::from_millis(2) };
    /// The greatest rate.
    pub const MAX_RATE: f64 = 0.5;
    /// The greatest fixed part.
    pub const MAX_FIXED: Duration = Duration::from_secs(1);

    /// Makes a bound of `ttl × rate + fixed`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] unless `0 ≤ rate ≤ 0.5` and `fixed ≤ 1 s`.
    pub fn new(rate: f64, fixed: Duration) -> Result<Self> {
        if !(0.0..=Self::MAX_RATE).contains(&rate) || fixed > Self::MAX_FIXED {
            let text = format!("a drift bound of {rate} and {fixed:?} is outside 0 to 0.5 and 0 to 1 s");
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        Ok(Self { rate, fixed })
    }

    /// Returns the part that grows with the ttl.
    #[must_use]
    pub const fn rate(&self) -> f64 {
        self.rate
    }

    /// Returns the part that is the same for every ttl.
    #[must_use]
    pub const fn fixed(&self) -> Duration {
        self.fixed
    }

    /// Returns the part of a lease of length `ttl` that its holder may rely on; `None` when the bound uses up all of
    /// it.
    #[must_use]
    pub fn believable(&self, ttl: Duration) -> Option<Duration> {
        let margin = (ttl / 1000).max(Duration::from_millis(1));
        ttl.checked_sub(part(ttl, self.rate) + self.fixed + margin).filter(|left| !left.is_zero())
    }

    /// Returns a ttl of which the holder may rely on `span`, and little more.
    pub(crate) fn covering(&self, span: Duration) -> Duration {
        // A millisecond for the smallest margin, and one for what is rounded.
        (span + self.fixed + Duration::from_millis(2)).div_f64(1.0 - self.rate - 0.001)
    }
}

/// Returns a part of a span, in nanoseconds: each grant takes one, and `mul_f64` converts through seconds.
pub(crate) fn part(span: Duration, factor: f64) -> Duration {
    Duration::from_nanos((span.as_nanos() as f64 * factor + 0.5) as u64)
}

// How a lease stands, and why it ended.

/// The reason why a lease ended before it was released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LostReason {
    /// Its time passed without a confirmed renewal: by plan (a fixed ttl), or because the backend did not answer.
    Expired,
    /// The backend proved that the lease has ended: expired there, taken away, or its data was lost.
    Gone,
    /// The limit on the time of a hold was reached.
    MaxHold,
    /// The client was closed.
    Closed,
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "it expired without a confirmed renewal",
            Self::Gone => "the backend no longer knows it",
            Self::MaxHold => "max_hold was reached",
            Self::Closed => "the client was closed",
        })
    }
}

/// A guard's knowledge of its lease now, from the local clock alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HoldState {
    /// Held, and the last renewal (if one was due) was confirmed.
    Held,
    /// Held until the deadline, but the last renewal failed; it is being retried.
    Suspect,
    /// Ended. Final.
    Lost(LostReason),
    /// Released.
    Released,
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        static SUSPENDED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    }

    /// The time for which this thread simulates a suspend of the machine.
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
        for slept in [noise * 3 / 2, 2 * noise, Duration::from_secs(7), Duration::from_secs(100_000)] {
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

    /// Simulates a runtime that was paused before our first reading.
    #[test]
    fn readings_from_before_the_first_one_are_as_far_apart_as_any() {
        let first = std::time::Instant::now();
        let span = Duration::from_secs(3_600);
        let [one, other] = [first, first - span].map(since_start);
        assert_eq!(one - other, span);
    }

    #[test]
    fn ttl_is_checked_at_the_door() {
        for bad in [
            Duration::ZERO,
            Duration::from_millis(9),
            Ttl::MAX + Duration::from_millis(1),
            Duration::from_micros(10_500),
        ] {
            assert_eq!(Ttl::new(bad).unwrap_err().kind(), ErrorKind::InvalidArgument, "{bad:?}");
        }
        assert_eq!(Ttl::new(Ttl::MIN).unwrap().as_millis(), 10);
        assert_eq!(Ttl::new(Ttl::MAX).unwrap().get(), Ttl::MAX);
    }

    #[test]
    fn belief_ends_before_the_lease() {
        let left = DriftBound::DEFAULT.believable(Duration::from_secs(10)).unwrap();
        assert_eq!(left, Duration::from_millis(10_000 - 100 - 2 - 10));
        assert!(DriftBound::DEFAULT.believable(Ttl::MIN).is_some());
        for span in [0, 1, 10, 999, 86_400_000].map(Duration::from_millis) {
            let ttl = DriftBound::DEFAULT.covering(span);
            let believable = DriftBound::DEFAULT.believable(ttl).unwrap();
            assert!(believable >= span && believable <= span + span / 100 + Duration::from_millis(2), "{span:?}");
        }
        assert!(DriftBound::DEFAULT.believable(Duration::from_millis(3)).is_none());
        let exact = DriftBound::new(0.0, Duration::ZERO).unwrap();
        let believed = [1_000, 1_001].map(|micros| exact.believable(Duration::from_micros(micros)));
        assert_eq!(believed, [None, Some(Duration::from_micros(1))], "nothing is left is not nothing to wait for");
        assert!(DriftBound::new(0.6, Duration::ZERO).is_err());
        assert!(DriftBound::new(f64::NAN, Duration::ZERO).is_err());
    }
}
