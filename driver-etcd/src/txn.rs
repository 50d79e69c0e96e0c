//! The transactions, and what their answers say.

use etcd_client::{
    Compare, CompareOp, DeleteOptions, GetOptions, GetResponse, KeyValue, PutOptions, Txn, TxnOp, TxnOpResponse,
    TxnResponse,
};
use tenure_core::{Error, ErrorKind, FencingToken, OwnerToken, Result};

use crate::fences::{self, Base, Fences};
use crate::grants::Lease;
use crate::keys::{NameKeys, Spot};
use crate::record::Record;
use crate::session::Live;
use crate::tickets::Place;

/// A hold as it stands in etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HoldSeen {
    /// `None` if somebody else wrote it.
    pub(crate) record: Option<Record>,
    /// The revision in which it was granted.
    pub(crate) granted: i64,
    /// The revision in which it was last written.
    pub(crate) written: i64,
    pub(crate) lease: i64,
}

/// A name at one revision, as one token sees it.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) revision: i64,
    pub(crate) hold: Option<HoldSeen>,
    /// The first key among the places.
    pub(crate) head: Option<Head>,
    /// The token's own place.
    pub(crate) place: Option<Place>,
    /// How many keys are before the token's own.
    pub(crate) ahead: u32,
}

/// A key among the places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) key: Vec<u8>,
    pub(crate) revision: i64,
    pub(crate) lease: i64,
    /// `None` if it is no place: somebody else wrote it.
    pub(crate) spot: Option<Spot>,
}

/// What a request for a place found.
#[derive(Debug)]
pub(crate) struct Enqueued {
    pub(crate) seen: Seen,
    /// How many keys were among the places before this request made one; `None` if it made none.
    pub(crate) others: Option<i64>,
    /// The revision in which the session's key was last written, if it is there.
    pub(crate) session: Option<i64>,
}

/// The answer to a conditional change.
#[derive(Debug)]
pub(crate) enum Tried<T> {
    /// It was made, in this revision.
    Done(i64),
    /// It was not; this is how things stand.
    Not(T),
}

impl HoldSeen {
    /// The first fence of the grant; `None` if somebody else wrote it.
    pub(crate) fn fence(&self) -> Option<FencingToken> {
        fences::of_lock(self.record.as_ref()?.base, self.granted).ok()
    }
}

impl Seen {
    /// Whether the lock is free and the token the first in line.
    pub(crate) fn is_next(&self, token: &OwnerToken) -> bool {
        let first = self.head.as_ref().and_then(|head| head.spot);
        self.hold.is_none() && first.is_some_and(|first| first.token == *token)
    }

    /// Whether only somebody else's key keeps a free lock from the token.
    pub(crate) fn is_obstructed(&self) -> bool {
        self.hold.is_none() && self.head.as_ref().is_some_and(|head| head.spot.is_none())
    }
}

/// Reads of constant size, however many wait. The keys are in the order of the places; a sort by revision would make etcd
/// read them all, and its counts leave bounds on revisions aside.
fn look(keys: &NameKeys, spot: Option<&Spot>) -> Vec<TxnOp> {
    let first = GetOptions::new().with_range(keys.queue_end()).with_keys_only().with_limit(1);
    let mut look = vec![TxnOp::get(keys.hold(), None), TxnOp::get(keys.queue(), Some(first))];
    if let Some(spot) = spot {
        let own = keys.place(spot);
        let ahead = GetOptions::new().with_range(own.clone()).with_count_only();
        look.push(TxnOp::get(own, Some(GetOptions::new().with_keys_only())));
        look.push(TxnOp::get(keys.queue(), Some(ahead)));
    }
    look
}

fn absent(key: Vec<u8>) -> Compare {
    Compare::create_revision(key, CompareOp::Equal, 0)
}

/// No place is before this key, but for keys that were there in `foreign`; 0 for none at all.
fn nobody_before(keys: &NameKeys, end: Vec<u8>, foreign: i64) -> Compare {
    Compare::create_revision(keys.queue(), CompareOp::Less, foreign.saturating_add(1)).with_range(end)
}

/// Reads and changes nothing.
pub(crate) fn just_look(keys: &NameKeys, spot: Option<&Spot>) -> Txn {
    Txn::new().and_then(look(keys, spot))
}

/// What taking a lock writes, and under which base of fences.
pub(crate) struct Take<'a> {
    pub(crate) keys: &'a NameKeys,
    pub(crate) record: &'a Record,
    pub(crate) lease: Lease,
    pub(crate) fences: &'a Fences,
    pub(crate) base: &'a Base,
}

impl Take<'_> {
    /// Takes a lock that nobody holds and nobody waits for.
    pub(crate) fn free(&self, spot: Option<&Spot>, foreign: i64) -> Txn {
        let nobody = nobody_before(self.keys, self.keys.queue_end(), foreign);
        self.unless(spot, vec![nobody], vec![])
    }

    /// Takes a free lock for the first in line.
    pub(crate) fn place(&self, place: &Place, foreign: i64) -> Txn {
        let own = self.keys.place(&place.spot);
        let same = Compare::create_revision(own.clone(), CompareOp::Equal, place.revision);
        let nobody = nobody_before(self.keys, own.clone(), foreign);
        self.unless(Some(&place.spot), vec![same, nobody], vec![TxnOp::delete(own, None)])
    }

    /// Otherwise it looks at the name, and last at the base.
    fn unless(&self, spot: Option<&Spot>, also: Vec<Compare>, and: Vec<TxnOp>) -> Txn {
        let hold =
            TxnOp::put(self.keys.hold(), self.record.encode(), Some(PutOptions::new().with_lease(self.lease.id)));
        let mut instead = look(self.keys, spot);
        instead.push(self.fences.look());
        Txn::new()
            .when([vec![absent(self.keys.hold()), self.fences.unwritten(self.base)], also].concat())
            .and_then([vec![hold], and].concat())
            .or_else(instead)
    }
}

/// Takes a place, unless the token has it, or the session's key was written since it was last seen.
pub(crate) fn enqueue(keys: &NameKeys, spot: &Spot, session: Vec<u8>, live: &Live) -> Txn {
    let own = keys.place(spot);
    let put = TxnOp::put(own.clone(), "", Some(PutOptions::new().with_lease(live.lease)));
    let count = GetOptions::new().with_range(keys.queue_end()).with_count_only();
    let mut joined = vec![TxnOp::get(keys.queue(), Some(count)), put];
    joined.extend(look(keys, Some(spot)));
    let mut refused = vec![TxnOp::get(session.clone(), Some(GetOptions::new().with_keys_only()))];
    refused.extend(look(keys, Some(spot)));
    let unwritten = Compare::mod_revision(session, CompareOp::Equal, live.written);
    Txn::new().when([absent(own), unwritten]).and_then(joined).or_else(refused)
}

/// Ends a place, if it is still the same.
pub(crate) fn end_place(key: Vec<u8>, revision: i64) -> Txn {
    Txn::new()
        .when([Compare::create_revision(key.clone(), CompareOp::Equal, revision)])
        .and_then([TxnOp::delete(key, None)])
}

/// Takes these places away, the first of which leaves a free lock alone, if things are still so.
pub(crate) fn evict(keys: &NameKeys, first: &Head, places: impl IntoIterator<Item = Head>) -> Txn {
    let delete = |place: Head| TxnOp::delete(place.key, None);
    Txn::new()
        .when([absent(keys.hold()), Compare::create_revision(first.key.clone(), CompareOp::Equal, first.revision)])
        .and_then(places.into_iter().map(delete).collect::<Vec<_>>())
}

/// Reads some of the places between these keys, from the front.
pub(crate) fn front(from: Vec<u8>, end: Vec<u8>, most: usize) -> Txn {
    let some = GetOptions::new().with_range(end).with_keys_only().with_limit(i64::try_from(most).unwrap_or(i64::MAX));
    Txn::new().and_then([TxnOp::get(from, Some(some))])
}

/// Which lease a rewritten hold is on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum On {
    SameLease,
    Lease(i64),
}

/// Rewrites a hold that has not changed since it was seen.
pub(crate) fn rewrite(keys: &NameKeys, seen: &HoldSeen, record: &Record, on: On) -> Txn {
    let options = match on {
        On::SameLease => PutOptions::new().with_ignore_lease(),
        On::Lease(lease) => PutOptions::new().with_lease(lease),
    };
    Txn::new()
        .when([Compare::mod_revision(keys.hold(), CompareOp::Equal, seen.written)])
        .and_then([TxnOp::put(keys.hold(), record.encode(), Some(options))])
        .or_else([TxnOp::get(keys.hold(), None)])
}

/// Deletes a hold that has not changed since it was seen.
pub(crate) fn delete(keys: &NameKeys, seen: &HoldSeen) -> Txn {
    Txn::new()
        .when([Compare::mod_revision(keys.hold(), CompareOp::Equal, seen.written)])
        .and_then([TxnOp::delete(keys.hold(), None::<DeleteOptions>)])
        .or_else([TxnOp::get(keys.hold(), None)])
}

/// Deletes the hold that was granted in this revision, if it is still on that lease; else tells what stands there.
pub(crate) fn end(keys: &NameKeys, granted: i64, lease: i64) -> Txn {
    Txn::new()
        .when([
            Compare::create_revision(keys.hold(), CompareOp::Equal, granted),
            Compare::lease(keys.hold(), CompareOp::Equal, lease),
        ])
        .and_then([TxnOp::delete(keys.hold(), None::<DeleteOptions>)])
        .or_else([TxnOp::get(keys.hold(), None)])
}

/// Reads the holds of several names.
pub(crate) fn holds<'a>(names: impl IntoIterator<Item = &'a NameKeys>) -> Txn {
    Txn::new().and_then(names.into_iter().map(|keys| TxnOp::get(keys.hold(), None)).collect::<Vec<_>>())
}

/// Reads a hold and counts its queue.
pub(crate) fn inspect(keys: &NameKeys) -> Txn {
    let count = GetOptions::new().with_range(keys.queue_end()).with_count_only();
    Txn::new().and_then([TxnOp::get(keys.hold(), None), TxnOp::get(keys.queue(), Some(count))])
}

pub(crate) fn revision(answer: &TxnResponse) -> Result<i64> {
    answer.header().map(etcd_client::ResponseHeader::revision).ok_or_else(|| odd("an answer without a header"))
}

/// The raft term in which an answer was given: that of the leader that served it, or a later one.
pub(crate) fn term(answer: &TxnResponse) -> Result<u64> {
    answer.header().map(etcd_client::ResponseHeader::raft_term).ok_or_else(|| odd("an answer without a header"))
}

/// What the reads of an answer found, in order. Writes have none.
pub(crate) fn reads(answer: &TxnResponse) -> Vec<GetResponse> {
    let read = |part| match part {
        TxnOpResponse::Get(found) => Some(found),
        _ => None,
    };
    answer.op_responses().into_iter().filter_map(read).collect()
}

pub(crate) fn seen(answer: &TxnResponse, keys: &NameKeys) -> Result<Seen> {
    seen_in(revision(answer)?, &reads(answer), keys)
}

/// What a lock was not taken for, and what was read of the base.
pub(crate) fn not_taken(answer: &TxnResponse, keys: &NameKeys) -> Result<(Seen, GetResponse)> {
    let mut reads = reads(answer);
    let base = reads.pop().ok_or_else(|| odd("an answer of another shape"))?;
    Ok((seen_in(revision(answer)?, &reads, keys)?, base))
}

pub(crate) fn enqueued(answer: &TxnResponse, keys: &NameKeys) -> Result<Enqueued> {
    let reads = reads(answer);
    let Some((first, look)) = reads.split_first() else { return Err(odd("an answer of another shape")) };
    let seen = seen_in(revision(answer)?, look, keys)?;
    Ok(match answer.succeeded() {
        true => Enqueued { seen, others: Some(first.count()), session: None },
        false => Enqueued { seen, others: None, session: first.kvs().first().map(KeyValue::mod_revision) },
    })
}

fn seen_in(revision: i64, reads: &[GetResponse], keys: &NameKeys) -> Result<Seen> {
    let (hold, head, place, ahead) = match reads {
        [hold, head] => (hold, head, None, 0),
        [hold, head, own, ahead] => {
            let spot = own.kvs().first().and_then(|key| Some((keys.whose(key.key())?, key)));
            let place = spot.map(|(spot, key)| Place { spot, revision: key.create_revision(), lease: key.lease() });
            (hold, head, place, ahead.count())
        }
        _ => return Err(odd("an answer of another shape")),
    };
    let ahead = u32::try_from(ahead).unwrap_or(u32::MAX);
    Ok(Seen { revision, hold: hold_in(hold), head: places_in(head, keys).next(), place, ahead })
}

/// The keys that were found among the places. What is on no lease is no place.
pub(crate) fn places_in<'a>(found: &'a GetResponse, keys: &'a NameKeys) -> impl Iterator<Item = Head> + 'a {
    found.kvs().iter().map(|key| Head {
        key: key.key().to_vec(),
        revision: key.create_revision(),
        lease: key.lease(),
        spot: keys.whose(key.key()).filter(|_| key.lease() != 0),
    })
}

pub(crate) fn hold_in(found: &GetResponse) -> Option<HoldSeen> {
    found.kvs().first().map(|key| HoldSeen {
        record: Record::decode(key.value()),
        granted: key.create_revision(),
        written: key.mod_revision(),
        lease: key.lease(),
    })
}

pub(crate) fn odd(what: &'static str) -> Error {
    Error::new(ErrorKind::Protocol, what)
}

#[cfg(test)]
mod tests {
    use tenure_core::LockName;
    use tenure_testkit::{EtcdCluster, EtcdOptions};

    use super::*;
    use crate::EtcdDriver;
    use crate::grants::new_id;

    /// Whoever takes it has found out before that nobody waits; by the time that the transaction arrives somebody may.
    #[tokio::test]
    async fn a_free_lock_is_taken_by_nobody_for_whom_somebody_else_comes_first() {
        let cluster = EtcdCluster::single(EtcdOptions::new()).unwrap();
        let driver = EtcdDriver::new(cluster.url().parse().unwrap());
        let inner = &driver.inner;
        let keys = inner.keys(&LockName::new("name").unwrap());
        let (base, lease) = (inner.fences.base().await.unwrap(), inner.leases.grant(new_id(), 30).await.unwrap());
        let spot = |arrival| Spot { arrival, token: OwnerToken::random() };
        let join = async |spot: &Spot| {
            let put = TxnOp::put(keys.place(spot), "", Some(PutOptions::new().with_lease(lease.id)));
            let revision = revision(&inner.txn(Txn::new().and_then([put])).await.unwrap()).unwrap();
            Place { spot: *spot, revision, lease: lease.id }
        };
        let (second, entries) = (join(&spot(2)).await, vec![OwnerToken::random()]);
        let first = join(&spot(1)).await;
        let record = Record { owner: None, entries, lease_secs: 30, term: None, base: base.locks, label: None };
        let take = Take { keys: &keys, record: &record, lease, fences: &inner.fences, base: &base };
        let is_taken = async |txn| inner.txn(txn).await.unwrap().succeeded();
        assert!(!is_taken(take.free(None, 0)).await, "two wait");
        assert!(!is_taken(take.place(&second, 0)).await, "it joined first, and has come second");
        assert!(!is_taken(take.place(&Place { revision: second.revision, ..first }, 0)).await, "that place is over");
        assert!(is_taken(end_place(keys.place(&first.spot), first.revision)).await);
        assert!(!is_taken(take.free(None, 0)).await, "one waits");
        assert!(is_taken(take.place(&second, 0)).await);
        assert!(!is_taken(take.free(None, 0)).await, "it is held");
    }
}
