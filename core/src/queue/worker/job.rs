//! What a handler is given.

use std::fmt;
use std::time::{Duration, SystemTime};

use tokio::sync::watch;

use super::run::Stage;
use crate::driver::Cause;
use crate::queue::Delivery;
use crate::value::limits::{Attempts, Payload};
use crate::value::queue_name::{MessageId, Reason};
use crate::value::token::FencingToken;

/// One message for a handler. The worker settles it, extends its lease, and drops the handler's future when the lease
/// (or the lock) is lost.
pub struct Job<T> {
    /// What the message says.
    pub value: T,
    /// By what the message is known.
    pub id: MessageId,
    /// Which delivery this is: 1 for the first.
    pub attempt: u32,
    /// How many deliveries there may be.
    pub attempts: Attempts,
    /// Why it was delivered.
    pub cause: Cause,
    /// What the last failure of the message said about why, if one did. A crash says nothing; the `cause` tells of it.
    pub last_failure: Option<Reason>,
    /// The order of this delivery among all deliveries of the queue.
    pub fence: FencingToken,
    /// The fence of the lock that is held for this message, if one is.
    pub lock_fence: Option<FencingToken>,
    /// The time of this occurrence of a [recurring](crate::Recurring) message, by its schedule; `None` for others.
    pub occurrence: Option<SystemTime>,
    /// How long after its due time the message was handed out.
    pub late: Duration,
    /// The bytes of the message.
    pub payload: Payload,
    stage: watch::Receiver<Stage>,
}

impl<T: 'static> Job<T> {
    pub(super) fn new(
        value: T,
        delivery: &Delivery<T>,
        lock_fence: Option<FencingToken>,
        stage: watch::Receiver<Stage>,
    ) -> Self {
        Self {
            value,
            id: delivery.id().clone(),
            attempt: delivery.attempt(),
            attempts: delivery.attempts(),
            cause: delivery.cause(),
            last_failure: delivery.last_failure().cloned(),
            fence: delivery.fence(),
            lock_fence,
            occurrence: delivery.occurrence(),
            late: delivery.late(),
            payload: delivery.payload().clone(),
            stage,
        }
    }
}

impl<T> Job<T> {
    /// Whether the worker takes no more messages, because it was told to stop or stops by itself. A handler that sees it
    /// should come to an end soon; one that has not when the grace of [`Worker::shutdown`](super::Worker::shutdown) is over
    /// is dropped, and its message returned.
    #[must_use]
    pub fn is_shutting_down(&self) -> bool {
        *self.stage.borrow() != Stage::Working
    }

    /// Resolves when [`is_shutting_down`](Self::is_shutting_down) becomes true.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn shutting_down(&self) {
        // The sender lives for as long as the handlers of the worker do.
        let _ = self.stage.clone().wait_for(|stage| *stage != Stage::Working).await;
    }
}

impl<T> fmt::Debug for Job<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job")
            .field("id", &self.id)
            .field("attempt", &self.attempt)
            .field("fence", &self.fence)
            .finish_non_exhaustive()
    }
}
