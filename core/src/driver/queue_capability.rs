//! What a driver's queues promise.

use std::time::Duration;

use super::{Exclusion, Fencing};
use crate::value::error::{Error, ErrorKind, Result};
use crate::value::limits::{Attempts, Delay, Lease};

/// What a driver's delay queues promise. Constant for the life of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// The most bytes of one push, as [`NewMessage::bytes`](super::NewMessage::bytes) counts them; at least those of one message
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
    /// ([`DelayQueue::give_turn`](super::DelayQueue::give_turn)): one each time, the one that it parked first.
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
