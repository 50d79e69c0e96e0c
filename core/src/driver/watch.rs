//! How a backend's wake-ups reach the waiter they are meant for.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use crate::token::OwnerToken;

/// What a waiter is told. Hints only: a waiter always asks the backend before it believes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Signal {
    /// Something changed that makes asking worthwhile; several may be told as one.
    Wake,
}

/// The waiter's end: yields signals until it is dropped.
pub struct Watch {
    notify: Arc<Notify>,
    on_drop: Option<Box<dyn FnOnce() + Send>>,
}

/// The driver's end of a [`Watch`].
#[derive(Clone)]
pub struct WakeHandle(Arc<Notify>);

impl Watch {
    /// Both ends of a new watch.
    #[must_use]
    pub fn channel() -> (WakeHandle, Self) {
        let notify = Arc::new(Notify::new());
        (WakeHandle(Arc::clone(&notify)), Self { notify, on_drop: None })
    }

    /// Runs `end` when the watch is dropped, to end the listening. It must not block.
    #[must_use]
    pub fn on_drop(mut self, end: impl FnOnce() + Send + 'static) -> Self {
        self.on_drop = Some(Box::new(end));
        self
    }

    /// The next signal; one that came before the call is not lost.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no signal.
    pub async fn next(&mut self) -> Signal {
        self.notify.notified().await;
        Signal::Wake
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(end) = self.on_drop.take() {
            end();
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch")
    }
}

impl WakeHandle {
    /// Wakes the waiter. A signal that is not yet taken swallows further ones.
    pub fn wake(&self) {
        self.0.notify_one();
    }
}

impl fmt::Debug for WakeHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WakeHandle")
    }
}

/// Routes wake-ups of one connection to the waiters of one process, by token.
///
/// ```
/// use tenure_core::{OwnerToken, driver::WakeRouter};
///
/// let router = WakeRouter::default();
/// let token = OwnerToken::random();
/// let watch = router.register(token);
/// assert!(router.wake(&token));
/// drop(watch); // ends the registration
/// assert!(!router.wake(&token));
/// ```
#[derive(Clone, Debug, Default)]
pub struct WakeRouter(Arc<Mutex<HashMap<OwnerToken, WakeHandle>>>);

impl WakeRouter {
    /// Starts to route wake-ups for `token`, until the watch is dropped.
    #[must_use]
    pub fn register(&self, token: OwnerToken) -> Watch {
        let (handle, watch) = Watch::channel();
        self.routes().insert(token, handle);
        let routes = self.clone();
        watch.on_drop(move || {
            routes.routes().remove(&token);
        })
    }

    /// Wakes the waiter of `token`; tells whether there is one.
    pub fn wake(&self, token: &OwnerToken) -> bool {
        self.routes().get(token).map(WakeHandle::wake).is_some()
    }

    /// Wakes every waiter: after a gap in the link, in which wake-ups may have been lost.
    pub fn wake_all(&self) {
        self.routes().values().for_each(WakeHandle::wake);
    }

    /// How many waiters are registered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.routes().len()
    }

    /// Whether nobody is registered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn routes(&self) -> std::sync::MutexGuard<'_, HashMap<OwnerToken, WakeHandle>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
