//! Which re-entrant holds this client has, so that nested guards share one lease and are lost together.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::lease::{Lease, LeaseKey};
use crate::name::LockName;
use crate::token::OwnerId;

type Key = (LockName, OwnerId);

#[derive(Debug, Default)]
pub(crate) struct Owners(Mutex<HashMap<Key, Vec<Weak<Lease>>>>);

impl Owners {
    /// The client's leases of this owner on this name, live or lost; rarely more than one.
    pub(crate) fn leases(&self, name: &LockName, owner: &OwnerId) -> Vec<Arc<Lease>> {
        let map = self.map();
        map.get(&(name.clone(), *owner)).into_iter().flatten().filter_map(Weak::upgrade).collect()
    }

    pub(crate) fn insert(&self, lease: &Arc<Lease>) {
        if let Some(key) = key_of(lease) {
            self.map().entry(key).or_default().push(Arc::downgrade(lease));
        }
    }

    /// Forgets `lease`, and whatever else of the same owner is gone.
    pub(crate) fn remove(&self, lease: &Arc<Lease>) {
        let Some(key) = key_of(lease) else { return };
        let mut map = self.map();
        if let Some(leases) = map.get_mut(&key) {
            leases.retain(|weak| weak.upgrade().is_some_and(|other| !Arc::ptr_eq(&other, lease)));
            if leases.is_empty() {
                map.remove(&key);
            }
        }
    }

    fn map(&self) -> MutexGuard<'_, HashMap<Key, Vec<Weak<Lease>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key_of(lease: &Lease) -> Option<Key> {
    match &lease.key {
        LeaseKey::Plain(_) => None,
        LeaseKey::Reentrant { name, owner } => Some((name.clone(), *owner)),
    }
}
