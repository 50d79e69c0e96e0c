//! Where the messages are that this client has received: so that a settlement need not look first.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::clock::Micros;
use super::entry::Entry;
use super::keys::QueueKeys;

/// Beyond it, those whose lease has ended are forgotten, and then no more are remembered.
const MOST: usize = 10_000;

/// By the key under which each was delivered. What is remembered may be out of date; every move is checked by etcd.
#[derive(Debug, Default)]
pub(crate) struct Delivered(Mutex<HashMap<Vec<u8>, Entry>>);

impl Delivered {
    pub(super) fn get(&self, key: &[u8]) -> Option<Entry> {
        self.entries().get(key).cloned()
    }

    pub(super) fn remember(&self, key: Vec<u8>, entry: Entry, now: Micros) {
        let mut entries = self.entries();
        if entries.len() >= MOST {
            entries.retain(|_, entry| entry.place.at() > now);
        }
        if entries.len() < MOST {
            entries.insert(key, entry);
        }
    }

    pub(super) fn forget(&self, key: &[u8]) {
        self.entries().remove(key);
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<Vec<u8>, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How often what is held back is looked at while other messages are due.
const BETWEEN: Micros = 1_000_000;

/// The last looks at what is held back, by what the keys of it begin with in each queue.
#[derive(Debug, Default)]
pub(crate) struct HeldLooks(Mutex<HashMap<Vec<u8>, LastLook>>);

#[derive(Debug)]
struct LastLook {
    /// When the last thorough one was.
    at: Micros,
    /// Where the next one begins, if that is not the first key.
    behind: Option<Vec<u8>>,
}

impl HeldLooks {
    /// Whether the last thorough look at what the keys of this queue hold back was some time ago.
    pub(super) fn is_due(&self, keys: &QueueKeys, now: Micros) -> bool {
        let mut queues = self.queues();
        let last = queues.entry(keys.all_held().0).or_insert(LastLook { at: now, behind: None });
        let due = last.at + BETWEEN <= now;
        if due {
            last.at = now;
        }
        due
    }

    /// Nothing is held back.
    pub(super) fn forget(&self, keys: &QueueKeys) {
        self.queues().remove(&keys.all_held().0);
    }

    pub(super) fn began_behind(&self, queue: &[u8]) -> Option<Vec<u8>> {
        self.queues().get(queue).and_then(|last| last.behind.clone())
    }

    pub(super) fn ended(&self, keys: &QueueKeys, at: Option<Vec<u8>>) {
        if let Some(last) = self.queues().get_mut(&keys.all_held().0) {
            last.behind = at;
        }
    }

    fn queues(&self) -> MutexGuard<'_, HashMap<Vec<u8>, LastLook>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
