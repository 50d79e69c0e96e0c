//! The transactions, and what their answers say.

use etcd_client::{
    Compare, CompareOp, DeleteOptions, GetOptions, GetResponse, KeyValue, PutOptions, SortOrder, SortTarget, Txn,
    TxnOp, TxnOpResponse, TxnResponse,
};
use tenure_core::{Error, ErrorKind, OwnerToken, Result};

use crate::keys::NameKeys;
use crate::record::Record;
use crate::tickets::Place;

/// A hold as it stands in etcd.
#[derive(Clone, Debug)]
pub(crate) struct HoldSeen {
    /// `None` if somebody else wrote it.
    pub(crate) record: Option<Record>,
    /// The revision in which it was granted.
    pub(crate) fence: i64,
    /// The revision in which it was last written.
    pub(crate) written: i64,
    pub(crate) lease: i64,
}

/// A name at one revision, as one token sees it.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) revision: i64,
    pub(crate) hold: Option<HoldSeen>,
    /// The token's own place.
    pub(crate) place: Option<Place>,
    /// The queue in order, as far as it was asked for.
    pub(crate) queue: Vec<(i64, OwnerToken)>,
    pub(crate) extent: Extent,
}

/// How much of a queue to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    Head,
    All,
}

/// The answer to a conditional change.
#[derive(Debug)]
pub(crate) enum Tried<T> {
    /// It was made, in this revision.
    Done(i64),
    /// It was not; this is how things stand.
    Not(T),
}

impl Seen {
    /// Whether the lock is free and the token the first in line.
    pub(crate) fn is_next(&self, token: &OwnerToken) -> bool {
        self.hold.is_none() && self.queue.first().is_some_and(|(_, first)| first == token)
    }

    /// How many are before the token, if the whole queue was read.
    pub(crate) fn position(&self, token: &OwnerToken) -> Option<u32> {
        let known = self.extent == Extent::All || self.queue.first().is_some_and(|(_, first)| first == token);
        let at = self.queue.iter().position(|(_, other)| other == token).filter(|_| known)?;
        u32::try_from(at).ok()
    }
}

fn look(keys: &NameKeys, token: &OwnerToken, extent: Extent) -> Vec<TxnOp> {
    // The order must be given: without one, etcd applies the limit before it sorts.
    let mut queue = GetOptions::new().with_prefix().with_keys_only().with_sort(SortTarget::Create, SortOrder::Ascend);
    if extent == Extent::Head {
        queue = queue.with_limit(1);
    }
    vec![
        TxnOp::get(keys.hold(), None),
        TxnOp::get(keys.place(token), Some(GetOptions::new().with_keys_only())),
        TxnOp::get(keys.queue(), Some(queue)),
    ]
}

fn absent(key: Vec<u8>) -> Compare {
    Compare::create_revision(key, CompareOp::Equal, 0)
}

/// Reads and changes nothing.
pub(crate) fn just_look(keys: &NameKeys, token: &OwnerToken, extent: Extent) -> Txn {
    Txn::new().and_then(look(keys, token, extent))
}

/// Takes a lock that nobody holds and nobody waits for.
pub(crate) fn take_free(keys: &NameKeys, token: &OwnerToken, record: &Record, lease: i64) -> Txn {
    Txn::new()
        .when([absent(keys.hold()), absent(keys.queue()).with_prefix()])
        .and_then([TxnOp::put(keys.hold(), record.encode(), Some(PutOptions::new().with_lease(lease)))])
        .or_else(look(keys, token, Extent::All))
}

/// Takes a free lock for the first in line: no place in the queue is older than the token's.
pub(crate) fn take_place(keys: &NameKeys, token: &OwnerToken, place: Place, record: &Record, lease: i64) -> Txn {
    Txn::new()
        .when([
            absent(keys.hold()),
            Compare::create_revision(keys.place(token), CompareOp::Equal, place.revision),
            Compare::create_revision(keys.queue(), CompareOp::Greater, place.revision - 1).with_prefix(),
        ])
        .and_then([
            TxnOp::put(keys.hold(), record.encode(), Some(PutOptions::new().with_lease(lease))),
            TxnOp::delete(keys.place(token), None),
        ])
        .or_else(look(keys, token, Extent::All))
}

/// Takes a place at the end of the queue, unless the token has one.
pub(crate) fn enqueue(keys: &NameKeys, token: &OwnerToken, lease: i64) -> Txn {
    let put = TxnOp::put(keys.place(token), "", Some(PutOptions::new().with_lease(lease)));
    let mut joined = vec![put];
    joined.extend(look(keys, token, Extent::All));
    Txn::new().when([absent(keys.place(token))]).and_then(joined).or_else(look(keys, token, Extent::All))
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

/// Deletes the hold that was granted in this revision, on whichever lease it is.
pub(crate) fn end(keys: &NameKeys, granted: i64) -> Txn {
    Txn::new()
        .when([Compare::create_revision(keys.hold(), CompareOp::Equal, granted)])
        .and_then([TxnOp::delete(keys.hold(), None::<DeleteOptions>)])
}

/// Reads the holds of several names.
pub(crate) fn holds<'a>(names: impl IntoIterator<Item = &'a NameKeys>) -> Txn {
    Txn::new().and_then(names.into_iter().map(|keys| TxnOp::get(keys.hold(), None)).collect::<Vec<_>>())
}

/// Reads a hold and counts its queue.
pub(crate) fn inspect(keys: &NameKeys) -> Txn {
    let count = GetOptions::new().with_prefix().with_count_only();
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

pub(crate) fn seen(answer: &TxnResponse, keys: &NameKeys, extent: Extent) -> Result<Seen> {
    let reads = reads(answer);
    let [hold, place, queue] = reads.as_slice() else { return Err(odd("an answer of another shape")) };
    let waiter = |key: &KeyValue| keys.whose(key.key()).map(|token| (key.create_revision(), token));
    Ok(Seen {
        revision: revision(answer)?,
        hold: hold_in(hold),
        place: place.kvs().first().map(|key| Place { revision: key.create_revision(), lease: key.lease() }),
        queue: queue.kvs().iter().filter_map(waiter).collect(),
        extent,
    })
}

pub(crate) fn hold_in(found: &GetResponse) -> Option<HoldSeen> {
    found.kvs().first().map(|key| HoldSeen {
        record: Record::decode(key.value()),
        fence: key.create_revision(),
        written: key.mod_revision(),
        lease: key.lease(),
    })
}

pub(crate) fn odd(what: &'static str) -> Error {
    Error::new(ErrorKind::Protocol, what)
}
