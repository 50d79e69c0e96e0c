//! A value of a client library that lives on one runtime, for a driver that several runtimes use.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::value::error::{Error, ErrorKind, Result};

/// A value that works for as long as the runtime lives on which it was made, and reports the end of that runtime: the
/// handle of a connection that a client library keeps in a task.
///
/// A client is not bound to a runtime, so a driver has to outlive the first one that uses it (each `#[tokio::test]` has its own). A
/// driver keeps such a value behind a lock, asks for it at each call, and makes a new one on the current runtime when
/// [`get`](Self::get) returns `None`:
///
/// ```
/// use std::sync::Arc;
/// use tenure_core::Result;
/// use tenure_core::driver::OnRuntime;
/// use tokio::sync::Mutex;
/// # #[derive(Clone)] struct Connection;
/// # async fn connect() -> Result<Connection> { Ok(Connection) }
///
/// #[derive(Default)]
/// struct Link(Mutex<Option<OnRuntime<Connection>>>);
///
/// impl Link {
///     async fn connection(&self) -> Result<Connection> {
///         let mut kept = self.0.lock().await;
///         if let Some(living) = kept.as_ref().and_then(OnRuntime::get) {
///             return Ok(living.clone());
///         }
///         // Its task runs on the runtime of this call.
///         let made = connect().await?;
///         *kept = Some(OnRuntime::here(made.clone())?);
///         Ok(made)
///     }
/// }
/// ```
///
/// A request that was sent on the old runtime has no answer: its outcome is unknown, unless the client library reports
/// otherwise. A waiter whose wake-ups used the old connection has to ask again: call
/// [`WakeRouter::wake_all`](super::WakeRouter::wake_all).
pub struct OnRuntime<T> {
    value: T,
    ended: Arc<AtomicBool>,
    /// Ends the task that notices the end of the runtime.
    _kept: oneshot::Sender<()>,
}

/// Marks the end when it is dropped with its task: when the runtime ends, or when the value is gone.
struct Last(Arc<AtomicBool>);

impl Drop for Last {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

impl<T> OnRuntime<T> {
    /// Makes a value of the current runtime.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] outside a runtime.
    pub fn here(value: T) -> Result<Self> {
        let runtime = Handle::try_current()
            .map_err(|_| Error::new(ErrorKind::InvalidArgument, "a client must be used inside a tokio runtime"))?;
        let (ended, (kept, gone)) = (Arc::<AtomicBool>::default(), oneshot::channel());
        let last = Last(Arc::clone(&ended));
        runtime.spawn(async move {
            let _last = last;
            let _ = gone.await; // never sent: it returns when the value is gone
        });
        Ok(Self { value, ended, _kept: kept })
    }

    /// Returns the value; `None` once its runtime has ended.
    pub fn get(&self) -> Option<&T> {
        (!self.ended.load(Ordering::Acquire)).then_some(&self.value)
    }
}

impl<T> fmt::Debug for OnRuntime<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnRuntime").field("ended", &self.ended).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_there_until_its_runtime_ends_and_leaves_no_task() {
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        assert_eq!(OnRuntime::here(1).unwrap_err().kind(), ErrorKind::InvalidArgument);
        let (one, other) = (runtime(), runtime());
        let value = one.block_on(async { OnRuntime::here(7) }).unwrap();
        assert_eq!(value.get(), Some(&7));
        other.block_on(async { assert_eq!(value.get(), Some(&7)) });
        drop(one);
        assert_eq!(value.get(), None);
        other.block_on(async {
            drop(OnRuntime::here(7).unwrap());
            while Handle::current().metrics().num_alive_tasks() > 0 {
                tokio::task::yield_now().await;
            }
        });
    }
}
