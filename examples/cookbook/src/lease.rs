//! Work under a lease.

use std::time::Duration;

use tenure::{Client, FencingToken, Result};

/// Does the work when it is this client's turn. Whatever the work changes is told its fence.
///
/// # Errors
///
/// `ErrorKind::Lost` if the lease ended first: the work was dropped in the middle.
pub async fn rebuild<F: Future<Output = ()>>(client: &Client, work: impl FnOnce(FencingToken) -> F) -> Result<()> {
    let lock = client.lock("search-index").ttl(Duration::from_secs(30));
    let guard = lock.acquire().await?; // waits its turn; from here on, the lease renews itself
    guard.run(work(guard.fence())).await?;
    guard.release().await // or drop it
}
