//! Futures that are dropped at a chosen poll.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

/// Polls `future` at most `most` times, then drops it. `Some` if it completed.
///
/// With 1, 2, 3, … until it completes, the future is dropped once at each of its await points.
///
/// # Cancel safety
///
/// As safe as `future`.
pub async fn at_most<F: Future>(most: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut polls = 0;
    poll_fn(move |context| {
        polls += 1;
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if polls >= most => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
