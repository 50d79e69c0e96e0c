//! Which re-entrant holds this client has, so that nested guards share one lease and are lost together.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::driver::ReentrantHold;
use crate::engine::lease::{Entry, Lease, LeaseKey};
use crate::value::clock::LeaseInstant;
use crate::value::error::LockName;
use crate::value::token::{FencingToken, OwnerId};
use crate::value::ttl::HoldState;

type Key = (LockName, OwnerId);

/// A map of this size is swept of leases that are gone before it grows.
const SWEEP_AT: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct ReentrantLeases(Mutex<Map>);

#[derive(Debug, Default)]
struct Map {
    /// The client's leases of this owner on this name, live or lost; rarely more than one.
    leases: HashMap<Key, Vec<Weak<Lease>>>,
    sweep_at: usize,
}

impl ReentrantLeases {
    /// Joins the client's lease of this hold, or begins one; `None` if this client has lost the hold and had not undone
    /// it when the request left. (Afterwards it can only stand because the owner is in it through another client.) One
    /// step, so that entries that are granted at the same time share a lease.
    pub(crate) fn enter(
        &self,
        name: &LockName,
        owner: OwnerId,
        fence: FencingToken,
        (base, deadline): (LeaseInstant, LeaseInstant),
        entry: Entry,
    ) -> Option<Arc<Lease>> {
        let mut map = self.map();
        map.sweep();
        let leases = map.leases.entry((name.clone(), owner)).or_default();
        for lease in leases.iter().filter_map(Weak::upgrade).filter(|lease| lease.fence == fence) {
            if lease.join(entry, base, deadline) {
                return Some(lease);
            }
            if matches!(lease.state(), HoldState::Lost(_)) && !was_undone_at(&lease, base) {
                return None;
            }
        }
        let key = LeaseKey::Reentrant(ReentrantHold::new(name.clone(), owner, fence));
        let lease = Arc::new(Lease::new(key, fence, (base, deadline), entry, LeaseInstant::now()));
        leases.push(Arc::downgrade(&lease));
        Some(lease)
    }

    /// Forgets a lease that has ended, unless it was lost: that is remembered for as long as its clean-ups live.
    pub(crate) fn remove(&self, lease: &Arc<Lease>) {
        let LeaseKey::Reentrant(ReentrantHold { name, owner, .. }) = &lease.key else { return };
        let lost = matches!(lease.state(), HoldState::Lost(_));
        let key = (name.clone(), *owner);
        let mut map = self.map();
        if let Some(leases) = map.leases.get_mut(&key) {
            leases.retain(|weak| weak.strong_count() > 0 && (lost || weak.as_ptr() != Arc::as_ptr(lease)));
            if leases.is_empty() {
                map.leases.remove(&key);
            }
        }
    }

    fn map(&self) -> MutexGuard<'_, Map> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn was_undone_at(lost: &Lease, sent: LeaseInstant) -> bool {
    lost.is_empty() && lost.undoing(|progress| progress.was_over_at(sent))
}

impl Map {
    /// Forgets leases that are gone, each time the map has doubled.
    fn sweep(&mut self) {
        if self.leases.len() >= self.sweep_at.max(SWEEP_AT) {
            self.leases.retain(|_, leases| leases.iter().any(|lease| lease.strong_count() > 0));
            self.sweep_at = 2 * self.leases.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::engine::lease::{Past, Upkeep};
    use crate::value::token::OwnerToken;
    use crate::value::ttl::Ttl;

    fn enter(owners: &ReentrantLeases, owner: OwnerId) -> Arc<Lease> {
        let (token, now) = (OwnerToken::random(), LeaseInstant::now());
        let entry =
            Entry { token, ttl: Ttl::DEFAULT, upkeep: Upkeep::Renewed, cap: None, least: None, past: Past::Answered };
        let window = (now, now.after(Duration::from_secs(30)));
        let name = LockName::new("a").unwrap();
        owners.enter(&name, owner, FencingToken::new(1).unwrap(), window, entry).unwrap()
    }

    #[test]
    fn a_lease_that_ended_is_forgotten() {
        let (owners, owner) = (ReentrantLeases::default(), OwnerId::new());
        let lease = enter(&owners, owner);
        assert!(Arc::ptr_eq(&lease, &enter(&owners, owner)), "entries of one hold share a lease");
        owners.remove(&lease);
        assert!(owners.map().leases.is_empty());
    }

    #[test]
    fn leases_that_nobody_removed_do_not_pile_up() {
        let owners = ReentrantLeases::default();
        let alive: Vec<_> = (0..100).map(|_| enter(&owners, OwnerId::new())).collect();
        for _ in 0..10_000 {
            enter(&owners, OwnerId::new());
        }
        let kept = owners.map().leases.len();
        assert!(kept >= alive.len() && kept <= 3 * alive.len(), "{kept}");
    }
}
