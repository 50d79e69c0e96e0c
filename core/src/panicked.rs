//! What is known of a panic.

use std::any::Any;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt as _;

use crate::value::error::{Error, ErrorKind, Result};

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
pub(crate) async fn caught_in<T>(whom: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
    AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|panic| Err(told(whom, &*panic)))
}
