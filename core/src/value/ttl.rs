//! The length of a lease, and the part of it that a holder may believe in.

use std::fmt;
use std::time::Duration;

use crate::value::error::{Error, ErrorKind, Result};

/// How long a lease lasts without renewal: [`Ttl::MIN`] to [`Ttl::MAX`], whole milliseconds.
///
/// Drivers may declare a narrower range ([`TtlRange`](crate::driver::TtlRange)); it is checked before anything is sent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ttl(u32); // milliseconds

impl Ttl {
    /// The shortest lease: 10 ms. Below that, clock margins would leave nothing to hold.
    pub const MIN: Duration = Duration::from_millis(10);
    /// The longest lease: 24 days, which fits a signed 32-bit count of milliseconds.
    pub const MAX: Duration = Duration::from_secs(24 * 86_400);
    /// What a lock uses unless told otherwise: 30 s.
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

    /// The length.
    #[must_use]
    pub const fn get(self) -> Duration {
        Duration::from_millis(self.as_millis())
    }

    /// The length in milliseconds.
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

/// How far the clocks of client and backend may run apart while a lease lasts.
///
/// A holder's view of its lease ends at `sent_at + ttl − bound(ttl)`, where `sent_at` is read before the last confirmed
/// acquire or renewal left. The bound is `ttl × rate + fixed`, and a safety margin of `max(1 ms, ttl / 1000)` on top.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DriftBound {
    rate: f64,
    fixed: Duration,
}

impl DriftBound {
    /// 1 % and 2 ms. Where a time daemon may slew faster (chrony's limit is about 8 %), use 10 %.
    pub const DEFAULT: Self = Self { rate: 0.01, fixed: Duration::from_millis(2) };
    /// The most that the rate may be.
    pub const MAX_RATE: f64 = 0.5;
    /// The most that the fixed part may be.
    pub const MAX_FIXED: Duration = Duration::from_secs(1);

    /// A bound of `ttl × rate + fixed`.
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

    /// The part that grows with the ttl.
    #[must_use]
    pub const fn rate(&self) -> f64 {
        self.rate
    }

    /// The part that is the same for every ttl.
    #[must_use]
    pub const fn fixed(&self) -> Duration {
        self.fixed
    }

    /// The part of a lease of length `ttl` that its holder may believe in; `None` when the bound eats all of it.
    #[must_use]
    pub fn believable(&self, ttl: Duration) -> Option<Duration> {
        let margin = (ttl / 1000).max(Duration::from_millis(1));
        ttl.checked_sub(part(ttl, self.rate) + self.fixed + margin).filter(|left| !left.is_zero())
    }

    /// A ttl of which the holder may believe in `span`, and little more.
    pub(crate) fn covering(&self, span: Duration) -> Duration {
        // A millisecond for the smallest margin, and one for what is rounded.
        (span + self.fixed + Duration::from_millis(2)).div_f64(1.0 - self.rate - 0.001)
    }
}

/// A part of a span, in nanoseconds: each grant takes one, and `mul_f64` goes by way of seconds.
pub(crate) fn part(span: Duration, factor: f64) -> Duration {
    Duration::from_nanos((span.as_nanos() as f64 * factor + 0.5) as u64)
}

// How a lease stands, and why it ended.

/// Why a lease ended before it was released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LostReason {
    /// Its time ran out without a confirmed renewal: by plan (a fixed ttl), or because the backend did not answer.
    Expired,
    /// The backend proved that it is no more: expired there, taken away, or its data was lost.
    Gone,
    /// The cap on holding it was reached.
    MaxHold,
    /// The client was closed.
    Closed,
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "its time ran out without a confirmed renewal",
            Self::Gone => "the backend no longer knows it",
            Self::MaxHold => "the cap on holding it was reached",
            Self::Closed => "the client was closed",
        })
    }
}

/// What a guard knows about its lease at this moment, from the local clock alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HoldState {
    /// Held, and the last renewal (if one was due) was confirmed.
    Held,
    /// Held until the deadline, but the last renewal failed; it is being retried.
    Suspect,
    /// Ended. Final.
    Lost(LostReason),
    /// Given back.
    Released,
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(DriftBound::new(0.6, Duration::ZERO).is_err());
        assert!(DriftBound::new(f64::NAN, Duration::ZERO).is_err());
    }
}
