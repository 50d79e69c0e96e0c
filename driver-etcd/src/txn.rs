//! The transactions, and the reading of their answers.

use etcd_client::{Compare, CompareOp, DeleteOptions, GetOptions, PutOptions, Txn, TxnOp};

use crate::answer::{Head, HoldSeen};
use crate::fences::{Base, Fences};
use crate::grants::Lease;
use crate::keys::{NameKeys, Spot};
use crate::record::Record;
use crate::tickets::Place;

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
    /// Takes a lock without a holder and without waiters.
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

/// The key that a place is taken on condition of.
pub(crate) struct SessionKey {
    pub(crate) key: Vec<u8>,
    pub(crate) lease: i64,
    /// The revision in which it was last written, as far as is known.
    pub(crate) written: i64,
}

/// Takes a place, unless the token has it, or the session's key was written since it was last seen.
pub(crate) fn enqueue(keys: &NameKeys, spot: &Spot, session: &SessionKey) -> Txn {
    let own = keys.place(spot);
    let put = TxnOp::put(own.clone(), "", Some(PutOptions::new().with_lease(session.lease)));
    let count = GetOptions::new().with_range(keys.queue_end()).with_count_only();
    // Counted before the put, so that the place itself is not among the others.
    let mut joined = vec![TxnOp::get(keys.queue(), Some(count)), put];
    joined.extend(look(keys, Some(spot)));
    let mut refused = vec![TxnOp::get(session.key.as_slice(), Some(GetOptions::new().with_keys_only()))];
    refused.extend(look(keys, Some(spot)));
    let unwritten = Compare::mod_revision(session.key.as_slice(), CompareOp::Equal, session.written);
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

/// Deletes the hold that was granted in this revision, if it is still on that lease; else reads the present one.
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

#[cfg(test)]
mod tests {
    use tenure_core::{LockName, OwnerToken};

    use super::*;
    use crate::grants::new_id;
    use crate::link::revision;
    use crate::test_support::served;

    /// The client that takes it has found no waiters before; by the time that the transaction arrives there may be one.
    #[tokio::test]
    async fn a_free_lock_is_taken_by_nobody_for_whom_somebody_else_comes_first() {
        let (_cluster, driver) = served();
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
        let record =
            Record { owner: None, entries, lease_secs: 30, term: None, base: base.locks, permit: None, label: None };
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
