//! Types for queues and messages that cannot hold illegal values: names, sizes and spans.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::value::error::{Error, ErrorKind, LockName, Result};

/// The name of a queue: 1 to [`QueueName::MAX_LEN`] bytes, any bytes. Compared byte by byte.
///
/// Queues and locks have separate names: the same name can be both.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueName(LockName);

impl QueueName {
    /// The longest name, in bytes.
    pub const MAX_LEN: usize = 256;

    /// Checks `name` and takes a copy of it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when the name is empty or longer than [`QueueName::MAX_LEN`] bytes.
    pub fn new(name: impl AsRef<[u8]>) -> Result<Self> {
        let bytes = checked("the name of a queue", name.as_ref(), Self::MAX_LEN)?;
        Ok(Self(LockName::new(bytes)?))
    }

    /// Returns the bytes of the name.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// Returns the name in the form that errors hold.
    pub(crate) fn for_errors(&self) -> &LockName {
        &self.0
    }
}

impl fmt::Display for QueueName {
    /// Prints printable ASCII as it is, every other byte as `\xNN`, so that a name cannot break a log line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QueueName(\"{self}\")")
    }
}

/// The id of a message within its queue: a number that the backend assigned, or a name that the caller chose.
///
/// A name makes a push idempotent: pushing the same name again stores nothing and returns `Duplicate`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(Id);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Id {
    Assigned(u64),
    Named(Arc<[u8]>),
}

impl MessageId {
    /// The longest name of a message, in bytes.
    pub const MAX_LEN: usize = 128;

    /// Makes an id of a name chosen by the caller.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when the name is empty or longer than [`MessageId::MAX_LEN`] bytes.
    pub fn named(name: impl AsRef<[u8]>) -> Result<Self> {
        Ok(Self(Id::Named(checked("the id of a message", name.as_ref(), Self::MAX_LEN)?.into())))
    }

    /// Makes an id of a number assigned by the backend.
    #[must_use]
    pub const fn assigned(number: u64) -> Self {
        Self(Id::Assigned(number))
    }

    /// Returns the caller's name, if it is one.
    #[must_use]
    pub fn as_name(&self) -> Option<&[u8]> {
        match &self.0 {
            Id::Named(name) => Some(name),
            Id::Assigned(_) => None,
        }
    }

    /// Returns the backend's number, if it is one.
    #[must_use]
    pub const fn as_number(&self) -> Option<u64> {
        match &self.0 {
            Id::Assigned(number) => Some(*number),
            Id::Named(_) => None,
        }
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Id::Assigned(number) => write!(f, "#{number}"),
            Id::Named(name) => write!(f, "{}", name.escape_ascii()),
        }
    }
}

impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MessageId({self})")
    }
}

/// A key of messages that must not be handled at the same time: at most one message of a key is in flight within its
/// queue.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConcurrencyKey(Arc<[u8]>);

impl ConcurrencyKey {
    /// The longest key, in bytes.
    pub const MAX_LEN: usize = 128;

    /// Checks `key` and takes a copy of it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when the key is empty or longer than [`ConcurrencyKey::MAX_LEN`] bytes.
    pub fn new(key: impl AsRef<[u8]>) -> Result<Self> {
        Ok(Self(checked("a concurrency key", key.as_ref(), Self::MAX_LEN)?.into()))
    }

    /// Returns the bytes of the key.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for ConcurrencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConcurrencyKey(\"{}\")", self.0.escape_ascii())
    }
}

/// The reason why the handling of a message failed, in words, kept with the message. 0 to [`Reason::MAX_LEN`] bytes of
/// UTF-8.
///
/// Visible to every client that can inspect the queue. Do not put secrets into it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Reason(Arc<str>);

impl Reason {
    /// The longest reason, in bytes.
    pub const MAX_LEN: usize = 256;

    /// Checks `text` and takes a copy of it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when it is longer than [`Reason::MAX_LEN`] bytes.
    pub fn new(text: impl AsRef<str>) -> Result<Self> {
        let text = text.as_ref();
        if text.len() > Self::MAX_LEN {
            let reported = format!("a reason has {} bytes, the most is {}", text.len(), Self::MAX_LEN);
            return Err(Error::new(ErrorKind::InvalidArgument, reported));
        }
        Ok(Self(text.into()))
    }

    /// Makes a reason of the beginning of `text`, as much as fits: for error texts, whose length is not limited.
    #[must_use]
    pub fn beginning_of(text: &str) -> Self {
        let mut end = text.len().min(Self::MAX_LEN);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        Self(text[..end].into())
    }

    /// Returns the reason of a message that is dead because the lease of its last delivery ended: its consumer crashed,
    /// hung, or lost the answer.
    #[must_use]
    pub fn lease_ended() -> Self {
        Self("the lease of its last delivery ended".into())
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_debug())
    }
}

impl fmt::Debug for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reason(\"{self}\")")
    }
}

/// The schedule of a recurring message, in the client's text form; drivers keep it as it is. 1 to
/// [`Recurrence::MAX_LEN`] bytes of UTF-8.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Recurrence(Arc<str>);

impl Recurrence {
    /// The longest text, in bytes.
    pub const MAX_LEN: usize = 256;

    /// Checks `text` and takes a copy of it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when it is empty or longer than [`Recurrence::MAX_LEN`] bytes.
    pub fn new(text: impl AsRef<str>) -> Result<Self> {
        let text = text.as_ref();
        checked("a recurrence", text.as_bytes(), Self::MAX_LEN)?;
        Ok(Self(text.into()))
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Recurrence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recurrence(\"{}\")", self.0.escape_debug())
    }
}

fn checked<'a>(what: &str, bytes: &'a [u8], most: usize) -> Result<&'a [u8]> {
    if bytes.is_empty() {
        return Err(Error::new(ErrorKind::InvalidArgument, format!("{what} must not be empty")));
    }
    if bytes.len() > most {
        let text = format!("{what} has {} bytes, the most is {most}", bytes.len());
        return Err(Error::new(ErrorKind::InvalidArgument, text));
    }
    Ok(bytes)
}

// Sizes and spans.

/// The content of a message: 0 to [`Payload::MAX_LEN`] bytes, any bytes, kept exactly. Clones share the bytes.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Payload(Arc<[u8]>);

impl Payload {
    /// The longest payload of any driver, in bytes: 1 MiB. Drivers declare their own cap, usually
    /// [`Payload::DEFAULT_CAP`].
    pub const MAX_LEN: usize = 1024 * 1024;
    /// The default cap of drivers, in bytes: 256 KiB.
    pub const DEFAULT_CAP: usize = 256 * 1024;

    /// Checks the length of `bytes`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when there are more than [`Payload::MAX_LEN`].
    pub fn new(bytes: impl Into<Arc<[u8]>>) -> Result<Self> {
        let bytes = bytes.into();
        if bytes.len() > Self::MAX_LEN {
            let text = format!("a payload has {} bytes, the most is {}", bytes.len(), Self::MAX_LEN);
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        Ok(Self(bytes))
    }

    /// Returns the bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Payload {
    /// Prints the length only: a payload may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} bytes)", self.len())
    }
}

/// The time until a message is due, counted by the backend from when it accepts the request: zero to [`Delay::MAX`].
///
/// Kept in whole microseconds; a fraction is rounded up, so that a message is never early.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Delay(Duration);

impl Delay {
    /// Due at once.
    pub const ZERO: Self = Self(Duration::ZERO);
    /// The longest delay: 3,650 days.
    pub const MAX: Duration = Duration::from_secs(3_650 * 86_400);

    /// Checks `delay`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when it is longer than [`Delay::MAX`].
    pub fn new(delay: Duration) -> Result<Self> {
        if delay > Self::MAX {
            let text = format!("a delay of {delay:?} is longer than {:?}", Self::MAX);
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        Ok(Self(Duration::from_micros(delay.as_nanos().div_ceil(1_000) as u64)))
    }

    /// Returns the length.
    #[must_use]
    pub const fn get(self) -> Duration {
        self.0
    }

    /// Returns the length in microseconds.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0.as_micros() as u64
    }
}

impl fmt::Debug for Delay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Delay({:?})", self.0)
    }
}

/// The time that a delivered message is hidden from others: [`Lease::MIN`] to [`Lease::MAX`], whole milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lease(Duration);

impl Lease {
    /// The shortest lease: 10 ms.
    pub const MIN: Duration = Duration::from_millis(10);
    /// The longest lease: 24 hours. Longer work extends it.
    pub const MAX: Duration = Duration::from_secs(86_400);
    /// The default lease of a queue: 30 s.
    pub const DEFAULT: Self = Self(Duration::from_secs(30));

    /// Checks `lease`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when it is outside [`Lease::MIN`]..=[`Lease::MAX`] or has a fraction of a
    /// millisecond.
    pub fn new(lease: Duration) -> Result<Self> {
        if lease < Self::MIN || lease > Self::MAX {
            let text = format!("a lease of {lease:?} is outside {:?} to {:?}", Self::MIN, Self::MAX);
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        if !lease.subsec_nanos().is_multiple_of(1_000_000) {
            let text = format!("a lease of {lease:?} has a fraction of a millisecond");
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        Ok(Self(lease))
    }

    /// Returns the length.
    #[must_use]
    pub const fn get(self) -> Duration {
        self.0
    }

    /// Returns the length in microseconds.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0.as_micros() as u64
    }
}

impl Default for Lease {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lease({:?})", self.0)
    }
}

/// The most deliveries of a message before it is dead: 1 to [`Attempts::MAX`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempts(u32);

impl Attempts {
    /// The greatest count: 10,000.
    pub const MAX: u32 = 10_000;
    /// The default of a message: 10.
    pub const DEFAULT: Self = Self(10);

    /// Checks `count`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when it is zero or more than [`Attempts::MAX`].
    pub fn new(count: u32) -> Result<Self> {
        if count == 0 || count > Self::MAX {
            let text = format!("{count} attempts are outside 1 to {}", Self::MAX);
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        Ok(Self(count))
    }

    /// Returns the count.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl Default for Attempts {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl fmt::Debug for Attempts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Attempts({})", self.0)
    }
}

// Limits on the deliveries of a queue.

/// Limits on the deliveries of a queue, over all its clients together. The default is no limit.
///
/// ```
/// # use std::time::Duration;
/// # use tenure_core as tenure;
/// use tenure::queue::{QueueLimits, Rate};
///
/// let per_second = Rate::new(100, Duration::from_secs(1))?;
/// let limits = QueueLimits::none().in_flight(10)?.rate(per_second);
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

    /// Limits the messages in flight to at most so many at a time.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when `most` is zero: to stop deliveries, pause the queue.
    pub fn in_flight(mut self, most: u32) -> Result<Self> {
        self.in_flight = Some(at_least_one(most, "messages in flight")?);
        Ok(self)
    }

    /// Limits the rate of deliveries.
    #[must_use]
    pub const fn rate(mut self, rate: Rate) -> Self {
        self.rate = Some(rate);
        self
    }

    /// Returns the most messages in flight, if that is limited.
    #[must_use]
    pub const fn max_in_flight(&self) -> Option<NonZeroU32> {
        self.in_flight
    }

    /// Returns the greatest rate of deliveries, if that is limited.
    #[must_use]
    pub const fn max_rate(&self) -> Option<Rate> {
        self.rate
    }

    /// Returns true if nothing is limited.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        self.in_flight.is_none() && self.rate.is_none()
    }
}

/// At most `deliveries` in each `per`: a bucket of `deliveries` tokens, refilled evenly, from which each delivery takes one.
///
/// After an idle time the bucket is full, so `deliveries` may follow at once, and up to twice as many within one `per`.
/// Over a long time the rate is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    deliveries: NonZeroU32,
    per: Duration,
}

impl Rate {
    /// The most deliveries in one `per`: a million.
    pub const MAX_DELIVERIES: u32 = 1_000_000;
    /// The shortest `per`: 1 ms.
    pub const MIN_TIME: Duration = Duration::from_millis(1);
    /// The longest `per`: a day.
    pub const MAX_TIME: Duration = Duration::from_secs(86_400);

    /// Checks the two. `per` is kept in whole microseconds.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when `deliveries` is outside 1 to [`Rate::MAX_DELIVERIES`], or `per` outside
    /// [`Rate::MIN_TIME`] to [`Rate::MAX_TIME`], or the rate is more than one delivery per microsecond.
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

    /// Returns the number of deliveries.
    #[must_use]
    pub const fn deliveries(&self) -> NonZeroU32 {
        self.deliveries
    }

    /// Returns the time in which they may happen.
    #[must_use]
    pub const fn per(&self) -> Duration {
        self.per
    }

    /// Returns the time from one token to the next: whole microseconds, rounded up, so that the rate is never exceeded.
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
    fn names_are_checked_at_the_door() {
        for refused in [
            QueueName::new("").map(drop),
            QueueName::new([b'x'; QueueName::MAX_LEN + 1]).map(drop),
            MessageId::named("").map(drop),
            MessageId::named([0; MessageId::MAX_LEN + 1]).map(drop),
            ConcurrencyKey::new("").map(drop),
            Reason::new("x".repeat(Reason::MAX_LEN + 1)).map(drop),
            Recurrence::new("").map(drop),
            Recurrence::new("x".repeat(Recurrence::MAX_LEN + 1)).map(drop),
        ] {
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidArgument);
        }
        assert_eq!(QueueName::new("a\0{b}").unwrap().to_string(), "a\\x00{b}");
        assert_ne!(MessageId::named("7").unwrap(), MessageId::assigned(7));
    }

    #[test]
    fn a_reason_is_cut_between_characters() {
        let long = "é".repeat(Reason::MAX_LEN);
        assert_eq!(Reason::beginning_of(&long).as_str().len(), Reason::MAX_LEN);
        assert_eq!(Reason::beginning_of(&format!("x{long}")).as_str().len(), Reason::MAX_LEN - 1);
    }

    #[test]
    fn limits_are_checked_at_the_door() {
        for refused in [
            Payload::new(vec![0; Payload::MAX_LEN + 1]).map(drop),
            Delay::new(Delay::MAX + Duration::from_nanos(1)).map(drop),
            Delay::new(Duration::MAX).map(drop),
            Lease::new(Duration::ZERO).map(drop),
            Lease::new(Lease::MAX + Duration::from_millis(1)).map(drop),
            Lease::new(Duration::from_micros(10_500)).map(drop),
            Attempts::new(0).map(drop),
            Attempts::new(Attempts::MAX + 1).map(drop),
        ] {
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidArgument);
        }
        let longest = Payload::new(vec![0; Payload::MAX_LEN]).unwrap();
        assert_eq!((longest.len(), longest.is_empty()), (Payload::MAX_LEN, false));
        assert_eq!(Payload::new(Vec::new()).map(|none| (none.len(), none.is_empty())).unwrap(), (0, true));
        assert!(Lease::new(Lease::MIN).is_ok() && Lease::new(Lease::MAX).is_ok());
        assert!(Lease::new(Lease::MIN - Duration::from_millis(1)).is_err());
        assert!(Attempts::new(1).is_ok() && Attempts::new(Attempts::MAX).is_ok());
        assert!(Reason::new("x".repeat(Reason::MAX_LEN)).is_ok());
        assert!(QueueName::new([b'x'; QueueName::MAX_LEN]).is_ok());
    }

    #[test]
    fn a_delay_is_never_rounded_down() {
        assert_eq!(Delay::new(Duration::from_nanos(1)).unwrap().as_micros(), 1);
        assert_eq!(Delay::new(Duration::from_nanos(2_001)).unwrap().as_micros(), 3);
        assert_eq!(Delay::new(Delay::MAX).unwrap().get(), Delay::MAX);
    }
}

#[cfg(test)]
mod rate_tests {
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
        let shortest = Rate::MIN_TIME.as_micros() as u32;
        for (deliveries, per) in [(most, second), (shortest, Rate::MIN_TIME), (1, Rate::MAX_TIME)] {
            assert!(Rate::new(deliveries, per).is_ok(), "{deliveries} in {per:?}");
        }
        assert!(QueueLimits::none().is_none());
    }
}
