//! Waiting for a lock to be free, without wanting it.

use std::time::Duration;

use tokio::time::sleep;

use super::Lock;
use crate::engine::own_hold;
use crate::engine::pause::Pause;
use crate::value::error::Result;

/// The least time between two looks.
const SHORTEST: Duration = Duration::from_millis(50);

impl Lock {
    /// Resolves when nobody holds the lock. That is a moment's truth and no claim to the lock: by the time that the caller
    /// acts on it, somebody else may hold it. Joins no queue, takes nothing, and keeps nobody waiting.
    ///
    /// No driver tells of a release those who do not wait for the lock, so this looks: at once, then after 50 ms, and at
    /// intervals that double to one second, each shortened by up to half at random; and when the lease that was seen
    /// could end, if that is sooner, but never within 50 ms of the look before. One look is an [`inspect`](Self::inspect): a
    /// round trip, two on etcd, one to each node on redlock. So it resolves up to a second after the release, and misses a
    /// lock that is free for less. Who wants the lock is woken at once by [`acquire`](Self::acquire), and costs less.
    ///
    /// For the same reason there is no stream of holders to observe: it would be looks like these.
    ///
    /// A task that has the lock itself waits for ever; with the feature `tracing` it is warned as by [`acquire`](Self::acquire), by the
    /// client's ttl.
    ///
    /// Once the backend has answered, outages of any length are waited out.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> tenure_core::Result<()> {
    /// # let client = tenure_core::Client::new(tenure_memory::MemoryDriver::new());
    /// client.lock("migration")?.until_free().await?; // start up once no migration is under way
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`inspect`](Self::inspect).
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing is changed.
    pub async fn until_free(&self) -> Result<()> {
        own_hold::watched(self.shared(), self.name(), self.shared().config.ttl, self.seen_free()).await
    }

    async fn seen_free(&self) -> Result<()> {
        let mut pause = Pause::default();
        let mut answered = false;
        loop {
            let wait = match self.inspect().await {
                Ok(seen) => {
                    let Some(holder) = seen.holder else { return Ok(()) };
                    answered = true;
                    let ends =
                        holder.remaining.map_or(Duration::MAX, |left| left.saturating_add(Duration::from_millis(1)));
                    pause.looking().min(ends).max(SHORTEST)
                }
                Err(error) if answered && error.is_transient() => pause.outage().max(SHORTEST),
                Err(error) => return Err(error),
            };
            sleep(wait).await;
        }
    }
}
