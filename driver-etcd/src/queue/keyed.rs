//! Concurrency keys: of each, at most one message is in flight.
//!
//! A concurrency key has its own key in etcd, which exists exactly while a message of it is leased. The transaction
//! that leases a message creates that key, and fails if it exists. A due message whose key exists is moved aside, so
//! that it does not block other messages. The client that removes the key releases the first of those messages, in a
//! separate request. If the client ends in between, a receive finds those messages: at once when there are no other
//! messages, and within a second when there are.

use std::collections::HashSet;
use std::iter;

use etcd_client::{Compare, CompareOp, GetOptions, GetResponse, KeyValue, Txn, TxnOp};
use tenure_core::Result;
use tenure_core::queue::ConcurrencyKey;

use super::clock::Micros;
use super::entry::{BATCH, Entry, MOST_STARTS, naming, stored_as};
use super::keys::{Location, Set};
use super::turn::Turn;
use crate::link::odd;

/// How many pages of held-back messages one look reads.
const PAGES: usize = 5;

/// The depth of a look at held-back messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// Checks whether the key's own key exists.
    Quick,
    /// Also checks whether the message that it refers to is in flight.
    Thorough,
}

impl Turn<'_> {
    /// What leaving its place for this set means for a message's concurrency key.
    pub(super) fn leave(&self, entry: &Entry, to: Set) -> Option<TxnOp> {
        let key = entry.record.key.as_ref()?;
        match entry.place {
            Location::Leased(_) if to != Set::Leased => Some(TxnOp::delete(self.keys.in_flight(key), None)),
            Location::Held(at) => Some(TxnOp::delete(self.keys.held_by(key, at, entry.number), None)),
            _ => None,
        }
    }

    /// What coming to this place means for a message's concurrency key.
    pub(super) fn enter(&self, entry: &Entry, to: Location) -> Option<TxnOp> {
        let key = entry.record.key.as_ref()?;
        match to {
            Location::Leased(_) if entry.place.set() != Set::Leased => {
                Some(TxnOp::put(self.keys.in_flight(key), naming(entry.number), None))
            }
            Location::Held(at) => Some(TxnOp::put(self.keys.held_by(key, at, entry.number), "", None)),
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
        let operations = self.relocate(entry, Location::Held(entry.place.at()), &entry.record);
        TxnOp::txn(Txn::new().when([entry.unmoved(), in_flight]).and_then(operations))
    }

    fn is_free(&self, key: &ConcurrencyKey) -> Compare {
        Compare::create_revision(self.keys.in_flight(key), CompareOp::Equal, 0)
    }

    /// These messages have left their places: the next held-back message of each key is released. A receive makes up
    /// for failures here.
    pub(super) async fn let_next_go<'a>(&self, left: impl IntoIterator<Item = &'a Entry>) {
        let keys: HashSet<_> = left.into_iter().filter_map(|entry| entry.record.key.as_ref()).collect();
        for key in keys {
            let _ = self.let_go(key).await;
        }
    }

    /// Releases the first message that a key holds back, unless the key is in flight; returns whether it released one.
    async fn let_go(&self, key: &ConcurrencyKey) -> Result<bool> {
        for _ in 0..MOST_STARTS {
            let Some((at, number)) = self.first_held(key).await? else { return Ok(false) };
            let Some(mut entry) = self.at(&[(number, Location::Held(at))]).await?.pop() else {
                self.forget_held(key, at, number).await?;
                continue;
            };
            entry.record.key = Some(key.clone()); // also of a damaged one
            let step = entry.step(self.relocate(&entry, Location::Waiting(at), &entry.record));
            match self.apply(vec![self.is_free(key)], vec![step], Some(self.signal(at))).await? {
                None => return Ok(false),
                Some(applied) if applied.steps.iter().all(Option::is_some) => return Ok(true),
                Some(_) => {}
            }
        }
        Ok(false)
    }

    /// Removes what says that the key holds a message back, unless the message is there again.
    async fn forget_held(&self, key: &ConcurrencyKey, at: Micros, number: u64) -> Result<()> {
        let absent = Compare::create_revision(self.keys.place(Location::Held(at), number), CompareOp::Equal, 0);
        let delete = TxnOp::delete(self.keys.held_by(key, at, number), None);
        self.inner.txn(Txn::new().when([absent]).and_then([delete])).await.map(drop)
    }

    /// The first message that the key holds back. Keys in front of it that no version of this crate wrote are removed.
    async fn first_held(&self, key: &ConcurrencyKey) -> Result<Option<(Micros, u64)>> {
        for _ in 0..MOST_STARTS {
            let first = GetOptions::new().with_prefix().with_limit(1).with_keys_only();
            let answers = self.look(vec![TxnOp::get(self.keys.all_held_by(key), Some(first))]).await?;
            let Some(found) = answers.iter().flat_map(GetResponse::kvs).next() else { return Ok(None) };
            if let Some(held) = self.keys.parse_held_by(key, found.key()) {
                return Ok(Some(held));
            }
            self.remove_strays(iter::once(found.key())).await?;
        }
        Ok(None)
    }

    /// Looks for messages that are held back by keys of which nothing is in flight, a bounded number of keys, beginning
    /// where the last look ended; returns whether it released some.
    pub(super) async fn let_stranded_go(&self, look: Look) -> Result<bool> {
        let (mut from, to) = self.keys.all_held();
        from = self.inner.held_looks.began_behind(&from).unwrap_or(from);
        let (mut keys, mut some) = (Vec::new(), false);
        for _ in 0..PAGES {
            // The read of the keys in flight of one page goes along with the next page.
            let mut gets: Vec<_> = keys.iter().map(|key| TxnOp::get(self.keys.in_flight(key), None)).collect();
            let page = GetOptions::new().with_range(to.as_slice()).with_limit(BATCH as i64).with_keys_only();
            gets.push(TxnOp::get(from.as_slice(), Some(page)));
            let mut answers = self.look(gets).await?;
            let Some(page) = answers.pop() else { return Err(odd("an answer of an unexpected form")) };
            for key in self.free(keys, &answers, look).await? {
                some |= self.let_go(&key).await?;
            }
            let found = || page.kvs().iter().map(KeyValue::key);
            self.remove_strays(found().filter(|found| self.keys.parse_held(found).is_none())).await?;
            keys = found().filter_map(|found| self.keys.parse_held(found)).collect();
            keys.dedup();
            let Some(last) = keys.last() else {
                self.inner.held_looks.ended(&self.keys, None);
                return Ok(some);
            };
            from = self.keys.behind_held_by(last);
        }
        self.inner.held_looks.ended(&self.keys, Some(from));
        Ok(some)
    }

    /// Of which of these keys nothing is in flight, by the answers to a look at each.
    async fn free(
        &self,
        keys: Vec<ConcurrencyKey>,
        answers: &[GetResponse],
        look: Look,
    ) -> Result<Vec<ConcurrencyKey>> {
        let (mut free, mut busy) = (Vec::new(), Vec::new());
        for (key, answer) in keys.into_iter().zip(answers) {
            match answer.kvs().first() {
                None => free.push(key),
                Some(found) => busy.push((key, stored_as(found.value()).unwrap_or_default(), found.mod_revision())),
            }
        }
        if look == Look::Quick || busy.is_empty() {
            return Ok(free);
        }
        let numbers: Vec<u64> = busy.iter().map(|(_, number, _)| *number).collect();
        let places = self.pointed(&numbers).await?;
        let is_leased = |number| places.iter().any(|(other, place, _)| *other == number && place.set() == Set::Leased);
        for (key, _, written) in busy.into_iter().filter(|(_, number, _)| !is_leased(*number)) {
            // The transaction that ends a lease also removes the key's own key: it lost its message otherwise.
            let of = self.keys.in_flight(&key);
            let same = Compare::mod_revision(of.as_slice(), CompareOp::Equal, written);
            if self.inner.txn(Txn::new().when([same]).and_then([TxnOp::delete(of, None)])).await?.succeeded() {
                free.push(key);
            }
        }
        Ok(free)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::test_support::queue;
    use super::*;
    use crate::EtcdDriver;
    use crate::test_support::{requests, served};
    use tenure_core::driver::{
        DelayQueueExt as _, Extended, Extension, Lease, NewMessage, Payload, RawDelivery, ReceiveRequest, Settle,
        Settlement,
    };

    fn key(text: impl AsRef<[u8]>) -> ConcurrencyKey {
        ConcurrencyKey::new(text).unwrap()
    }

    async fn push(driver: &EtcdDriver, keys: &[&str]) {
        let message = |text: &&str| NewMessage::new(Payload::new([]).unwrap()).with_key(Some(key(text)));
        driver.inner.push(&queue(), &keys.iter().map(message).collect::<Vec<_>>()).await.unwrap();
    }

    async fn receive(driver: &EtcdDriver) -> Vec<RawDelivery> {
        let request = ReceiveRequest::new(queue(), 9, Lease::new(Duration::from_secs(30)).unwrap());
        driver.receive(&request).await.unwrap().deliveries
    }

    async fn ack(driver: &EtcdDriver, deliveries: &[RawDelivery]) {
        let ack = |delivery: &RawDelivery| Settle::new(delivery.receipt, Settlement::Ack);
        driver.settle(&queue(), &deliveries.iter().map(ack).collect::<Vec<_>>()).await.unwrap();
    }

    impl Turn<'_> {
        async fn lead_to_one(&self, keys: impl IntoIterator<Item = Vec<u8>>) {
            let puts: Vec<_> = keys.into_iter().map(|key| TxnOp::put(key, "number=1", None)).collect();
            self.inner.txn(Txn::new().and_then(puts)).await.unwrap();
        }

        /// The number of keys about held-back messages.
        async fn held(&self) -> i64 {
            let (from, to) = self.keys.all_held();
            let count = GetOptions::new().with_range(to).with_count_only();
            self.look(vec![TxnOp::get(from, Some(count))]).await.unwrap()[0].count()
        }
    }

    #[tokio::test]
    async fn a_key_stays_in_flight_while_its_message_is_extended() {
        let (_cluster, driver) = served();
        push(&driver, &["k", "k"]).await;
        let first = receive(&driver).await;
        assert_eq!(first.len(), 1);
        let extension = Extension::new(first[0].receipt, Lease::new(Duration::from_secs(90)).unwrap());
        assert_eq!(driver.inner.extend(&queue(), &[extension]).await.unwrap(), [Extended::Extended]);
        assert!(receive(&driver).await.is_empty());
        push(&driver, &["k"]).await;
        assert!(receive(&driver).await.is_empty());
        ack(&driver, &first).await;
        assert_eq!(receive(&driver).await.len(), 1);
    }

    /// A client ended between two requests, or a foreign hand has been there.
    #[tokio::test]
    async fn what_says_that_a_key_holds_back_a_message_that_is_gone_is_removed() {
        let (_cluster, driver) = served();
        push(&driver, &["k", "k"]).await;
        let first = receive(&driver).await;
        let turn = Turn::new(&driver.inner, &queue());
        turn.lead_to_one([turn.keys.held_by(&key("k"), 1, 7), turn.keys.held_by(&key("k"), 2, 8)]).await;
        assert_eq!(turn.held().await, 3);
        ack(&driver, &first).await;
        assert_eq!(turn.held().await, 0);
        assert_eq!(receive(&driver).await.len(), 1);
    }

    /// Strays go, and a look begins where the last one ended.
    #[tokio::test]
    async fn a_look_at_what_is_held_back_continues_where_the_last_one_ended() {
        let (_cluster, driver) = served();
        push(&driver, &["a", "b", "b"]).await;
        let received = receive(&driver).await;
        assert_eq!(received.len(), 2);
        push(&driver, &["a"]).await;
        assert!(receive(&driver).await.is_empty());
        let turn = Turn::new(&driver.inner, &queue());
        let free = TxnOp::delete(turn.keys.in_flight(&key("a")), None);
        turn.write([free]).await;
        turn.lead_to_one([[turn.keys.all_held().0, b"%/x".to_vec()].concat()]).await;
        let looks = &driver.inner.held_looks;
        looks.is_due(&turn.keys, turn.now);
        looks.ended(&turn.keys, Some(turn.keys.behind_held_by(&key("a"))));
        assert!(!turn.let_stranded_go(Look::Quick).await.unwrap(), "that is behind it");
        assert_eq!(looks.began_behind(&turn.keys.all_held().0), None);
        assert!(turn.let_stranded_go(Look::Quick).await.unwrap());
        assert_eq!(turn.held().await, 1, "of the key that is in flight, and no stray");
    }

    #[tokio::test]
    async fn one_look_reads_so_many_pages() {
        let (cluster, driver) = served();
        let turn = Turn::new(&driver.inner, &queue());
        assert!(!turn.let_stranded_go(Look::Thorough).await.unwrap());
        let before = requests(&cluster);
        assert!(!turn.let_stranded_go(Look::Thorough).await.unwrap());
        assert_eq!(requests(&cluster), before + 1, "there is none");
        let name = |at: usize| key(format!("k{at:04}"));
        for some in (0..PAGES * BATCH + 20).collect::<Vec<_>>().chunks(BATCH / 2) {
            let keys = |at: &usize| [turn.keys.held_by(&name(*at), 1, 7), turn.keys.in_flight(&name(*at))];
            turn.lead_to_one(some.iter().flat_map(keys)).await;
        }
        let looks = &driver.inner.held_looks;
        looks.is_due(&turn.keys, turn.now);
        assert!(!turn.let_stranded_go(Look::Quick).await.unwrap());
        let behind = turn.keys.behind_held_by(&name(PAGES * BATCH - 1));
        assert_eq!(looks.began_behind(&turn.keys.all_held().0), Some(behind));
        assert!(!turn.let_stranded_go(Look::Quick).await.unwrap());
        assert_eq!(looks.began_behind(&turn.keys.all_held().0), None);
    }

    /// At once, and not with the next receive.
    #[tokio::test]
    async fn what_a_key_holds_back_waits_again_when_its_message_is_replaced_or_put_away() {
        use tenure_core::driver::{Delay, IfKnown, NamedId};
        use tenure_core::queue::MessageId;
        for is_replaced in [true, false] {
            let (_cluster, driver) = served();
            let named = |id: &str| {
                let id = NamedId::new(MessageId::named(id).unwrap(), Delay::ZERO);
                NewMessage::new(Payload::new([]).unwrap()).with_id(Some(id)).with_key(Some(key("k")))
            };
            driver.inner.push(&queue(), &["a", "b"].map(named)).await.unwrap();
            assert_eq!(receive(&driver).await.len(), 1);
            let turn = Turn::new(&driver.inner, &queue());
            let find = async |id: &str| turn.find(&MessageId::named(id).unwrap()).await.unwrap().unwrap();
            assert_eq!(find("b").await.place.set(), Set::Held);
            driver.inner.clock.at_least(turn.now + 60_000_000);
            if is_replaced {
                let other = named("a").with_key(None).with_if_known(IfKnown::Replace);
                driver.inner.push(&queue(), &[other]).await.unwrap();
            } else {
                let (entry, mut gathered) = (find("a").await, super::super::receive::Gathered::default());
                turn.put_away(&entry, None, &mut gathered).await.unwrap();
                assert_eq!(gathered.healed.orphans, 1);
            }
            assert_eq!(find("b").await.place.set(), Set::Waiting, "{is_replaced}");
        }
    }
}
