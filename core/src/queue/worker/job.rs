//! What a handler is given.

use std::fmt;
use std::time::Duration;

use crate::driver::Cause;
use crate::queue::{Attempts, Delivery, MessageId, Payload};
use crate::token::FencingToken;

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
    /// The order of this delivery among all deliveries of the queue.
    pub fence: FencingToken,
    /// The fence of the lock that is held for this message, if one is.
    pub lock_fence: Option<FencingToken>,
    /// How long after its due time the message was handed out.
    pub late: Duration,
    /// The bytes of the message.
    pub payload: Payload,
}

impl<T: 'static> Job<T> {
    pub(super) fn new(value: T, delivery: &Delivery<T>, lock_fence: Option<FencingToken>) -> Self {
        Self {
            value,
            id: delivery.id().clone(),
            attempt: delivery.attempt(),
            attempts: delivery.attempts(),
            cause: delivery.cause(),
            fence: delivery.fence(),
            lock_fence,
            late: delivery.late(),
            payload: delivery.payload().clone(),
        }
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
