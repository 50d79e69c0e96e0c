//! The queue as the waiting room of a lock.

use std::time::Duration;

use super::handle::Queue;
use crate::driver::Pushed;
use crate::error::Result;
use crate::lock::{Lock, LockGuard};

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
    /// Takes the lock if it is free; else stores the message, to be handled under this lock later: when it becomes free
    /// (how, the driver declares as its [`Parking`](crate::driver::Parking)), and 5 s from now at the latest. For request
    /// handlers, which should not wait.
    ///
    /// A worker of the queue takes the lock again before it handles the message. A lock that is busy then parks the
    /// message once more, without using up an attempt.
    ///
    /// # Errors
    ///
    /// As [`Lock::try_acquire`], and as a [`push`](Queue::push).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves no lock behind; the message may be stored or not.
    pub async fn or_park<T: 'static>(&self, queue: &Queue<T>, message: &T) -> Result<OrPark> {
        if let Some(guard) = self.try_acquire().await? {
            return Ok(OrPark::Acquired(guard));
        }
        queue.push(message).parked(self.name().as_bytes(), PARKED_AT_MOST).await.map(OrPark::Parked)
    }
}
