//! Work under a lease.

use std::time::Duration;

use tenure::{Client, FencingToken, Result};

/// Waits for the lock, runs `work`, releases the lock. Pass the fence to every
/// store that `work` writes to.
///
/// # Errors
///
/// `ErrorKind::Lost` if the lease ended first: the work was dropped unfinished.
pub async fn rebuild<F: Future<Output = ()>>(
    client: &Client,
    work: impl FnOnce(FencingToken) -> F,
) -> Result<()> {
    let lock = client.lock("search-index").ttl(Duration::from_secs(30));
    // Waits for its turn. From here on, the lease renews itself.
    let guard = lock.acquire().await?;
    guard.run(work(guard.fence())).await?;
    // Or drop it.
    guard.release().await
}
