//! The lock of a message, as a worker takes it.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use super::builder::Settings;
use crate::lock::{Lock, LockGuard};
use crate::panicked;
use crate::queue::Delivery;
use crate::value::error::Result;
use crate::value::name::LockName;
use crate::value::queue_name::Reason;

/// Which lock a message needs that was pushed without one; `None` for none.
pub(super) type LockOf<T> = Arc<dyn Fn(&T) -> Option<Result<LockName>> + Send + Sync>;

/// The lock of a message that is to be handled.
pub(super) enum Needed {
    /// It needs none.
    None,
    Held(LockGuard),
    /// Somebody else holds it, or the backend does not answer.
    Busy(LockName),
    /// It cannot be had, and why. That is a failed attempt.
    Refused(Reason),
}

/// Takes the lock of a message, if it needs one. Does not wait for it.
pub(super) async fn lock_for<T: 'static>(settings: &Settings<T>, delivery: &Delivery<T>, value: &T) -> Needed {
    let name = match name_for(settings, delivery, value) {
        Ok(Some(name)) => name,
        Ok(None) => return Needed::None,
        Err(reason) => return Needed::Refused(reason),
    };
    let lock = Lock::new(Arc::clone(&settings.queue.pump.shared), name.clone()).ttl(settings.lock_ttl);
    match lock.try_acquire_for(delivery).await {
        Ok(Some(guard)) => Needed::Held(guard),
        Ok(None) => Needed::Busy(name),
        Err(error) if error.is_transient() => Needed::Busy(name), // an outage is waited out like a holder
        Err(error) => Needed::Refused(Reason::beginning_of(&error.to_string())),
    }
}

/// The lock that the message was pushed with, or else the one that the worker was told to hold for its value.
fn name_for<T: 'static>(
    settings: &Settings<T>,
    delivery: &Delivery<T>,
    value: &T,
) -> std::result::Result<Option<LockName>, Reason> {
    if let Some(own) = delivery.lock() {
        return Ok(Some(own.clone()));
    }
    let Some(lock_of) = &settings.lock_of else { return Ok(None) };
    let asked = std::panic::catch_unwind(AssertUnwindSafe(|| lock_of(value)));
    let named =
        asked.map_err(|panic| Reason::beginning_of(&format!("lock_by panicked: {}", panicked::text(&*panic))))?;
    named.transpose().map_err(|error| Reason::beginning_of(&format!("lock_by: {error}")))
}
