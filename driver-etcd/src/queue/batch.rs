//! The choice of messages that one transaction can move: etcd refuses a transaction that writes a key twice, with all
//! its other writes.
//!
//! No two messages of a queue have one name, and no two messages in flight have one concurrency key, unless the keys
//! that ensure this were damaged.

use std::collections::HashSet;

use tenure_core::queue::{ConcurrencyKey, MessageId};

use super::entry::Entry;
use super::keys::Set;

/// The messages of one transaction.
#[derive(Debug, Default)]
pub(super) struct Batch {
    names: HashSet<MessageId>,
    in_flight: HashSet<ConcurrencyKey>,
}

impl Batch {
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
        let mut batch = Batch::default();
        let (now, later) = entries.into_iter().partition(|entry| batch.takes(entry));
        transactions.push(now);
        entries = later;
    }
    transactions
}

#[cfg(test)]
mod tests {
    use tenure_core::driver::{Delay, NamedId};
    use tenure_core::queue::QueueName;

    use super::super::keys::{Location, QueueSpace};
    use super::*;

    #[test]
    fn what_would_write_a_key_twice_waits_for_a_later_transaction() {
        let keys = QueueSpace::new("tenure").of(&QueueName::new("jobs").unwrap());
        let entry = |number, place, name: Option<&str>, key: Option<&str>| {
            let mut entry = Entry::without_place(&keys, place, number);
            entry.record.named = name.map(|name| NamedId::new(MessageId::named(name).unwrap(), Delay::ZERO));
            entry.record.key = key.map(|key| ConcurrencyKey::new(key).unwrap());
            entry
        };
        let (leased, waiting) = (Location::Leased(9), Location::Waiting(9));
        let transactions = by_transactions(vec![
            entry(1, leased, Some("a"), Some("k")),
            entry(2, leased, Some("a"), None),
            entry(3, leased, Some("b"), Some("k")),
            entry(4, waiting, Some("c"), Some("k")),
            entry(5, leased, None, Some("other")),
            entry(6, waiting, None, None),
            entry(7, waiting, Some("a"), Some("k")),
            entry(8, leased, Some("b"), None),
        ]);
        let numbers = transactions.iter().map(|some| some.iter().map(|entry| entry.number).collect::<Vec<_>>());
        assert_eq!(numbers.collect::<Vec<_>>(), [vec![1, 4, 5, 6, 8], vec![2, 3], vec![7]]);
        assert!(by_transactions(Vec::new()).is_empty());
    }
}
