//! A waiter's place in line, for whoever shows it.

use std::sync::Arc;

use tokio::sync::watch;

/// How many waiters are ahead of a wait for a lock, to be shown while it goes on. Give it to
/// [`Lock::progress`](crate::Lock::progress) before the lock is asked for, and read it meanwhile, from any task or thread. A clone shows
/// the same wait.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tenure_core::Result<()> {
/// use tenure_core::WaitProgress;
///
/// # let client = tenure_core::Client::new(tenure_memory::MemoryDriver::new());
/// let mut progress = WaitProgress::new();
/// let lock = client.lock("ledger").progress(&progress);
/// let shown = async {
///     loop {
///         match progress.changed().await {
///             Some(0) => println!("next"),
///             Some(ahead) => println!("{ahead} are ahead"),
///             None => println!("waiting"),
///         }
///     }
/// };
/// tokio::select! {
///     guard = lock.acquire() => guard?.release().await?,
///     () = shown => {}
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct WaitProgress {
    told: Arc<watch::Sender<Option<u32>>>,
    /// What this handle was told last.
    seen: Option<u32>,
}

impl Default for WaitProgress {
    fn default() -> Self {
        Self::new()
    }
}

impl WaitProgress {
    /// Of no wait yet.
    #[must_use]
    pub fn new() -> Self {
        Self { told: Arc::new(watch::Sender::new(None)), seen: None }
    }

    /// How many waiters are ahead, as far as the latest answer of the backend tells: 0 means that this one is next, behind
    /// whoever holds the lock. It goes up as well as down: a waiter that keeps silent for too long loses its place.
    ///
    /// `None` before the first answer, where the lock was free, and where the driver does not know: it keeps no line (Redlock, MySQL),
    /// or none that counts this waiter. Once the wait is over, it says what was known last.
    ///
    /// Tasks of one client that wait along with others of it
    /// ([`holders_per_grant`](crate::ClientBuilder::holders_per_grant)) count those before them as well. Who comes to share such a place
    /// counts from the next answer on, so for a moment the number is an estimate.
    ///
    /// Reads a value; no I/O.
    #[must_use]
    pub fn ahead(&self) -> Option<u32> {
        *self.told.borrow()
    }

    /// Waits until [`ahead`](Self::ahead) is another one than this handle was told last, and returns it. The first call of a
    /// handle returns as soon as a number is known. Never returns while nothing changes, so select it together with the wait.
    ///
    /// # Cancel safety
    ///
    /// Safe: the change is told by the next call.
    pub async fn changed(&mut self) -> Option<u32> {
        let seen = self.seen;
        if let Ok(now) = self.told.subscribe().wait_for(|now| *now != seen).await {
            self.seen = *now; // there is always an answer: the sender is here
        }
        self.seen
    }

    pub(crate) fn tell(&self, ahead: Option<u32>) {
        self.told.send_if_modified(|told| {
            let changes = *told != ahead;
            *told = ahead;
            changes
        });
    }
}
