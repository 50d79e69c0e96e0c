//! What a driver promises of its queues, and in which words of queues and locks alike. Enums and ranges, no booleans: the *kind*
//! of difference is what a user must know.

use std::time::Duration;

use crate::value::error::{Error, ErrorKind, Result};
use crate::value::queue::{Attempts, Delay, Lease, Payload};

/// What, besides unbounded clock drift, could let two clients hold one name at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Exclusion {
    /// Nothing; but it spans one process only.
    Process,
    /// Loss of the one node's data (a restart without persistence, eviction, a flush).
    SingleNode,
    /// Two servers that both take themselves for the primary. A restart and a failover forget all leases, and are noticed: then
    /// none is granted until the longest of them is over.
    OnePrimary,
    /// As [`Exclusion::SingleNode`], and a failover to a replica that had not seen the lock.
    LossyFailover,
    /// Loss of data on a majority of this many independent nodes.
    Quorum {
        /// How many nodes vote.
        nodes: u8,
    },
    /// Nothing short of a restore from an old backup: a consensus protocol decides.
    Consensus,
}

/// How far fencing tokens can be trusted to grow. Every driver has them.
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

/// What a driver's delay queues promise. Constant for the life of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueCapabilities {
    /// How far the queue's clock may be wrong; a message is never delivered before its due time minus this. Zero
    /// where the backend's own clock decides.
    pub clock_error: Duration,
    /// How consumers learn that a message is due sooner than they thought.
    pub wake: QueueWake,
    /// What, in the words used for locks, could lose messages or deliver one to two consumers at once.
    pub durability: Exclusion,
    /// How far the fences of deliveries can be trusted to grow.
    pub fencing: Fencing,
    /// Whether concurrency keys are kept.
    pub keys: KeyedConcurrency,
    /// When a parked message comes back.
    pub parking: Parking,
    /// The largest payload, in bytes.
    pub payload: usize,
    /// The most messages, settlements or extensions of one request.
    pub batch: usize,
    /// The most bytes of one push, as [`NewMessage::bytes`](crate::driver::NewMessage::bytes) counts them; at least those of one message
    /// of the largest payload. The client splits what is more.
    pub request_bytes: usize,
    /// The longest delay.
    pub delay: Duration,
    /// Which leases the backend can keep: the shortest and the longest.
    pub lease: LeaseRange,
    /// The most attempts of a message.
    pub attempts: u32,
    /// The most messages that a queue holds, dead ones not counted; `None` where only the backend's memory bounds it.
    pub backlog: Option<u64>,
    /// The most dead letters that a queue holds.
    pub dead_letters: u64,
}

impl QueueCapabilities {
    /// Queues that take all that a client may ask for, one message a request, without a limit but that of 10,000 dead letters.
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

/// How consumers are woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueueWake {
    /// By asking again.
    Poll,
    /// By the backend, whenever a message becomes due sooner than before.
    Notified,
}

/// Whether at most one message of a key is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyedConcurrency {
    /// Keys are refused with [`ErrorKind::Unsupported`].
    None,
    /// Yes, within a queue.
    OneInFlight,
}

/// When a parked message comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Parking {
    /// After its back-off.
    BackOff,
    /// When its turn comes, and after its back-off at the latest. The client that parked it stands in the lock's line, as
    /// long as it lives and has somebody to handle messages, and gives the message its turn
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
            let text = format!("this backend's queues keep leases of {min:?} to {max:?}, not of {length:?}");
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        Ok(())
    }

    pub(crate) fn check_delay(&self, delay: Delay) -> Result<()> {
        if delay.get() > self.delay {
            let text = format!("this backend's queues keep delays up to {:?}, not {delay:?}", self.delay);
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        Ok(())
    }

    pub(crate) fn check_attempts(&self, attempts: Attempts) -> Result<()> {
        if attempts.get() > self.attempts {
            let text = format!("this backend's queues count up to {} attempts, not {attempts:?}", self.attempts);
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        Ok(())
    }

    pub(crate) fn check_payload(&self, length: usize) -> Result<()> {
        if length > self.payload {
            let text = format!("a payload has {length} bytes, this backend's queues take {}", self.payload);
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        Ok(())
    }

    pub(crate) fn check_request(&self, bytes: usize) -> Result<()> {
        if bytes > self.request_bytes {
            let text = format!(
                "a message has {bytes} bytes with its names, a push to this backend's queues takes {}",
                self.request_bytes
            );
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        Ok(())
    }

    pub(crate) fn check_batch(&self, length: usize) -> Result<()> {
        if length == 0 || length > self.batch {
            let text = format!("{length} at once are outside 1 to {}, the batch of this backend's queues", self.batch);
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As far as what is told goes, and not a step further.
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
