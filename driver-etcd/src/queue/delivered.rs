//! The places of the messages that this client has received: so that a settlement need not look first.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::clock::Micros;
use super::entry::Entry;
use super::keys::QueueKeys;

/// Beyond it, those whose lease has ended are forgotten, and then no more are remembered.
const MOST: usize = 10_000;

/// By the key under which each was delivered. A remembered entry may be out of date; every move is checked by etcd.
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

/// The interval of looks at held-back messages while other messages are due.
const BETWEEN: Micros = 1_000_000;

/// The last looks at held-back messages, by the prefix of their keys in each queue.
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

#[cfg(test)]
mod tests {
    use tenure_core::queue::QueueName;

    use super::super::keys::{Location, QueueSpace};
    use super::*;

    fn keys(queue: &str) -> QueueKeys {
        QueueSpace::new("tenure").of(&QueueName::new(queue).unwrap())
    }

    fn entry(number: u64, until: Micros) -> Entry {
        Entry::without_place(&keys("jobs"), Location::Leased(until), number)
    }

    #[test]
    fn what_was_delivered_is_remembered_until_it_is_settled() {
        let delivered = Delivered::default();
        let key = |number: u64| number.to_string().into_bytes();
        let known = |number| delivered.get(&key(number)).map(|entry| entry.number);
        delivered.remember(key(1), entry(1, 50), 10);
        delivered.remember(key(2), entry(2, 50), 10);
        assert_eq!([known(1), known(2), known(3)], [Some(1), Some(2), None]);
        delivered.forget(&key(1));
        assert_eq!([known(1), known(2)], [None, Some(2)]);
        delivered.remember(key(3), entry(3, 90), 60);
        assert_eq!([known(2), known(3)], [Some(2), Some(3)], "its lease has ended, and there is room");
    }

    #[test]
    fn so_many_deliveries_are_remembered_and_those_whose_lease_has_ended_make_room() {
        let delivered = Delivered::default();
        let remember = |number: u64, until, now| {
            delivered.remember(number.to_string().into_bytes(), entry(number, until), now);
            delivered.entries().len()
        };
        (0..MOST as u64 - 1).for_each(|number| assert_eq!(remember(number, 100, 10), number as usize + 1));
        assert_eq!(remember(20_000, 50, 10), MOST);
        assert_eq!(remember(20_001, 100, 49), MOST, "there is no room");
        assert!(delivered.get(b"20001").is_none());
        assert_eq!(remember(20_002, 100, 50), MOST);
        assert!(delivered.get(b"20002").is_some() && delivered.get(b"20000").is_none());
    }

    #[test]
    fn what_is_held_back_is_looked_at_each_second_from_where_the_last_look_ended() {
        let (looks, jobs, other) = (HeldLooks::default(), keys("jobs"), keys("other"));
        let behind = || looks.began_behind(&jobs.all_held().0);
        looks.ended(&jobs, Some(b"a".to_vec()));
        assert_eq!(behind(), None, "nobody has looked");
        assert!(!looks.is_due(&jobs, 500), "it was noticed just now");
        assert!(!looks.is_due(&jobs, 500 + BETWEEN - 1) && looks.is_due(&jobs, 500 + BETWEEN));
        assert!(!looks.is_due(&jobs, 500 + BETWEEN), "one is enough");
        assert!(!looks.is_due(&other, 500 + BETWEEN), "each queue by itself");
        looks.ended(&jobs, Some(b"a".to_vec()));
        assert_eq!(behind().as_deref(), Some(&b"a"[..]));
        looks.ended(&jobs, None);
        assert_eq!(behind(), None);
        looks.ended(&jobs, Some(b"b".to_vec()));
        looks.forget(&jobs);
        assert_eq!(behind(), None);
        assert!(!looks.is_due(&jobs, 500 + 2 * BETWEEN), "as if for the first time");
    }
}
