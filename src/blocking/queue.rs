//! One delay queue.

use std::fmt;
use std::time::Duration;

use super::Delivery;
use super::runtime::wait;
use crate::queue::{Message, PushManyError, Pushed, QueueName, Settled};
use crate::{Error, ErrorKind, Result};

/// A handle on one delay queue of messages `T`: [`tenure::queue::Queue`](crate::queue::Queue) with calls that block. Cheap to make and to
/// clone.
///
/// A due message is delivered to one receiver at a time, until it is settled: **at least once**.
pub struct Queue<T> {
    inner: crate::queue::Queue<T>,
}

impl<T> Clone for Queue<T> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone() }
    }
}

impl<T> From<crate::queue::Queue<T>> for Queue<T> {
    fn from(inner: crate::queue::Queue<T>) -> Self {
        Self { inner }
    }
}

impl<T: 'static> Queue<T> {
    /// Returns the same queue for async code, and for features without a blocking form: workers, dead letters, limits,
    /// lists.
    #[must_use]
    pub fn as_async(&self) -> &crate::queue::Queue<T> {
        &self.inner
    }

    /// Returns the name of the queue.
    #[must_use]
    pub fn name(&self) -> &QueueName {
        self.inner.name()
    }

    /// Sets the time that a received message is hidden from others: [`Queue::lease`](crate::queue::Queue::lease).
    #[must_use]
    pub fn lease(self, lease: Duration) -> Self {
        Self { inner: self.inner.lease(lease) }
    }

    /// Sets the most deliveries of a message that is pushed through this handle:
    /// [`Queue::max_attempts`](crate::queue::Queue::max_attempts).
    #[must_use]
    pub fn max_attempts(self, most: u32) -> Self {
        Self { inner: self.inner.max_attempts(most) }
    }

    /// Stores a message: a value that is due at once, or a [`Message`] with options.
    ///
    /// ```
    /// # #[cfg(all(feature = "memory", feature = "json"))]
    /// # fn main() -> tenure::Result<()> {
    /// use std::time::Duration;
    /// use tenure::queue::Message;
    /// use tenure::blocking::{self, Queue};
    ///
    /// let client = blocking::connect("memory:")?;
    /// let reminders: Queue<String> = client.queue("reminders")?;
    /// reminders.push(&"put the kettle on".into())?;
    ///
    /// let (text, hour) = ("pay the bill".into(), Duration::from_secs(3600));
    /// reminders.push(Message::new(&text).delay(hour).id("bill/7"))?;
    /// # Ok(())
    /// # }
    /// # #[cfg(not(all(feature = "memory", feature = "json")))]
    /// # fn main() {}
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Queue::push`](crate::queue::Queue::push) when it is awaited.
    pub fn push<'v>(&self, message: impl Into<Message<'v, T>>) -> Result<Pushed> {
        let unanswered = || Error::new(ErrorKind::Protocol, "a push was not answered");
        self.push_many([message])?.pop().ok_or_else(unanswered)
    }

    /// Stores messages, in as few requests as they fit into: one answer for each, in order.
    ///
    /// # Errors
    ///
    /// As [`Queue::push_many`](crate::queue::Queue::push_many) when it is awaited.
    pub fn push_many<'v, M>(&self, messages: impl IntoIterator<Item = M>) -> Result<Vec<Pushed>, PushManyError>
    where
        M: Into<Message<'v, T>>,
        T: 'v,
    {
        let push = self.inner.push_many(messages);
        wait(async { Ok(push.await) })?
    }

    /// Waits for a message. The thread sleeps meanwhile.
    ///
    /// # Errors
    ///
    /// As [`Queue::receive`](crate::queue::Queue::receive).
    pub fn receive(&self) -> Result<Delivery<T>> {
        wait(self.inner.receive()).map(Delivery::from)
    }

    /// Returns a message, if one is due now. Never waits for one.
    ///
    /// # Errors
    ///
    /// As [`Queue::receive`](crate::queue::Queue::receive).
    pub fn try_receive(&self) -> Result<Option<Delivery<T>>> {
        Ok(wait(self.inner.try_receive())?.map(Delivery::from))
    }

    /// Waits for a message for at most `most`; returns `None` after that.
    ///
    /// # Errors
    ///
    /// As [`Queue::receive`](crate::queue::Queue::receive).
    pub fn receive_within(&self, most: Duration) -> Result<Option<Delivery<T>>> {
        Ok(wait(self.inner.receive_within(most))?.map(Delivery::from))
    }

    /// Waits for the first message for at most `most`; returns all that are due then, up to `max`. Zero is one attempt;
    /// [`Duration::MAX`] waits without an end.
    ///
    /// # Errors
    ///
    /// As [`Queue::receive_many`](crate::queue::Queue::receive_many).
    pub fn receive_many(&self, max: usize, most: Duration) -> Result<Vec<Delivery<T>>> {
        Ok(wait(self.inner.receive_many(max, most))?.into_iter().map(Delivery::from).collect())
    }

    /// Acknowledges deliveries of this queue, in as few requests as they fit into: one answer for each, in order.
    ///
    /// # Errors
    ///
    /// As [`Queue::ack_many`](crate::queue::Queue::ack_many).
    pub fn ack_many(&self, deliveries: impl IntoIterator<Item = Delivery<T>>) -> Result<Vec<Settled>> {
        wait(self.inner.ack_many(deliveries.into_iter().map(Delivery::into_async)))
    }
}

impl<T> fmt::Debug for Queue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").finish_non_exhaustive()
    }
}
