//! Where the messages are that this client has received: so that a settlement need not look first.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::clock::Micros;
use super::entry::Entry;

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
