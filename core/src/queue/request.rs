//! One request to a driver.

use std::future::Future;
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};

/// A request whose outcome is unknown when it takes longer than `limit`.
pub(super) async fn bounded<T>(limit: Duration, call: impl Future<Output = Result<T>>) -> Result<T> {
    match tokio::time::timeout(limit, call).await {
        Ok(answer) => answer,
        Err(_) => Err(Error::new(ErrorKind::Indeterminate, format!("no answer within {limit:?}"))),
    }
}
