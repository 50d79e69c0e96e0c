//! A chore that a timer starts everywhere, and one does.

use std::time::Duration;

use tenure::{Client, Result};

/// The timer of every instance calls this. Returns true if this instance did
/// the work.
pub async fn once<F: Future<Output = ()>>(
    client: &Client,
    work: impl FnOnce() -> F,
) -> Result<bool> {
    // Longer than the difference between the timers of the instances, shorter
    // than the time from one start to the next.
    let lock = client.lock("clean-up").at_least(Duration::from_secs(300));
    let Some(guard) = lock.try_acquire().await? else { return Ok(false) };
    guard.run(work()).await?;
    // The lock stays taken until the five minutes have passed.
    guard.release().await?;
    Ok(true)
}
