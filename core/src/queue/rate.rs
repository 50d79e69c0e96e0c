//! Limits on the deliveries of a queue.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};

/// Limits on the deliveries of a queue, over all its clients together. The default is no limit.
///
/// ```
/// # use std::time::Duration;
/// use tenure_core::{QueueLimits, Rate};
///
/// let limits = QueueLimits::none().in_flight(10)?.rate(Rate::new(100, Duration::from_secs(1))?);
/// # Ok::<(), tenure_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueLimits {
    in_flight: Option<NonZeroU32>,
    rate: Option<Rate>,
}

impl QueueLimits {
    /// No limit.
    #[must_use]
    pub const fn none() -> Self {
        Self { in_flight: None, rate: None }
    }

    /// At most so many messages are in flight at a time.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when `most` is zero: pausing a queue is another thing.
    pub fn in_flight(mut self, most: u32) -> Result<Self> {
        self.in_flight = Some(at_least_one(most, "messages in flight")?);
        Ok(self)
    }

    /// Deliveries come no faster than this.
    #[must_use]
    pub const fn rate(mut self, rate: Rate) -> Self {
        self.rate = Some(rate);
        self
    }

    /// The most messages in flight, if that is limited.
    #[must_use]
    pub const fn max_in_flight(&self) -> Option<NonZeroU32> {
        self.in_flight
    }

    /// How fast deliveries may come, if that is limited.
    #[must_use]
    pub const fn max_rate(&self) -> Option<Rate> {
        self.rate
    }

    /// Whether nothing is limited.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        self.in_flight.is_none() && self.rate.is_none()
    }
}

/// At most `deliveries` in each `per`: a bucket of `deliveries` tokens, refilled evenly, from which each delivery takes one.
///
/// After an idle time the bucket is full, so `deliveries` may come at once, and up to twice as many within one `per`. Over a long
/// time the rate is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    deliveries: NonZeroU32,
    per: Duration,
}

impl Rate {
    /// The most deliveries in a time: a million.
    pub const MAX_DELIVERIES: u32 = 1_000_000;
    /// The shortest time: 1 ms.
    pub const MIN_TIME: Duration = Duration::from_millis(1);
    /// The longest time: a day.
    pub const MAX_TIME: Duration = Duration::from_secs(86_400);

    /// Checks the two. `per` is kept in whole microseconds.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when `deliveries` is outside 1 to [`Rate::MAX_DELIVERIES`], or `per` outside
    /// [`Rate::MIN_TIME`] to [`Rate::MAX_TIME`], or a delivery would come more often than once a microsecond.
    pub fn new(deliveries: u32, per: Duration) -> Result<Self> {
        let checked = at_least_one(deliveries, "deliveries")?;
        let micros = per.as_micros();
        if deliveries > Self::MAX_DELIVERIES || u128::from(deliveries) > micros {
            let text = format!(
                "{deliveries} deliveries in {per:?} are more than {} or than one a microsecond",
                Self::MAX_DELIVERIES
            );
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        if per < Self::MIN_TIME || per > Self::MAX_TIME {
            let text = format!("a rate over {per:?} is outside {:?} to {:?}", Self::MIN_TIME, Self::MAX_TIME);
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        Ok(Self { deliveries: checked, per: Duration::from_micros(micros as u64) })
    }

    /// How many deliveries.
    #[must_use]
    pub const fn deliveries(&self) -> NonZeroU32 {
        self.deliveries
    }

    /// In which time.
    #[must_use]
    pub const fn per(&self) -> Duration {
        self.per
    }

    /// From one token to the next: whole microseconds, rounded up, so that never more is handed out than said.
    #[must_use]
    pub const fn interval(&self) -> Duration {
        Duration::from_micros((self.per.as_micros() as u64).div_ceil(self.deliveries.get() as u64))
    }
}

fn at_least_one(count: u32, what: &str) -> Result<NonZeroU32> {
    let none =
        || Error::new(ErrorKind::InvalidArgument, format!("a limit of zero {what} would stop the queue: pause it"));
    NonZeroU32::new(count).ok_or_else(none)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_that_cannot_be_kept_are_refused() {
        let (second, most) = (Duration::from_secs(1), Rate::MAX_DELIVERIES);
        for refused in [
            QueueLimits::none().in_flight(0).map(drop),
            Rate::new(0, second).map(drop),
            Rate::new(most + 1, Duration::from_secs(10)).map(drop),
            Rate::new(1_001, Duration::from_millis(1)).map(drop),
            Rate::new(1, Duration::from_micros(999)).map(drop),
            Rate::new(1, Rate::MAX_TIME + Duration::from_micros(1)).map(drop),
        ] {
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidArgument);
        }
        assert!(Rate::new(most, second).is_ok());
        assert!(QueueLimits::none().is_none());
    }
}
