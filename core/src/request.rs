//! One request to a driver.

use std::future::Future;
use std::time::Duration;

use crate::value::error::{Error, ErrorKind, Result};

/// A request whose outcome is unknown when it takes longer than `limit`.
pub(crate) async fn bounded<T>(limit: Duration, call: impl Future<Output = Result<T>>) -> Result<T> {
    yielding(async {
        match tokio::time::timeout(limit, call).await {
            Ok(answer) => answer,
            Err(_) => Err(Error::new(ErrorKind::Indeterminate, format!("no answer within {limit:?}"))),
        }
    })
    .await
}

/// Lets others have a turn before a failure is told. Over a connection that is down calls fail at once, and a loop on them would
/// keep the only thread of a runtime from the tasks that open the connection again and that undo what was given up.
pub(crate) async fn yielding<T>(call: impl Future<Output = Result<T>>) -> Result<T> {
    let answer = call.await;
    if answer.is_err() {
        // A blocking call polls this on a thread whose own runtime it keeps waiting, and that runtime does the waking: hence the end.
        let _ = tokio::time::timeout(Duration::from_millis(1), tokio::task::yield_now()).await;
    }
    answer
}
