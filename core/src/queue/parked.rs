//! The queue as the waiting room of a lock.

use std::time::Duration;

use super::Message;
use super::delivery::Delivery;
use super::handle::Queue;
use crate::driver::Pushed;
use crate::lock::{Lock, LockGuard};
use crate::value::error::Result;

/// What became of a request that needed a lock.
#[derive(Debug)]
pub enum OrPark {
    /// The lock was free: do the work now.
    Acquired(LockGuard),
    /// The lock was taken: the message waits in the queue, and a worker will handle it under the lock.
    Parked(Pushed),
}

/// The latest that a parked message comes back, unless told otherwise.
pub(crate) const PARKED_AT_MOST: Duration = Duration::from_secs(5);

impl Lock {
    /// Takes the lock if it is free; else stores the message, to be handled under this lock later: when its turn comes
    /// (how, the driver declares as its [`Parking`](crate::driver::Parking)), and 5 s from now at the latest, or as it says
    /// ([`Message::parked_at_most`]). For request handlers, which should not wait.
    ///
    /// A [`Message`] with an id is parked once, however often the request is made; it is refused when it is due at a time, or
    /// carries another lock.
    ///
    /// The message waits in the line of the lock as any other waiter, as long as this client lives. When its turn comes, the
    /// lock is kept for it for 2 s ([`ClientBuilder::parked_turn`](crate::ClientBuilder::parked_turn)), and a worker of the
    /// queue handles it under that hold. A message that comes back without a turn takes the lock if it is free; if not, it is
    /// parked once more, without using up an attempt.
    ///
    /// # Errors
    ///
    /// As [`Lock::try_acquire`], and as a [`push`](Queue::push).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves no lock behind; the message may be stored or not.
    pub async fn or_park<'v, T: 'static>(
        &self,
        queue: &Queue<T>,
        message: impl Into<Message<'v, T>>,
    ) -> Result<OrPark> {
        let parked = message.into().encoded(&*queue.codec).parked_behind(self.name(), PARKED_AT_MOST);
        let parked = parked.and_then(|message| message.checked(queue)).map_err(|error| queue.told(error, "push"))?;
        if let Some(guard) = self.try_acquire().await? {
            return Ok(OrPark::Acquired(guard));
        }
        queue.store(parked).await.map(OrPark::Parked)
    }

    /// Takes the lock for a message: with the hold that the message brings along if it was parked behind this lock and its
    /// turn has come, or as [`try_acquire`](Lock::try_acquire) does. For those who receive messages without a
    /// [`Worker`](crate::Worker), which does the same.
    ///
    /// A hold that came along keeps its fence and its label, and is renewed to the ttl of this handle from now on. It can be
    /// taken up once, from a delivery and a lock of the same client; it is given back if the delivery ends before that.
    ///
    /// # Errors
    ///
    /// As [`Lock::try_acquire`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves no lock behind, also not the one that the message brought along.
    pub async fn try_acquire_for<T: 'static>(&self, delivery: &Delivery<T>) -> Result<Option<LockGuard>> {
        if let Some(turn) = delivery.claim().take_turn(self.shared(), self.name())
            && let Some(guard) = self.take_up(turn).await?
        {
            return Ok(Some(guard));
        }
        self.try_acquire().await
    }
}
