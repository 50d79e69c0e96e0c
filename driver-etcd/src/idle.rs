//! Leases between two holds.
//!
//! A new lease costs a write. An empty lease serves the next lock as well as a new one while little of its ttl has
//! passed, if no request on its way can attach a key to it.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::task::JoinHandle;

use tenure_core::driver::LeaseInstant;

use crate::grants::{Lease, Leases, seconds};

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
    fn is_fresh_at(&self, now: LeaseInstant) -> bool {
        self.secs > 0 && now.since(self.since) <= most_passed(seconds(self.secs))
    }
}

/// How much may have passed of a lease of this length when it is used again.
pub(crate) fn most_passed(whole: Duration) -> Duration {
    LONGEST.min(whole / 10)
}

impl Idle {
    /// A lease of this many seconds. The one that came last has the most of them left.
    pub(crate) fn take(&self, secs: i64, now: LeaseInstant) -> Option<Lease> {
        let mut leases = self.leases();
        let at = leases.iter().rposition(|lease| lease.secs == secs && lease.is_fresh_at(now))?;
        Some(leases.remove(at))
    }

    /// Whether there is use for it.
    pub(crate) fn wants(&self, lease: &Lease) -> bool {
        lease.is_fresh_at(LeaseInstant::now()) && self.leases().len() < MOST
    }

    /// Keeps a lease for later.
    pub(crate) fn put(self: &Arc<Self>, lease: Lease, revoking: &Arc<Leases>) {
        // Before the look for the sweeper, which ends only while there is no lease.
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

    /// The leases to revoke by now, which are not used again. They stay here until they are revoked, so that a closing
    /// of the driver meanwhile finds them.
    fn stale_at(&self, now: LeaseInstant) -> Vec<i64> {
        let mut leases = self.leases();
        let stale = leases.iter_mut().filter(|lease| !lease.is_fresh_at(now));
        let serves_no_more = |lease: &mut Lease| {
            lease.secs = 0;
            lease.id
        };
        stale.map(serves_no_more).collect()
    }

    /// Ends when nothing is left to look after. What cannot be revoked ends by itself.
    async fn sweep(self: Arc<Self>, revoking: Arc<Leases>) {
        loop {
            tokio::time::sleep(LONGEST).await;
            let stale = self.stale_at(LeaseInstant::now());
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
    use super::*;

    fn lease(id: i64, secs: i64, since: LeaseInstant) -> Lease {
        Lease { id, secs, since, term: None }
    }

    /// The runtime's clock does not advance here, as in suspend: only the clock of leases advances.
    #[tokio::test(start_paused = true)]
    async fn a_lease_serves_again_while_a_tenth_of_it_has_passed() {
        let (idle, start) = (Idle::default(), LeaseInstant::before_send());
        let at = |millis| start.after(Duration::from_millis(millis));
        idle.leases().extend([lease(1, 5, start), lease(2, 5, start), lease(3, 600, start)]);
        assert_eq!(idle.take(5, start).map(|lease| lease.id), Some(2), "the one that came last");
        assert_eq!(idle.take(5, at(500)).map(|lease| lease.id), Some(1));
        idle.leases().push(lease(4, 5, at(500)));
        assert_eq!(idle.take(5, at(1001)), None);
        assert_eq!(idle.take(600, at(1001)), None, "of a long one, a second");
        idle.leases().push(lease(5, 5, at(1001)));
        idle.spoil();
        assert_eq!(idle.take(5, at(1001)), None);
        assert_eq!(idle.take_all().len(), 3, "to be revoked");
    }

    /// A request asks by the time at which it began, which may be long past.
    #[tokio::test(start_paused = true)]
    async fn a_lease_that_is_being_revoked_serves_nobody() {
        let (idle, start) = (Idle::default(), LeaseInstant::before_send());
        let at = |millis| start.after(Duration::from_millis(millis));
        idle.leases().push(lease(1, 60, start));
        assert!(idle.stale_at(at(900)).is_empty());
        assert_eq!(idle.stale_at(at(1_500)), [1]);
        assert_eq!(idle.take(60, at(500)), None, "its hold would go with it");
        assert_eq!(idle.take_all().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn of_a_lease_that_served_before_the_time_in_suspend_has_passed_too() {
        let start = LeaseInstant::before_send();
        let used = lease(1, 10, start);
        let suspended = start.after(Duration::from_millis(8_200));
        assert_eq!(used.left_at(suspended), Duration::from_millis(1_800));
        assert!(!used.is_fresh_at(suspended));
        assert_eq!(used.left_at(start.after(Duration::from_secs(11))), Duration::ZERO);
    }

    #[test]
    fn so_many_are_kept_and_none_that_is_of_no_use() {
        let (idle, now) = (Idle::default(), LeaseInstant::now());
        let fresh = lease(1, 3_600, now);
        for number in 0..MOST as i64 {
            assert!(idle.wants(&fresh), "{number}");
            idle.leases().push(lease(number, 3_600, now));
        }
        assert!(!idle.wants(&fresh), "there are enough");
        idle.take(3_600, now).unwrap();
        assert!(idle.wants(&fresh) && !idle.wants(&lease(1, 0, now)));
    }

    /// No server answers: a lease that cannot be revoked is forgotten all the same. There is one sweeper, for as long
    /// as there is something to sweep, and another one for later leases.
    #[tokio::test(start_paused = true)]
    async fn what_grows_old_is_swept_and_the_sweeper_ends() {
        let driver = crate::test_support::unserved();
        let (idle, now) = (Arc::<Idle>::default(), LeaseInstant::now());
        let sweeper = || idle.sweeper.lock().unwrap().as_ref().map(JoinHandle::id);
        for _ in 0..2 {
            idle.put(lease(1, 3_600, now.after(Duration::from_secs(3_600))), &driver.inner.leases);
            let first = sweeper();
            assert!(first.is_some());
            idle.put(lease(2, 0, now), &driver.inner.leases);
            assert_eq!(sweeper(), first);
            let all = || idle.leases().iter().map(|lease| lease.id).collect::<Vec<_>>();
            tokio::time::sleep(LONGEST / 2).await;
            assert_eq!(all(), [1, 2], "not yet");
            while all().len() > 1 {
                tokio::time::sleep(LONGEST / 2).await;
            }
            assert_eq!((all(), sweeper()), (vec![1], first), "it looks after the other one");
            idle.spoil();
            while sweeper().is_some() {
                tokio::time::sleep(LONGEST / 2).await;
            }
            assert!(all().is_empty());
        }
    }
}
