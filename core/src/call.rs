//! One call of what is not ours: a driver's request, bounded in time, or a user's code, which may panic.

use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt as _;

use crate::value::error::{Error, ErrorKind, Result};

// These hold what they wait for once. An `async fn` holds a future that it is given twice, as its argument and while it waits for
// it; with a few around each other, what a program spawns for one lock would take kilobytes.

/// A request whose outcome is unknown when it takes longer than `limit`.
pub(crate) fn bounded<T>(limit: Duration, call: impl Future<Output = Result<T>>) -> impl Future<Output = Result<T>> {
    let unanswered = move |_| Err(Error::new(ErrorKind::Indeterminate, format!("no answer within {limit:?}")));
    yielding(tokio::time::timeout(limit, call).map(move |answer| answer.unwrap_or_else(unanswered)))
}

/// Lets others have a turn before a failure is told. Over a connection that is down calls fail at once, and a loop on them would
/// keep the only thread of a runtime from the tasks that open the connection again and that undo what was given up.
pub(crate) fn yielding<T>(call: impl Future<Output = Result<T>>) -> impl Future<Output = Result<T>> {
    call.then(async |answer| {
        if answer.is_err() {
            // A blocking call polls this on a thread whose own runtime it keeps waiting, and that runtime does the waking: hence the end.
            let _ = tokio::time::timeout(Duration::from_millis(1), tokio::task::yield_now()).await;
        }
        answer
    })
}

// What is known of a panic.

/// The text that a panic came with.
pub(crate) fn text(panic: &(dyn Any + Send)) -> &str {
    let formatted = panic.downcast_ref::<String>().map(String::as_str);
    formatted.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it gave no text")
}

/// The error that stands for a panic of `whom`.
fn told(whom: &str, panic: &(dyn Any + Send)) -> Error {
    Error::new(ErrorKind::Protocol, format!("{whom} panicked: {}", text(panic)))
}

/// What `work` of somebody else returns; an error if it panics.
pub(crate) fn caught<T>(whom: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    std::panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(told(whom, &*panic)))
}

/// As [`caught`], for a future.
pub(crate) fn caught_in<T>(whom: &str, work: impl Future<Output = Result<T>>) -> impl Future<Output = Result<T>> {
    AssertUnwindSafe(work).catch_unwind().map(|done| done.unwrap_or_else(|panic| Err(told(whom, &*panic))))
}
