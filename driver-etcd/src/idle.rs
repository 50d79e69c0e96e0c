//! Leases between two holds.
//!
//! A lease costs a write of its own. One that carries nothing any more, and that no request on its way can put anything
//! on, serves the next lock as well as a new one, while little of its ttl has passed.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::task::JoinHandle;

use crate::ask::seconds;
use crate::grants::{Lease, Leases};

/// The most leases that are kept for later.
const MOST: usize = 64;
/// What may have passed of a lease when it is used again: this, and no more than a tenth of it.
const LONGEST: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(crate) struct Idle {
    leases: Mutex<Vec<Lease>>,
    /// Revokes what grows old.
    sweeper: Mutex<Option<JoinHandle<()>>>,
}

impl Lease {
    /// Whether it may be used again.
    fn is_fresh(&self) -> bool {
        self.secs > 0 && self.since.elapsed() <= most_passed(seconds(self.secs))
    }
}

/// How much may have passed of a lease of this length when it is used again.
pub(crate) fn most_passed(whole: Duration) -> Duration {
    LONGEST.min(whole / 10)
}

impl Idle {
    /// A lease of this many seconds. The one that came last has the most of them left.
    pub(crate) fn take(&self, secs: i64) -> Option<Lease> {
        let mut leases = self.leases();
        let at = leases.iter().rposition(|lease| lease.secs == secs && lease.is_fresh())?;
        Some(leases.remove(at))
    }

    /// Whether there is use for it.
    pub(crate) fn wants(&self, lease: &Lease) -> bool {
        lease.is_fresh() && self.leases().len() < MOST
    }

    /// Keeps a lease for later.
    pub(crate) fn put(self: &Arc<Self>, lease: Lease, revoking: &Arc<Leases>) {
        self.leases().push(lease);
        let mut sweeper = self.sweeper.lock().unwrap_or_else(PoisonError::into_inner);
        if sweeper.as_ref().is_none_or(JoinHandle::is_finished) {
            *sweeper = Some(tokio::spawn(Arc::clone(self).sweep(Arc::clone(revoking))));
        }
    }

    /// Serves none of them again; they are revoked as old ones are.
    pub(crate) fn spoil(&self) {
        self.leases().iter_mut().for_each(|lease| lease.secs = 0);
    }

    /// All of them, to be revoked.
    pub(crate) fn take_all(&self) -> Vec<Lease> {
        std::mem::take(&mut self.leases())
    }

    /// Ends when nothing is left to look after. What cannot be revoked ends by itself.
    async fn sweep(self: Arc<Self>, revoking: Arc<Leases>) {
        loop {
            tokio::time::sleep(LONGEST).await;
            // They stay until they are revoked, so that whoever closes the driver meanwhile finds them.
            let stale: Vec<_> = self.leases().iter().filter(|lease| !lease.is_fresh()).map(|lease| lease.id).collect();
            join_all(stale.iter().map(|id| revoking.revoke(*id))).await;
            self.leases().retain(|lease| !stale.contains(&lease.id));
            // Under the lock that a newcomer looks for the sweeper with, so that none is overlooked.
            let mut sweeper = self.sweeper.lock().unwrap_or_else(PoisonError::into_inner);
            if self.leases().is_empty() {
                *sweeper = None;
                return;
            }
        }
    }

    fn leases(&self) -> MutexGuard<'_, Vec<Lease>> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Idle").field("leases", &self.leases().len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    fn lease(id: i64, secs: i64) -> Lease {
        Lease { id, secs, since: Instant::now() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_serves_again_while_a_tenth_of_it_has_passed() {
        let idle = Idle::default();
        idle.leases().extend([lease(1, 5), lease(2, 5), lease(3, 600)]);
        assert_eq!(idle.take(5).map(|lease| lease.id), Some(2), "the one that came last");
        tokio::time::advance(Duration::from_millis(500)).await;
        assert_eq!(idle.take(5).map(|lease| lease.id), Some(1));
        idle.leases().push(lease(4, 5));
        tokio::time::advance(Duration::from_millis(501)).await;
        assert_eq!(idle.take(5), None);
        assert_eq!(idle.take(600), None, "of a long one, a second");
        idle.leases().push(lease(5, 5));
        idle.spoil();
        assert_eq!(idle.take(5), None);
        assert_eq!(idle.take_all().len(), 3, "to be revoked");
    }
}
