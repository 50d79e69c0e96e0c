//! One call of what is not ours: a driver's request, bounded in time, or a user's code, which may panic.

use std::any::Any;
use std::convert::Infallible;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::try_join;
use tokio::task::unconstrained;
use tokio::time::sleep;

use crate::value::error::{Error, ErrorKind, Result};

// These hold what they wait for once. An `async fn` holds a future that it is given twice, as its argument and while it waits for
// it; with a few around each other, what a program spawns for one lock would take kilobytes.

/// A request whose outcome is unknown when it takes longer than `limit`.
pub(crate) fn bounded<T>(limit: Duration, call: impl Future<Output = Result<T>>) -> impl Future<Output = Result<T>> {
    let unanswered = move || Err(Error::new(ErrorKind::Indeterminate, format!("no answer within {limit:?}")));
    yielding(within(limit, call).map(move |answer| answer.unwrap_or_else(unanswered)))
}

/// Waits for `work` at most `limit`, counted from when it first has to wait; `None` if it takes longer. Work that is done at once
/// needs no timer.
pub(crate) fn within<T>(limit: Duration, work: impl Future<Output = T>) -> impl Future<Output = Option<T>> {
    waiting_within(limit, || (), work)
}

/// As [`within`]. What `waits` returns is kept from when `work` first has to wait until it is done or given up; it is not called for
/// work that is done at once.
pub(crate) fn waiting_within<T, W>(
    limit: Duration,
    waits: impl FnOnce() -> W,
    work: impl Future<Output = T>,
) -> impl Future<Output = Option<T>> {
    // Polled behind the work, and never kept waiting by what others have used up of the task's turn.
    let over = async move {
        let _waits = waits();
        unconstrained(sleep(limit)).await;
    };
    let ended = try_join(
        work.map(|done| Err::<Infallible, Option<T>>(Some(done))),
        over.map(|()| Err::<Infallible, Option<T>>(None)),
    );
    ended.map(|ended| match ended {
        Err(done) => done,
        Ok((never, _)) => match never {},
    })
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

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use tokio::task::coop::consume_budget;
    use tokio::time::Instant;

    use super::*;

    #[test]
    fn what_is_done_at_once_needs_no_timer() {
        // Outside a runtime, a timer would panic.
        assert_eq!(within(Duration::from_secs(1), ready(7)).now_or_never(), Some(Some(7)));
    }

    #[tokio::test(start_paused = true)]
    async fn what_takes_longer_is_given_up_at_the_limit() {
        let began = Instant::now();
        assert_eq!(within(Duration::from_millis(300), pending::<()>()).await, None);
        assert_eq!(began.elapsed(), Duration::from_millis(300));
        let work = async {
            sleep(Duration::from_millis(200)).await;
            7
        };
        assert_eq!(within(Duration::from_millis(300), work).await, Some(7));
        assert_eq!(within(Duration::ZERO, pending::<()>()).await, None);
    }

    /// Work that is never done and uses up the task's turn each time would keep a timer that asks for a part of it from ringing.
    #[tokio::test]
    async fn the_limit_holds_for_work_that_uses_up_the_turn() {
        let greedy = async {
            loop {
                consume_budget().await;
            }
        };
        let given_up = tokio::spawn(within(Duration::from_millis(10), greedy));
        let ended = tokio::time::timeout(Duration::from_secs(30), given_up).await.expect("it ends");
        assert_eq!(ended.expect("no panic"), None::<Infallible>);
    }
}
