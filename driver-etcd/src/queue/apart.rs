//! Which messages one transaction can move: etcd refuses one that writes a key twice, and with it what is about all others.
//!
//! No two messages of a queue have one name, and no two in flight one concurrency key, unless the keys that see to it
//! were damaged.

use std::collections::HashSet;

use tenure_core::queue::{ConcurrencyKey, MessageId};

use super::entry::Entry;
use super::keys::Set;

/// The messages of one transaction.
#[derive(Debug, Default)]
pub(super) struct Apart {
    names: HashSet<MessageId>,
    in_flight: HashSet<ConcurrencyKey>,
}

impl Apart {
    /// Takes a message in, unless it has to wait for the next transaction.
    pub(super) fn takes(&mut self, entry: &Entry) -> bool {
        let name = entry.record.named.as_ref().map(|named| &named.id);
        let key = entry.record.key.as_ref().filter(|_| entry.place.set() == Set::Leased);
        let alone =
            name.is_none_or(|name| !self.names.contains(name)) && key.is_none_or(|key| !self.in_flight.contains(key));
        if alone {
            self.names.extend(name.cloned());
            self.in_flight.extend(key.cloned());
        }
        alone
    }
}

/// The messages by transactions; all in one, usually.
pub(super) fn by_transactions(mut entries: Vec<Entry>) -> Vec<Vec<Entry>> {
    let mut transactions = Vec::new();
    while !entries.is_empty() {
        let mut apart = Apart::default();
        let (now, later) = entries.into_iter().partition(|entry| apart.takes(entry));
        transactions.push(now);
        entries = later;
    }
    transactions
}
