//! One delivery of a message.

use std::fmt;
use std::time::Duration;

use super::runtime::{is_forked, wait};
use crate::queue::{MessageId, Nack, Payload, Reason, Settled, Settlement};
use crate::{Error, FencingToken, Result};

/// A delivered message: [`tenure::queue::Delivery`](crate::queue::Delivery) with calls that block. It is a *lease*:
/// while it lasts, no other receiver gets the message. It is not renewed automatically: [`extend`](Delivery::extend) it
/// during long work.
///
/// **Dropping a delivery** returns the message as a failed attempt, in the background and without blocking.
#[must_use = "dropping the delivery gives the message back as a failed attempt"]
pub struct Delivery<T> {
    inner: crate::queue::Delivery<T>,
}

impl<T> From<crate::queue::Delivery<T>> for Delivery<T> {
    fn from(inner: crate::queue::Delivery<T>) -> Self {
        Self { inner }
    }
}

impl<T: 'static> Delivery<T> {
    /// Returns the same delivery for async code, and for its other properties.
    pub fn as_async(&self) -> &crate::queue::Delivery<T> {
        &self.inner
    }

    /// Returns the same delivery, to be settled by async code.
    pub fn into_async(self) -> crate::queue::Delivery<T> {
        self.inner
    }

    /// Returns the decoded value of the message.
    ///
    /// # Errors
    ///
    /// As [`Delivery::value`](crate::queue::Delivery::value).
    pub fn value(&self) -> Result<&T, &Error> {
        self.inner.value()
    }

    /// Returns the bytes of the message, decodable or not.
    #[must_use]
    pub fn payload(&self) -> &Payload {
        self.inner.payload()
    }

    /// Returns the message's id.
    #[must_use]
    pub fn id(&self) -> &MessageId {
        self.inner.id()
    }

    /// Returns the number of this delivery: 1 for the first.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.inner.attempt()
    }

    /// Returns the order of this delivery among all deliveries of the queue: greater than that of every earlier one.
    #[must_use]
    pub fn fence(&self) -> FencingToken {
        self.inner.fence()
    }

    /// Returns the reason of the last failed attempt, if it gave one.
    #[must_use]
    pub fn last_failure(&self) -> Option<&Reason> {
        self.inner.last_failure()
    }

    /// Returns the time that the lease surely lasts from now; zero once it is lost, and in a forked child.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        if is_forked() { Duration::ZERO } else { self.inner.remaining() }
    }

    /// Returns true if the lease has ended. Reads the clock; no I/O. True in a forked child: its parent has the
    /// message.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        is_forked() || self.inner.is_lost()
    }

    /// Extends the lease to this length from now; a longer remaining time is kept.
    ///
    /// # Errors
    ///
    /// As [`Delivery::extend`](crate::queue::Delivery::extend).
    pub fn extend(&self, lease: Duration) -> Result<()> {
        wait(self.inner.extend(lease))
    }

    /// Acknowledges the message: the work is done, and the message is removed. [`Settled::Stale`] means that it was
    /// delivered again meanwhile.
    ///
    /// # Errors
    ///
    /// As [`Delivery::ack`](crate::queue::Delivery::ack).
    pub fn ack(self) -> Result<Settled> {
        wait(self.inner.ack())
    }

    /// Reports a failed attempt: the message is due again after a delay. The last attempt moves it to the dead letters.
    /// Takes a delay, or a [`Nack`] with a reason.
    ///
    /// # Errors
    ///
    /// As [`Delivery::nack`](crate::queue::Delivery::nack).
    pub fn nack(self, nack: impl Into<Nack>) -> Result<Settled> {
        wait(self.inner.nack(nack))
    }

    /// Rejects the message for good: moves it to the dead letters.
    ///
    /// # Errors
    ///
    /// As [`Delivery::ack`](crate::queue::Delivery::ack).
    pub fn bury(self, reason: Option<Reason>) -> Result<Settled> {
        wait(self.inner.bury(reason))
    }

    /// Returns the message without work: it is due again after `delay`, at once if that is zero, and the attempt is not
    /// counted.
    ///
    /// # Errors
    ///
    /// As [`Delivery::nack`](crate::queue::Delivery::nack).
    pub fn give_back(self, delay: Duration) -> Result<Settled> {
        wait(self.inner.give_back(delay))
    }

    /// Settles the delivery as `how` says: for a decision at run time.
    ///
    /// # Errors
    ///
    /// As [`Delivery::ack`](crate::queue::Delivery::ack).
    pub fn settle(self, how: Settlement) -> Result<Settled> {
        wait(self.inner.settle(how))
    }
}

impl<T> fmt::Debug for Delivery<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.inner, f)
    }
}
