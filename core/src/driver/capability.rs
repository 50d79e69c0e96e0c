//! The capabilities of a driver's queues, and the terms that queues and locks share. Enums and ranges, no booleans:
//! users must know the *kind* of difference.

use std::time::Duration;

use crate::value::error::{Error, ErrorKind, Result};
use crate::value::queue::{Attempts, Delay, Lease, Payload};

/// The causes, in addition to unbounded clock drift, that could let two clients hold one name at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Exclusion {
    /// None; but it spans one process only.
    Process,
    /// Loss of the one node's data (a restart without persistence, eviction, a flush).
    SingleNode,
    /// Two servers that both act as the primary. A restart and a failover forget all leases, and are noticed: then no
    /// lease is granted until the longest of them has ended.
    OnePrimary,
    /// As [`Exclusion::SingleNode`], and a failover to a replica that had not seen the lock.
    LossyFailover,
    /// Loss of data on a majority of this many independent nodes.
    Quorum {
        /// The number of voting nodes.
        nodes: u8,
    },
    /// Only a restore from an old backup: a consensus protocol decides.
    Consensus,
}

/// The guarantee that fencing tokens grow. Every driver has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fencing {
    /// Always strictly greater.
    Strict,
    /// Strictly greater as long as the backend's counter is not lost.
    StrictUnlessDataLoss,
    /// Strictly greater while the counter lives; after its loss still greater, as long as the server's clock does not
    /// step back behind the last grant.
    ClockSeeded,
}

/// The capabilities of a driver's delay queues. Constant for the life of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueCapabilities {
    /// The greatest error of the queue's clock; a message is never delivered before its due time minus this. Zero if
    /// the backend's own clock decides.
    pub clock_error: Duration,
    /// The notification of consumers when a message is due sooner than they expected.
    pub wake: QueueWake,
    /// The events, in the terms of locks, that could lose messages or deliver one to two consumers at once.
    pub durability: Exclusion,
    /// The guarantee that the fences of deliveries grow.
    pub fencing: Fencing,
    /// The support of concurrency keys.
    pub keys: KeyedConcurrency,
    /// The time at which a parked message is redelivered.
    pub parking: Parking,
    /// The largest payload, in bytes.
    pub payload: usize,
    /// The most messages, settlements or extensions of one request.
    pub batch: usize,
    /// The most bytes of one push, as [`NewMessage::bytes`](crate::driver::NewMessage::bytes) counts them; at least
    /// those of one message of the largest payload. The client splits larger pushes.
    pub request_bytes: usize,
    /// The longest delay.
    pub delay: Duration,
    /// The leases that the backend can keep: the shortest and the longest.
    pub lease: LeaseRange,
    /// The most attempts of a message.
    pub attempts: u32,
    /// The most messages that a queue holds, dead ones not counted; `None` if only the backend's memory bounds it.
    pub backlog: Option<u64>,
    /// The most dead letters that a queue holds.
    pub dead_letters: u64,
}

impl QueueCapabilities {
    /// Declares queues that take everything a client may request, one message per request, with no limit except that of
    /// 10,000 dead letters.
    #[must_use]
    pub const fn new(durability: Exclusion, fencing: Fencing, wake: QueueWake) -> Self {
        Self {
            durability,
            fencing,
            wake,
            clock_error: Duration::ZERO,
            keys: KeyedConcurrency::OneInFlight,
            parking: Parking::BackOff,
            payload: Payload::DEFAULT_CAP,
            batch: 1,
            request_bytes: Payload::DEFAULT_CAP + 64 * 1024,
            delay: Delay::MAX,
            lease: LeaseRange { min: Lease::MIN, max: Lease::MAX },
            attempts: Attempts::MAX,
            backlog: None,
            dead_letters: 10_000,
        }
    }
}

setters!(const QueueCapabilities {
    with_clock_error => clock_error: Duration,
    with_wake => wake: QueueWake,
    with_durability => durability: Exclusion,
    with_fencing => fencing: Fencing,
    with_keys => keys: KeyedConcurrency,
    with_parking => parking: Parking,
    with_payload => payload: usize,
    with_batch => batch: usize,
    with_request_bytes => request_bytes: usize,
    with_delay => delay: Duration,
    with_lease => lease: LeaseRange,
    with_attempts => attempts: u32,
    with_backlog => backlog: Option<u64>,
    with_dead_letters => dead_letters: u64,
});

/// The notification of consumers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueueWake {
    /// None: consumers poll.
    Poll,
    /// The backend wakes them whenever a message becomes due sooner than before.
    Notified,
}

/// The support of concurrency keys: at most one message of a key in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyedConcurrency {
    /// Keys are refused with [`ErrorKind::Unsupported`].
    None,
    /// Supported, within a queue.
    OneInFlight,
}

/// The time at which a parked message is redelivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Parking {
    /// After its back-off.
    BackOff,
    /// When its turn comes, and after its back-off at the latest. The client that parked it waits in the lock's line,
    /// as long as it lives and has a receiver for messages, and gives the message its turn
    /// ([`DelayQueue::give_turn`](crate::driver::DelayQueue::give_turn)): one each time, the one that it parked first.
    Attended,
}

/// The leases that a backend can keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseRange {
    /// The shortest.
    pub min: Duration,
    /// The longest.
    pub max: Duration,
}

impl QueueCapabilities {
    pub(crate) fn check_lease(&self, lease: Lease) -> Result<()> {
        let (length, LeaseRange { min, max }) = (lease.get(), self.lease);
        if length < min || length > max {
            let text = format!("this backend's queues support leases of {min:?} to {max:?}, not of {length:?}");
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        Ok(())
    }

    pub(crate) fn check_delay(&self, delay: Delay) -> Result<()> {
        if delay.get() > self.delay {
            let text = format!("this backend's queues support delays up to {:?}, not {delay:?}", self.delay);
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        Ok(())
    }

    pub(crate) fn check_attempts(&self, attempts: Attempts) -> Result<()> {
        if attempts.get() > self.attempts {
            let text = format!("this backend's queues support up to {} attempts, not {attempts:?}", self.attempts);
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        Ok(())
    }

    pub(crate) fn check_payload(&self, length: usize) -> Result<()> {
        if length > self.payload {
            let text = format!("a payload has {length} bytes; this backend's queues accept at most {}", self.payload);
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        Ok(())
    }

    pub(crate) fn check_request(&self, bytes: usize) -> Result<()> {
        if bytes > self.request_bytes {
            let text = format!(
                "a message has {bytes} bytes with its names; a push to this backend's queues accepts at most {}",
                self.request_bytes
            );
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        Ok(())
    }

    pub(crate) fn check_batch(&self, length: usize) -> Result<()> {
        if length == 0 || length > self.batch {
            let text = format!("{length} at once are outside 1 to {}, the batch size of these queues", self.batch);
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests within the declared limits pass, all others are refused.
    #[test]
    fn what_a_queue_does_not_keep_is_refused() {
        let ms = Duration::from_millis;
        let caps = QueueCapabilities::new(Exclusion::Process, Fencing::Strict, QueueWake::Poll)
            .with_lease(LeaseRange { min: ms(100), max: ms(200) })
            .with_delay(ms(300))
            .with_attempts(3)
            .with_payload(4)
            .with_request_bytes(5)
            .with_batch(6);
        let lease = |span| caps.check_lease(Lease::new(ms(span)).unwrap());
        let delay = |span| caps.check_delay(Delay::new(ms(span)).unwrap());
        let attempts = |count| caps.check_attempts(Attempts::new(count).unwrap());
        for kept in [
            [lease(100), lease(200), delay(300)],
            [attempts(3), caps.check_payload(4), caps.check_request(5)],
            [caps.check_batch(1), caps.check_batch(6), delay(0)],
        ] {
            assert!(kept.iter().all(Result::is_ok), "{kept:?}");
        }
        for refused in [
            [lease(99), lease(201), delay(301), attempts(4)],
            [caps.check_payload(5), caps.check_request(6), caps.check_batch(0), caps.check_batch(7)],
        ] {
            let refused = refused.map(|answer| answer.unwrap_err().kind());
            assert_eq!(refused, [ErrorKind::InvalidArgument; 4]);
        }
    }
}
