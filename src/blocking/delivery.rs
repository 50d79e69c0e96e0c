//! One delivery of a message.

use std::fmt;
use std::time::Duration;

use super::runtime::wait;
use crate::driver::Payload;
use crate::queue::{MessageId, Reason, Settled, Settlement};
use crate::{Error, FencingToken, Result};

/// A delivered message: [`tenure::queue::Delivery`](crate::queue::Delivery) with calls that block. It is a *lease*: while it lasts nobody
/// else gets the message. Nobody renews it: [`extend`](Delivery::extend) it during long work.
///
/// **Dropping a delivery** gives the message back, as a failed attempt, in the background and without blocking.
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
    /// The same delivery for async code, and for what else is known of it.
    pub fn as_async(&self) -> &crate::queue::Delivery<T> {
        &self.inner
    }

    /// The same delivery, to be settled by async code.
    pub fn into_async(self) -> crate::queue::Delivery<T> {
        self.inner
    }

    /// What the message says.
    ///
    /// # Errors
    ///
    /// As [`Delivery::value`](crate::queue::Delivery::value).
    pub fn value(&self) -> Result<&T, &Error> {
        self.inner.value()
    }

    /// The bytes of the message, decodable or not.
    #[must_use]
    pub fn payload(&self) -> &Payload {
        self.inner.payload()
    }

    /// By what the message is known.
    #[must_use]
    pub fn id(&self) -> &MessageId {
        self.inner.id()
    }

    /// Which delivery this is: 1 for the first.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.inner.attempt()
    }

    /// The order of this delivery among all deliveries of the queue: greater than that of every earlier one.
    #[must_use]
    pub fn fence(&self) -> FencingToken {
        self.inner.fence()
    }

    /// Why the last delivery of the message failed, if that was said.
    #[must_use]
    pub fn last_failure(&self) -> Option<&Reason> {
        self.inner.last_failure()
    }

    /// How long the lease surely lasts from now; zero once it is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.inner.remaining()
    }

    /// Whether the lease has ended. Reads the clock; no I/O.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.inner.is_lost()
    }

    /// Makes the lease last this long from now; a longer rest is kept.
    ///
    /// # Errors
    ///
    /// As [`Delivery::extend`](crate::queue::Delivery::extend).
    pub fn extend(&self, lease: Duration) -> Result<()> {
        wait(self.inner.extend(lease))
    }

    /// The work is done: removes the message. [`Settled::Stale`] means that it was delivered again meanwhile.
    ///
    /// # Errors
    ///
    /// As [`Delivery::ack`](crate::queue::Delivery::ack).
    pub fn ack(self) -> Result<Settled> {
        wait(self.inner.ack())
    }

    /// The work failed: the message is due again after `delay`. The last attempt moves it to the dead letters.
    ///
    /// # Errors
    ///
    /// As [`Delivery::nack`](crate::queue::Delivery::nack).
    pub fn nack(self, delay: Duration) -> Result<Settled> {
        wait(self.inner.nack(delay))
    }

    /// As [`nack`](Delivery::nack), with a reason that is kept with the message.
    ///
    /// # Errors
    ///
    /// As [`Delivery::nack`](crate::queue::Delivery::nack).
    pub fn nack_because(self, delay: Duration, reason: Option<Reason>) -> Result<Settled> {
        wait(self.inner.nack_because(delay, reason))
    }

    /// The work will never succeed: moves the message to the dead letters.
    ///
    /// # Errors
    ///
    /// As [`Delivery::ack`](crate::queue::Delivery::ack).
    pub fn bury(self, reason: Option<Reason>) -> Result<Settled> {
        wait(self.inner.bury(reason))
    }

    /// The work was not begun: the message is due at once, and the attempt is not counted.
    ///
    /// # Errors
    ///
    /// As [`Delivery::ack`](crate::queue::Delivery::ack).
    pub fn give_back(self) -> Result<Settled> {
        wait(self.inner.give_back())
    }

    /// The work is not to be done now: the message is due after `delay`, and the attempt is not counted.
    ///
    /// # Errors
    ///
    /// As [`Delivery::nack`](crate::queue::Delivery::nack).
    pub fn put_off(self, delay: Duration) -> Result<Settled> {
        wait(self.inner.put_off(delay))
    }

    /// Ends the delivery in a way that is decided at run time.
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
