//! Concurrency keys: of each, at most one message is in flight.
//!
//! A key's own key in etcd stands exactly while a message of it is leased; the transaction that leases a message puts it
//! and fails if it is there. A message that is due and finds it there is moved out of the way of all others. Whoever
//! removes it lets the first of those messages go on, in a request of its own: a client that ends in between leaves
//! messages that a receive finds when there is nothing else to do.

use std::collections::HashSet;

use etcd_client::{Compare, CompareOp, GetOptions, GetResponse, Txn, TxnOp};
use tenure_core::{ConcurrencyKey, Result};

use super::clock::Micros;
use super::entry::{BATCH, Entry, MOST_STARTS, Turn};
use super::keys::{Place, Set};

impl Turn<'_> {
    /// What leaving its place for this set means for a message's concurrency key.
    pub(super) fn leave(&self, entry: &Entry, to: Set) -> Option<TxnOp> {
        let key = entry.record.key.as_ref()?;
        match entry.place {
            Place::Leased(_) if to != Set::Leased => Some(TxnOp::delete(self.keys.in_flight(key), None)),
            Place::Held(at) => Some(TxnOp::delete(self.keys.held_by(key, at, entry.number), None)),
            _ => None,
        }
    }

    /// What coming to this place means for a message's concurrency key.
    pub(super) fn enter(&self, entry: &Entry, to: Place) -> Option<TxnOp> {
        let key = entry.record.key.as_ref()?;
        match to {
            Place::Leased(_) if entry.place.set() != Set::Leased => {
                Some(TxnOp::put(self.keys.in_flight(key), format!("number={}", entry.number), None))
            }
            Place::Held(at) => Some(TxnOp::put(self.keys.held_by(key, at, entry.number), "", None)),
            _ => None,
        }
    }

    /// These operations, which lease a message that waits; if its key is in flight, the message is held back instead.
    pub(super) fn lease_or_hold(&self, entry: &Entry, key: &ConcurrencyKey, operations: Vec<TxnOp>) -> TxnOp {
        let first = Txn::new().when([entry.unmoved(), self.is_free(key)]).and_then(operations);
        TxnOp::txn(first.or_else([self.hold(entry, key)]))
    }

    /// Holds a message back, if its key is in flight.
    pub(super) fn hold(&self, entry: &Entry, key: &ConcurrencyKey) -> TxnOp {
        let in_flight = Compare::create_revision(self.keys.in_flight(key), CompareOp::Greater, 0);
        let operations = self.relocate(entry, Place::Held(entry.place.at()), &entry.record);
        TxnOp::txn(Txn::new().when([entry.unmoved(), in_flight]).and_then(operations))
    }

    fn is_free(&self, key: &ConcurrencyKey) -> Compare {
        Compare::create_revision(self.keys.in_flight(key), CompareOp::Equal, 0)
    }

    /// These messages have left their places: what their keys held back goes on. What fails here a receive makes good.
    pub(super) async fn let_next_go<'a>(&self, left: impl IntoIterator<Item = &'a Entry>) {
        let keys: HashSet<_> = left.into_iter().filter_map(|entry| entry.record.key.as_ref()).collect();
        for key in keys {
            let _ = self.let_go(key).await;
        }
    }

    /// Lets the first message go on that a key holds back, unless the key is in flight; tells whether one does.
    async fn let_go(&self, key: &ConcurrencyKey) -> Result<bool> {
        for _ in 0..MOST_STARTS {
            let Some((at, number)) = self.first_held(key).await? else { return Ok(false) };
            let Some(entry) = self.at(&[(number, Place::Held(at))]).await?.pop() else { continue };
            let step = entry.step(self.relocate(&entry, Place::Waiting(at), &entry.record));
            match self.apply(vec![self.is_free(key)], vec![step], Some(self.signal(at))).await? {
                None => return Ok(false),
                Some(applied) if applied.steps.iter().all(Option::is_some) => return Ok(true),
                Some(_) => {}
            }
        }
        Ok(false)
    }

    async fn first_held(&self, key: &ConcurrencyKey) -> Result<Option<(Micros, u64)>> {
        let first = GetOptions::new().with_prefix().with_limit(1).with_keys_only();
        let answers = self.look(vec![TxnOp::get(self.keys.all_held_by(key), Some(first))]).await?;
        let mut found = answers.iter().flat_map(GetResponse::kvs);
        Ok(found.find_map(|found| self.keys.parse_held_by(key, found.key())))
    }

    /// Looks for messages that are held back by keys of which nothing is in flight; tells whether some go on.
    pub(super) async fn let_stranded_go(&self) -> Result<bool> {
        let (from, to) = self.keys.range(Set::Held, 0, None);
        let page = TxnOp::get(from, Some(GetOptions::new().with_range(to).with_limit(BATCH as i64)));
        let held = self.look(vec![page]).await?;
        let held = held.iter().flat_map(GetResponse::kvs).filter_map(|found| Entry::read(&self.keys, found));
        let keys: HashSet<_> = held.filter_map(|entry| entry.record.key).collect();
        if keys.is_empty() {
            return Ok(false);
        }
        let keys: Vec<_> = keys.into_iter().collect();
        let looks = keys.iter().map(|key| TxnOp::get(self.keys.in_flight(key), None)).collect();
        let free = self.look(looks).await?.into_iter().zip(&keys).filter(|(found, _)| found.kvs().is_empty());
        let mut some = false;
        for (_, key) in free {
            some |= self.let_go(key).await?;
        }
        Ok(some)
    }
}
