//! What else stands between a waiter and a free lock: keys that are no places, and places whose waiters take nothing.

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

    /// Some keys among the places, from the front, and the revision in which they stood there.
    async fn front(&self, keys: &NameKeys, from: Vec<u8>, end: Vec<u8>) -> Result<(i64, Vec<Head>)> {
        let answer = self.txn(txn::front(from, end, PAGE)).await?;
        let reads = crate::link::reads(&answer);
        let found = reads.first().ok_or_else(|| crate::link::odd("an answer of another shape"))?;
        Ok((crate::link::revision(&answer)?, answer::places_in(found, keys).collect()))
    }
}
