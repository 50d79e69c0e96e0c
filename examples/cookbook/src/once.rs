//! A chore that a timer starts everywhere, and one does.

use std::time::Duration;

use tenure::{Client, Result};

/// What the timer of every instance calls. Tells whether it was this one's turn.
pub async fn once<F: Future<Output = ()>>(client: &Client, work: impl FnOnce() -> F) -> Result<bool> {
    // Longer than the timers of the instances are apart, shorter than the time from one start to the next.
    let lock = client.lock("clean-up").at_least(Duration::from_secs(300));
    let Some(guard) = lock.try_acquire().await? else { return Ok(false) };
    guard.run(work()).await?;
    guard.release().await?; // the work is done, and yet nobody gets the lock before the five minutes are over
    Ok(true)
}
