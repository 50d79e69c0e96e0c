//! Obstacles between a waiter and a free lock: keys that are no places, and places of waiters that do not take it.

use etcd_client::Txn;
use tenure_core::Result;

use crate::answer::{self, Head, Seen, Tried};
use crate::ask::Ask;
use crate::fences::Base;
use crate::inner::Inner;
use crate::keys::NameKeys;
use crate::tickets::Place;
use crate::txn::{self, Take};

/// How many keys are read at once.
const PAGE: usize = 64;
/// How often a transaction is tried again because of other keys.
const MOST_TRIES: usize = 3;

impl Ask<'_> {
    /// Tries a transaction that is not to find any place before `end`; where keys that are no places stand there, on
    /// condition that no others came since.
    pub(crate) async fn try_past_others_keys(
        &self,
        take: &Take<'_>,
        end: Vec<u8>,
        txn: impl Fn(i64) -> Txn,
    ) -> Result<Option<Tried<Seen>>> {
        let (mut foreign, mut tries) = (0, 0);
        loop {
            let answer = self.try_on(take, txn(foreign)).await?;
            let Some(Tried::Not(seen)) = &answer else { return Ok(answer) };
            if !seen.is_obstructed() || tries == MOST_TRIES {
                return Ok(answer);
            }
            tries += 1;
            match self.inner.no_place_before(self.keys, end.clone()).await? {
                Some(revision) => foreign = revision,
                None => return Ok(answer),
            }
        }
    }

    /// Tries a transaction that takes the lock. `None` also if the base of the fences was written meanwhile.
    async fn try_on(&self, take: &Take<'_>, txn: Txn) -> Result<Option<Tried<Seen>>> {
        let Some(tried) = self.on(take.lease, self.try_txn(take.base, txn)).await? else { return Ok(None) };
        if tried.is_none() {
            self.give_back(take.lease).await?;
        }
        Ok(tried)
    }

    async fn try_txn(&self, base: &Base, txn: Txn) -> Result<Option<Tried<Seen>>> {
        let answer = self.inner.txn(txn).await?;
        if answer.succeeded() {
            return crate::link::revision(&answer).map(Tried::Done).map(Some);
        }
        let (seen, look) = answer::not_taken(&answer, self.keys)?;
        let seen = self.take_in(seen);
        Ok((!self.inner.fences.has_moved(base, &look)).then_some(Tried::Not(seen)))
    }

    /// Takes the place of the first in line away, which leaves a free lock alone, and what its client has before this
    /// one: a process that was killed is there until its session ends. `false` if the first in line is at work.
    pub(crate) async fn pass_over(&self, place: Place, seen: &Seen) -> Result<bool> {
        let Some(first) = seen.head.as_ref().filter(|first| first.spot.is_some() && seen.hold.is_none()) else {
            return Ok(false);
        };
        let places = match first.lease == place.lease {
            true => vec![first.clone()], // our own client is alive
            false => {
                let (_, front) = self.inner.front(self.keys, self.keys.queue(), self.keys.place(&place.spot)).await?;
                front.into_iter().filter(|place| place.lease == first.lease).collect()
            }
        };
        Ok(self.inner.txn(txn::evict(self.keys, first, places)).await?.succeeded())
    }
}

impl Inner {
    /// The revision in which no place was before `end`, only other keys; `None` if there was one.
    async fn no_place_before(&self, keys: &NameKeys, end: Vec<u8>) -> Result<Option<i64>> {
        let (mut from, mut first) = (keys.queue(), None);
        loop {
            let (revision, page) = self.front(keys, from, end.clone()).await?;
            // The revision of the first page: whatever came after it makes the transaction fail.
            let first = *first.get_or_insert(revision);
            if page.iter().any(|key| key.spot.is_some()) {
                return Ok(None);
            }
            match page.last().filter(|_| page.len() == PAGE) {
                Some(last) => from = [last.key.as_slice(), &[0]].concat(),
                None => return Ok(Some(first)),
            }
        }
    }

    /// The place of a token that this client knows nothing of.
    pub(crate) async fn find_place(&self, keys: &NameKeys, token: &tenure_core::OwnerToken) -> Result<Option<Place>> {
        let mut from = keys.queue();
        loop {
            let (_, page) = self.front(keys, from, keys.queue_end()).await?;
            for Head { revision, lease, spot, .. } in &page {
                if let Some(spot) = spot.filter(|spot| spot.token == *token) {
                    return Ok(Some(Place { spot, revision: *revision, lease: *lease }));
                }
            }
            match page.last().filter(|_| page.len() == PAGE) {
                Some(last) => from = [last.key.as_slice(), &[0]].concat(),
                None => return Ok(None),
            }
        }
    }

    /// Some keys among the places, from the front, and the revision in which they were read.
    async fn front(&self, keys: &NameKeys, from: Vec<u8>, end: Vec<u8>) -> Result<(i64, Vec<Head>)> {
        let answer = self.txn(txn::front(from, end, PAGE)).await?;
        let reads = crate::link::reads(&answer);
        let found = reads.first().ok_or_else(|| crate::link::odd("an answer of an unexpected form"))?;
        Ok((crate::link::revision(&answer)?, answer::places_in(found, keys).collect()))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use etcd_client::{PutOptions, TxnOp};
    use tenure_core::driver::{AcquireRequest, Ttl};
    use tenure_core::{LockName, OwnerToken};

    use super::*;
    use crate::answer::HoldSeen;
    use crate::grants::new_id;
    use crate::keys::Spot;
    use crate::test_support::served;

    fn name() -> LockName {
        LockName::new("name").unwrap()
    }

    fn request() -> AcquireRequest {
        AcquireRequest::new(name(), OwnerToken::random(), Ttl::DEFAULT)
    }

    impl Inner {
        /// Puts a key there, on this lease if there is one.
        async fn put(&self, key: Vec<u8>, lease: Option<i64>) -> i64 {
            let options = lease.map(|lease| PutOptions::new().with_lease(lease));
            crate::link::revision(&self.txn(Txn::new().and_then([TxnOp::put(key, "", options)])).await.unwrap())
                .unwrap()
        }

        async fn lease(&self) -> i64 {
            self.leases.grant(new_id(), 60).await.unwrap().id
        }

        /// A place of a token of its own.
        async fn joins(&self, keys: &NameKeys, arrival: i64, lease: i64) -> Place {
            let spot = Spot { arrival, token: OwnerToken::random() };
            Place { spot, revision: self.put(keys.place(&spot), Some(lease)).await, lease }
        }
    }

    fn foreign(keys: &NameKeys, number: usize) -> Vec<u8> {
        [keys.queue(), format!("!foreign-{number:04}").into_bytes()].concat()
    }

    /// As where another program writes keys there without end.
    #[tokio::test]
    async fn a_free_lock_behind_keys_of_others_is_tried_for_so_often_and_no_more() {
        let (_cluster, driver) = served();
        let inner = &driver.inner;
        let keys = inner.keys(&name());
        let foreign = [keys.queue(), b"foreign".to_vec()].concat();
        inner.txn(Txn::new().and_then([TxnOp::put(foreign, "", None)])).await.unwrap();
        let request = AcquireRequest::new(name(), OwnerToken::random(), Ttl::DEFAULT);
        let ask = Ask::new(inner, &keys, None, &request).unwrap();
        let (base, lease) = (inner.fences.base().await.unwrap(), ask.lease(30).await.unwrap());
        let record = ask.record(lease, &base);
        let take = ask.taking(&record, lease, &base);
        let tries = Cell::new(0);
        let in_vain = |_| {
            tries.set(tries.get() + 1);
            take.free(None, 0)
        };
        let answer = ask.try_past_others_keys(&take, keys.queue_end(), in_vain).await.unwrap();
        assert!(matches!(answer, Some(Tried::Not(_))));
        assert_eq!(tries.get(), 4);
        let first = |foreign| take.free(None, foreign);
        let answer = ask.try_past_others_keys(&take, keys.queue_end(), first).await.unwrap();
        assert!(matches!(answer, Some(Tried::Done(_))), "on condition that none came since");
        tries.set(0);
        let answer = ask.try_past_others_keys(&take, keys.queue_end(), in_vain).await.unwrap();
        assert!(matches!(answer, Some(Tried::Not(_))) && tries.get() == 1, "it is held");
    }

    #[tokio::test]
    async fn a_lease_is_parted_with_where_the_base_of_the_fences_was_written_meanwhile() {
        let (_cluster, driver) = served();
        let (inner, request) = (&driver.inner, request());
        let keys = inner.keys(&name());
        let ask = Ask::new(inner, &keys, None, &request).unwrap();
        let (base, lease) = (inner.fences.base().await.unwrap(), ask.lease(30).await.unwrap());
        inner.put(inner.keyspace.fences(), None).await;
        let record = ask.record(lease, &base);
        let take = ask.taking(&record, lease, &base);
        let answer = ask.try_past_others_keys(&take, keys.queue_end(), |foreign| take.free(None, foreign)).await;
        assert!(answer.unwrap().is_none(), "it is to be tried again, under another base");
        assert!(inner.tickets.leases(&request.token).is_empty());
    }

    #[tokio::test]
    async fn a_place_is_found_behind_many_others() {
        let (_cluster, driver) = served();
        let inner = &driver.inner;
        let (keys, lease) = (inner.keys(&name()), inner.lease().await);
        assert_eq!(inner.find_place(&keys, &OwnerToken::random()).await.unwrap(), None);
        let mut places = Vec::new();
        for arrival in 0..=PAGE as i64 {
            places.push(inner.joins(&keys, arrival, lease).await);
        }
        for place in [0, 1, PAGE - 1, PAGE].map(|number| places[number]) {
            assert_eq!(inner.find_place(&keys, &place.spot.token).await.unwrap(), Some(place));
        }
        assert_eq!(inner.find_place(&keys, &OwnerToken::random()).await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_place_is_seen_among_keys_of_others_and_behind_many_of_them() {
        let (_cluster, driver) = served();
        let inner = &driver.inner;
        let (keys, lease) = (inner.keys(&name()), inner.lease().await);
        let nobody_before = async |end: Vec<u8>| inner.no_place_before(&keys, end).await.unwrap().is_some();
        for number in 0..PAGE {
            inner.put(foreign(&keys, number), None).await;
        }
        assert!(nobody_before(keys.queue_end()).await);
        let place = inner.joins(&keys, 1, lease).await;
        assert!(!nobody_before(keys.queue_end()).await, "it is on the second page");
        assert!(nobody_before(keys.place(&place.spot)).await);
        let last = inner.put(foreign(&keys, PAGE), None).await;
        let seen = inner.no_place_before(&keys, keys.place(&place.spot)).await.unwrap();
        assert_eq!(seen, Some(last), "in which revision that was");
        inner
            .txn(Txn::new().and_then([TxnOp::delete(foreign(&keys, 0), None), TxnOp::delete(foreign(&keys, 1), None)]))
            .await
            .unwrap();
        assert!(!nobody_before(keys.queue_end()).await, "it is on the same page");
    }

    /// Of another client all that is before this one goes, of its own the first one alone.
    #[tokio::test]
    async fn a_first_in_line_that_takes_nothing_loses_its_place_and_a_dead_client_all_of_them() {
        let (_cluster, driver) = served();
        let (inner, request) = (&driver.inner, request());
        let keys = inner.keys(&name());
        let ask = Ask::new(inner, &keys, None, &request).unwrap();
        let (dead, alive, own) = (inner.lease().await, inner.lease().await, inner.lease().await);
        let mut places = Vec::new();
        for (arrival, lease) in (0..).zip([dead, alive, dead, own, dead, own]) {
            places.push(inner.joins(&keys, arrival, lease).await);
        }
        let is_there =
            async |number: usize| inner.find_place(&keys, &places[number].spot.token).await.unwrap().is_some();
        let look = async || {
            let answer = inner.txn(txn::just_look(&keys, Some(&places[5].spot))).await.unwrap();
            answer::seen(&answer, &keys).unwrap()
        };
        let mut seen = look().await;
        seen.hold = Some(HoldSeen { record: None, granted: 1, written: 1, lease: 1 });
        assert!(!ask.pass_over(places[5], &seen).await.unwrap() && is_there(0).await, "it was seen held");
        let seen = look().await;
        assert!(ask.pass_over(places[3], &seen).await.unwrap());
        let left = [is_there(0).await, is_there(1).await, is_there(2).await, is_there(4).await];
        assert_eq!(left, [false, true, false, true], "what is before the asker");
        assert!(!ask.pass_over(places[3], &seen).await.unwrap(), "another one is the first by now");
        let seen = look().await;
        assert!(ask.pass_over(places[3], &seen).await.unwrap() && !is_there(1).await);
        let seen = look().await;
        assert!(ask.pass_over(places[5], &seen).await.unwrap());
        assert_eq!([is_there(3).await, is_there(4).await, is_there(5).await], [false, true, true]);
        let key = foreign(&keys, 0);
        inner.put(key.clone(), None).await;
        let seen = look().await;
        assert!(!ask.pass_over(places[5], &seen).await.unwrap(), "that is no place");
        let answer = inner.txn(Txn::new().and_then([TxnOp::get(key, None)])).await.unwrap();
        assert_eq!(crate::link::reads(&answer)[0].kvs().len(), 1);
    }
}
