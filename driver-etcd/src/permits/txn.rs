//! The transactions of permits.

use etcd_client::{Compare, CompareOp, GetOptions, PutOptions, Txn, TxnOp};
use tenure_core::OwnerToken;
use tenure_core::driver::Share;

use super::seen::{FRONT, Growing, Held, Own, Seen, Waiter, grow_value, place_value};
use crate::fences::{Base, Fences};
use crate::keys::{NameKeys, PermitKeys, Spot};
use crate::record::Record;
use crate::txn::SessionKey;

/// The keys of a name, and the token that asks.
#[derive(Clone, Copy)]
pub(super) struct Of<'a> {
    pub(super) keys: &'a PermitKeys,
    /// The same as the token uses them.
    pub(super) own: &'a NameKeys,
}

fn unchanged(from: Vec<u8>, to: Vec<u8>, since: i64) -> Compare {
    Compare::mod_revision(from, CompareOp::Less, since.saturating_add(1)).with_range(to)
}

fn same(key: Vec<u8>, written: i64) -> Compare {
    Compare::mod_revision(key, CompareOp::Equal, written)
}

impl Of<'_> {
    /// The reads that [`seen`](super::seen::seen) understands.
    fn looks(&self, spot: Option<&Spot>) -> Vec<TxnOp> {
        let holds = GetOptions::new().with_range(self.keys.holds_end());
        let front = GetOptions::new().with_range(self.own.queue_end()).with_limit(FRONT as i64);
        let mut looks = vec![TxnOp::get(self.keys.grow(), Some(holds)), TxnOp::get(self.own.queue(), Some(front))];
        if let Some(spot) = spot {
            let own = self.own.place(spot);
            let ahead = GetOptions::new().with_range(own.clone()).with_count_only();
            looks.push(TxnOp::get(own, None));
            looks.push(TxnOp::get(self.own.queue(), Some(ahead)));
        }
        looks
    }

    pub(super) fn look(&self, spot: Option<&Spot>) -> Txn {
        Txn::new().and_then(self.looks(spot))
    }

    /// No hold was written since, nor one that waits to weigh more.
    fn same_holds(&self, since: i64) -> Compare {
        unchanged(self.keys.grow(), self.keys.holds_end(), since)
    }

    /// Takes a share. Without `seen`: if the name has no keys at all. Otherwise it looks, after a look at the base.
    pub(super) fn take(
        &self,
        record: &Record,
        lease: i64,
        seen: Option<&Seen>,
        spot: Option<&Spot>,
        fences: &Fences,
        base: &Base,
    ) -> Txn {
        let mut when = vec![fences.unwritten(base)];
        let mut then = vec![TxnOp::put(self.own.hold(), record.encode(), Some(PutOptions::new().with_lease(lease)))];
        let since = seen.map_or(0, |seen| seen.revision);
        when.push(self.same_holds(since));
        match seen.and_then(|seen| seen.own) {
            Some(Own { place, .. }) => {
                let key = self.own.place(&place.spot);
                when.push(Compare::create_revision(key.clone(), CompareOp::Equal, place.revision));
                when.push(unchanged(self.own.queue(), key.clone(), since));
                then.push(TxnOp::delete(key, None));
            }
            None => when.push(unchanged(self.own.queue(), self.own.queue_end(), since)),
        }
        let mut instead = vec![fences.look()];
        instead.extend(self.looks(spot));
        Txn::new().when(when).and_then(then).or_else(instead)
    }

    /// Takes a place, unless the session's key was written since it was last seen; and looks, after a read of that key
    /// or of the number of other waiters.
    pub(super) fn join(&self, spot: &Spot, share: Share, session: &SessionKey) -> Txn {
        let key = self.own.place(spot);
        let others = GetOptions::new().with_range(self.own.queue_end()).with_count_only();
        let put = TxnOp::put(key.clone(), place_value(share), Some(PutOptions::new().with_lease(session.lease)));
        // Counted before the put, so that the place itself is not among the others.
        let mut joined = vec![TxnOp::get(self.own.queue(), Some(others)), put];
        joined.extend(self.looks(Some(spot)));
        let absent = Compare::create_revision(key, CompareOp::Equal, 0);
        Txn::new()
            .when([absent, same(session.key.clone(), session.written)])
            .and_then(joined)
            .or_else(self.or_session(session, Some(spot)))
    }

    fn or_session(&self, session: &SessionKey, spot: Option<&Spot>) -> Vec<TxnOp> {
        let mut refused = vec![TxnOp::get(session.key.as_slice(), Some(GetOptions::new().with_keys_only()))];
        refused.extend(self.looks(spot));
        refused
    }

    /// Removes places that leave their room alone, if they still do.
    pub(super) fn pass_over(&self, seen: &Seen, silent: &[Waiter]) -> Txn {
        let key = |waiter: &Waiter| self.own.place(&waiter.place.spot);
        let mut when: Vec<_> = silent
            .iter()
            .map(|waiter| Compare::create_revision(key(waiter), CompareOp::Equal, waiter.place.revision))
            .collect();
        when.push(self.same_holds(seen.revision));
        Txn::new().when(when).and_then(silent.iter().map(|waiter| TxnOp::delete(key(waiter), None)).collect::<Vec<_>>())
    }

    /// Rewrites a hold that has not changed. With `without`, it waits to weigh more no longer.
    pub(super) fn rewrite(&self, held: &Held, record: &Record, without: Option<&Growing>) -> Txn {
        let (when, then) = self.rewriting(held, record, without);
        Txn::new().when(when).and_then(then).or_else(self.looks(None))
    }

    fn rewriting(&self, held: &Held, record: &Record, without: Option<&Growing>) -> (Vec<Compare>, Vec<TxnOp>) {
        let options = PutOptions::new().with_ignore_lease();
        let mut when = vec![same(self.own.hold(), held.seen.written)];
        let mut then = vec![TxnOp::put(self.own.hold(), record.encode(), Some(options))];
        if let Some(growth) = without {
            when.push(same(self.keys.grow(), growth.written));
            then.push(TxnOp::delete(self.keys.grow(), None));
        }
        (when, then)
    }

    /// Makes a hold heavier, if no hold was written since. Otherwise it looks, after a look at the base.
    pub(super) fn grow(
        &self,
        seen: &Seen,
        held: &Held,
        record: &Record,
        without: Option<&Growing>,
        (fences, base): (&Fences, &Base),
    ) -> Txn {
        let (mut when, then) = self.rewriting(held, record, without);
        when.push(self.same_holds(seen.revision));
        when.push(fences.unwritten(base));
        let mut instead = vec![fences.look()];
        instead.extend(self.looks(None));
        Txn::new().when(when).and_then(then).or_else(instead)
    }

    /// Lets a hold wait to weigh more, instead of the last one that did; and looks.
    pub(super) fn wait_to_grow(
        &self,
        token: &OwnerToken,
        held: &Held,
        record: &Record,
        to: Share,
        last: i64,
        session: &SessionKey,
    ) -> Txn {
        let (mut when, mut then) = self.rewriting(held, record, None);
        when.push(same(session.key.clone(), session.written));
        when.push(same(self.keys.grow(), last));
        let lease = PutOptions::new().with_lease(session.lease);
        then.push(TxnOp::put(self.keys.grow(), grow_value(to, token), Some(lease)));
        then.extend(self.looks(None));
        Txn::new().when(when).and_then(then).or_else(self.or_session(session, None))
    }
}
