//! The state of a name, read from the answers to transactions.

use etcd_client::{GetResponse, KeyValue, TxnResponse};
use tenure_core::{FencingToken, OwnerToken, Result};

use crate::fences;
use crate::keys::{NameKeys, Spot};
use crate::link::{odd, reads, revision};
use crate::record::Record;
use crate::tickets::Place;

/// A hold, as read from etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HoldSeen {
    /// `None` if the value was not written by tenure.
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
    /// `None` if the key is no place: it was not written by tenure.
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
    /// It was not made; this is the current state.
    Not(T),
}

impl HoldSeen {
    /// The first fence of the grant; `None` if the value was not written by tenure.
    pub(crate) fn fence(&self) -> Option<FencingToken> {
        let record = self.record.as_ref()?;
        let grown = record.permit.and_then(|part| part.grown);
        fences::of_lock(record.base, grown.unwrap_or(self.granted)).ok()
    }
}

impl Seen {
    /// Whether the lock is free and the token the first in line.
    pub(crate) fn is_next(&self, token: &OwnerToken) -> bool {
        let first = self.head.as_ref().and_then(|head| head.spot);
        self.hold.is_none() && first.is_some_and(|first| first.token == *token)
    }

    /// Whether only a foreign key keeps a free lock from the token.
    pub(crate) fn is_obstructed(&self) -> bool {
        self.hold.is_none() && self.head.as_ref().is_some_and(|head| head.spot.is_none())
    }
}

pub(crate) fn seen(answer: &TxnResponse, keys: &NameKeys) -> Result<Seen> {
    seen_in(revision(answer)?, &reads(answer), keys)
}

/// The reason why a lock was not taken, and the answer to the read of the base.
pub(crate) fn not_taken(answer: &TxnResponse, keys: &NameKeys) -> Result<(Seen, GetResponse)> {
    let mut reads = reads(answer);
    let base = reads.pop().ok_or_else(|| odd("an answer of an unexpected form"))?;
    Ok((seen_in(revision(answer)?, &reads, keys)?, base))
}

pub(crate) fn enqueued(answer: &TxnResponse, keys: &NameKeys) -> Result<Enqueued> {
    let reads = reads(answer);
    let Some((first, look)) = reads.split_first() else { return Err(odd("an answer of an unexpected form")) };
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
        _ => return Err(odd("an answer of an unexpected form")),
    };
    let ahead = u32::try_from(ahead).unwrap_or(u32::MAX);
    Ok(Seen { revision, hold: hold_in(hold), head: places_in(head, keys).next(), place, ahead })
}

/// The places among the keys that were found. A key on no lease is no place.
pub(crate) fn places_in<'a>(found: &'a GetResponse, keys: &'a NameKeys) -> impl Iterator<Item = Head> + 'a {
    found.kvs().iter().map(|key| Head {
        key: key.key().to_vec(),
        revision: key.create_revision(),
        lease: key.lease(),
        spot: keys.whose(key.key()).filter(|_| key.lease() != 0),
    })
}

pub(crate) fn hold_in(found: &GetResponse) -> Option<HoldSeen> {
    found.kvs().first().map(hold_of)
}

pub(crate) fn hold_of(key: &KeyValue) -> HoldSeen {
    let mut record = Record::decode(key.value());
    if let Some(grown @ 0) = record.as_mut().and_then(|record| record.permit.as_mut()?.grown.as_mut()) {
        *grown = key.mod_revision();
    }
    HoldSeen { record, granted: key.create_revision(), written: key.mod_revision(), lease: key.lease() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_lock_is_for_the_first_in_line_and_out_of_reach_behind_a_foreign_key() {
        let (own, other) = (OwnerToken::random(), OwnerToken::random());
        let hold = HoldSeen { record: None, granted: 3, written: 3, lease: 7 };
        let place = |token| Some(Spot { arrival: 1, token });
        let first = |spot| Some(Head { key: b"key".to_vec(), revision: 4, lease: 7, spot });
        for (hold, head, is_next, is_obstructed) in [
            (None, first(place(own)), true, false),
            (None, first(place(other)), false, false),
            (None, first(None), false, true),
            (None, None, false, false),
            (Some(&hold), first(place(own)), false, false),
            (Some(&hold), first(None), false, false),
            (Some(&hold), None, false, false),
        ] {
            let seen = Seen { revision: 9, hold: hold.cloned(), head, place: None, ahead: 0 };
            assert_eq!((seen.is_next(&own), seen.is_obstructed()), (is_next, is_obstructed), "{seen:?}");
        }
        assert_eq!(hold.fence(), None, "somebody else wrote it");
    }
}
