//! Plain locks.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{join, join_all};
use tenure_core::driver::{
    AcquireRequest, Acquisition, DistributedLock, Exclusion, Fencing, ForceReleased, Hold, Holder, Inspection,
    Introspection, LockCapabilities, Released, Renewed, Ttl, TtlRange, Waiting, Watch,
};
use tenure_core::{FencingToken, LockName, OwnerToken, Result};

use crate::answer::{self, HoldSeen, Tried};
use crate::driver::EtcdDriver;
use crate::error::of_a_read;
use crate::fences::OF_A_GRANT;
use crate::grants::Revoked;
use crate::inner::{Inner, SHORTEST};
use crate::keys::NameKeys;
use crate::link::DRIVER;
use crate::renew::{Renewable, Whose};
use crate::tickets::On;
use crate::txn;

/// How many holds one renewal carries; etcd takes 128 operations in a transaction by default.
pub(crate) const RENEW_BATCH: usize = 100;

/// The ttls of a cluster with the default election timeout.
pub(crate) const fn ttls() -> TtlRange {
    TtlRange { min: SHORTEST, max: Ttl::MAX, granularity: Duration::from_secs(1) }
}

#[async_trait]
impl DistributedLock for EtcdDriver {
    fn driver(&self) -> &'static str {
        DRIVER
    }

    fn capabilities(&self) -> LockCapabilities {
        LockCapabilities::new(Exclusion::Consensus, Fencing::Strict, Waiting::Fifo, ttls())
            .with_introspection(Introspection::Ageless)
            .with_max_waiters(Some(self.inner.config.max_waiters))
            .with_renew_batch(RENEW_BATCH)
            .with_max_fences(OF_A_GRANT)
    }

    /// Two requests for a free lock: a lease, and the transaction. Three for a busy one that is not waited for. Joining
    /// a queue takes four, three more when this client does not wait yet, asking again one, and taking the lock in one's
    /// turn two.
    async fn acquire(&self, request: &AcquireRequest) -> Result<Acquisition> {
        self.inner.ask(None, request).await
    }

    /// One request for each lease, at the same time, and then one for all.
    async fn renew(&self, ttl: Ttl, holds: &[Hold]) -> Vec<Result<Renewed>> {
        let renewable = |hold: &Hold| Renewable { keys: self.inner.keys(&hold.name), whose: Whose::Token(hold.token) };
        self.inner.renew(ttl, holds.iter().map(renewable).collect()).await
    }

    /// One request: the hold is deleted, and its lease kept for the next; or its lease is revoked and the hold goes with
    /// it, once so much of it has passed that it is of no use any more.
    async fn release(&self, hold: &Hold) -> Result<Released> {
        self.inner.release(&self.inner.keys(&hold.name), &hold.token).await
    }

    async fn abandon(&self, hold: &Hold) -> Result<()> {
        self.inner.abandon(None, &hold.name, &hold.token).await
    }

    async fn watch(&self, name: &LockName, token: &OwnerToken) -> Result<Watch> {
        self.inner.link.ensure_open()?;
        let keys = self.inner.keys(name);
        let watch = self.inner.watcher.listen(self.inner.keyspace.encoded(&keys), *token);
        if self.inner.tickets.place(token).is_some() {
            self.inner.watcher.ensure_live().await?;
        }
        Ok(watch)
    }

    /// Two requests: the keys, and the rest of the lease.
    async fn inspect(&self, name: &LockName) -> Result<Inspection> {
        let answer = self.inner.txn(txn::inspect(&self.inner.keys(name))).await.map_err(of_a_read)?;
        let reads = crate::link::reads(&answer);
        let [hold, queue] = reads.as_slice() else { return Err(crate::link::odd("an answer of an unexpected form")) };
        let holder = match answer::hold_in(hold) {
            Some(hold) => self.inner.holder(hold).await.map_err(of_a_read)?,
            None => None,
        };
        Ok(Inspection::default().with_holder(holder).with_waiters(u32::try_from(queue.count()).unwrap_or(u32::MAX)))
    }

    /// Two requests: who holds it, and the deletion. Not a revocation: by the time that it arrived, the lease could
    /// carry another lock.
    async fn force_release(&self, name: &LockName, expected: Option<FencingToken>) -> Result<ForceReleased> {
        let keys = self.inner.keys(name);
        match self.inner.hold(&keys).await? {
            Some(seen) => self.inner.take_away(&keys, seen, expected).await,
            None => Ok(ForceReleased::NotHeld),
        }
    }

    async fn close(&self) {
        self.inner.session.close().await;
        let idle = self.inner.idle.take_all();
        // What cannot be revoked ends by itself.
        join_all(idle.iter().map(|lease| self.inner.leases.revoke(lease.id))).await;
        self.inner.signals.leave().await;
        // The link last: the revocations above need it.
        if self.inner.link.close() {
            self.inner.watcher.close().await;
            self.inner.crowds.close().await;
            self.inner.signals.close().await;
        }
    }
}

impl HoldSeen {
    fn is_of(&self, token: &OwnerToken) -> bool {
        self.record.as_ref().is_some_and(|record| record.has(None, token))
    }
}

impl Inner {
    /// Ends the hold of a token, and gives up its place and its other leases.
    pub(crate) async fn release(&self, keys: &NameKeys, token: &OwnerToken) -> Result<Released> {
        let on = match self.tickets.hold(token) {
            Some(on) => on,
            None => match self.hold(keys).await? {
                Some(seen) if seen.is_of(token) => On { lease: seen.lease, granted: None },
                _ => return Ok(Released::NotHeld),
            },
        };
        let mut spare = self.tickets.leases(token);
        spare.retain(|other| *other != on.lease);
        if let Some(waiting) = self.tickets.waiting(token) {
            self.session.leave(keys, &waiting).await?;
        }
        let (released, spared) = join(self.end(keys, token, on), self.revoke_all(spare)).await;
        let released = released?;
        spared?;
        // Last: if one of the requests fails, a repeated release or an abandonment still needs the ticket.
        self.tickets.forget(token);
        Ok(released)
    }

    /// Deletes a hold that was seen, of any holder.
    pub(crate) async fn take_away(
        &self,
        keys: &NameKeys,
        seen: HoldSeen,
        expected: Option<FencingToken>,
    ) -> Result<ForceReleased> {
        if expected.is_some_and(|fence| seen.fence() != Some(fence)) {
            return Ok(ForceReleased::Changed);
        }
        let (granted, mut hold) = (seen.granted, seen);
        loop {
            hold = match self.change(txn::delete(keys, &hold)).await? {
                Tried::Done(_) => return Ok(ForceReleased::Released),
                // The same hold, and its owner has just entered once more.
                Tried::Not(Some(now)) if now.granted == granted => now,
                // It has just ended.
                Tried::Not(_) if expected.is_none() => return Ok(ForceReleased::Released),
                Tried::Not(Some(_)) => return Ok(ForceReleased::Changed),
                Tried::Not(None) => return Ok(ForceReleased::NotHeld),
            };
        }
    }

    async fn end(&self, keys: &NameKeys, token: &OwnerToken, on: On) -> Result<Released> {
        let lease = on.lease;
        let free = self.tickets.free(token, lease, |lease| self.idle.wants(lease)).is_some();
        // A lease can serve again only if no request that puts something on it is without an answer. Otherwise it is
        // revoked, which also refuses that request.
        let Some(granted) = on.granted.filter(|_| free) else {
            return Ok(match self.leases.revoke(lease).await? {
                Revoked::Revoked => Released::Released,
                Revoked::Absent => Released::NotHeld,
            });
        };
        let ended = self.end_granted(keys, token, granted, lease).await?;
        self.give_back(token, lease).await?;
        Ok(if ended { Released::Released } else { Released::NotHeld })
    }

    /// Deletes the hold that was granted in this revision; returns whether it existed. It may be on another lease by
    /// now, after a renewal; but a value that another program has written there is not ours to delete.
    async fn end_granted(&self, keys: &NameKeys, token: &OwnerToken, granted: i64, lease: i64) -> Result<bool> {
        let mut tried = self.change(txn::end(keys, granted, lease)).await?;
        loop {
            let seen = match tried {
                Tried::Done(_) => return Ok(true),
                Tried::Not(Some(seen)) if seen.granted == granted && seen.is_of(token) => seen,
                Tried::Not(_) => return Ok(false),
            };
            tried = self.change(txn::delete(keys, &seen)).await?;
        }
    }

    /// The holder as operators see it; `None` if its lease has ended. For how long it has been held is not known: etcd
    /// stores no times, and a client's clock would not be the backend's.
    pub(crate) async fn holder(&self, hold: HoldSeen) -> Result<Option<Holder>> {
        let remaining = match hold.lease {
            0 => None,
            lease => match self.leases.remaining(lease).await? {
                Some(secs) => Some(Duration::from_secs(secs)),
                None => return Ok(None),
            },
        };
        let fence = hold.fence();
        Ok(Some(match hold.record {
            Some(record) => Holder::default()
                .with_depth(record.depth())
                .with_owner(record.owner)
                .with_label(record.label)
                .with_fence(fence)
                .with_remaining(remaining),
            None => Holder::default().with_remaining(remaining),
        }))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tenure_core::ErrorKind;
    use tenure_core::driver::LeaseInstant;

    use super::*;
    use crate::EtcdDriver;
    use crate::grants::new_id;
    use crate::keys::Spot;
    use crate::test_support::{served, unserved};
    use crate::tickets::Waiting as Waits;

    fn name() -> LockName {
        LockName::new("name").unwrap()
    }

    fn hold(token: OwnerToken) -> Hold {
        Hold::new(name(), token)
    }

    async fn held(driver: &EtcdDriver) -> OwnerToken {
        let request = AcquireRequest::new(name(), OwnerToken::random(), Ttl::DEFAULT);
        let granted = driver.acquire(&request).await.unwrap();
        assert!(matches!(granted, Acquisition::Granted(_)), "{granted:?}");
        request.token
    }

    impl Inner {
        async fn seen(&self) -> Option<HoldSeen> {
            self.hold(&self.keys(&name())).await.unwrap()
        }
    }

    #[tokio::test]
    async fn a_hold_is_given_back_by_whoever_has_its_token() {
        let (cluster, driver) = served();
        let other = EtcdDriver::new(cluster.url().parse().unwrap());
        let token = held(&driver).await;
        assert_eq!(other.release(&hold(OwnerToken::random())).await.unwrap(), Released::NotHeld);
        assert!(other.inner.seen().await.is_some_and(|seen| seen.is_of(&token)));
        assert_eq!(other.release(&hold(token)).await.unwrap(), Released::Released);
        assert!(other.inner.seen().await.is_none());
        assert_eq!(other.release(&hold(token)).await.unwrap(), Released::NotHeld);
    }

    /// The lease of the hold serves the next one; what else was made goes, and so does the place.
    #[tokio::test]
    async fn a_release_leaves_nothing_of_its_token_but_a_lease_for_later() {
        let (_cluster, driver) = served();
        let inner = &driver.inner;
        let token = held(&driver).await;
        let (lease, spare) = (inner.seen().await.unwrap().lease, new_id());
        inner.tickets.begin(&token, spare, 30).unwrap();
        inner.leases.grant(spare, 30).await.unwrap();
        let live = inner.session.ensure().await.unwrap();
        inner
            .tickets
            .set_waiting(Waits { spot: Spot { arrival: 1, token }, lease: live.lease, revision: None })
            .unwrap();
        assert_eq!(driver.release(&hold(token)).await.unwrap(), Released::Released);
        assert!(inner.lives(lease).await && !inner.lives(spare).await && !inner.tickets.know(&token));
        let whole = i64::try_from(Ttl::DEFAULT.get().as_secs()).unwrap();
        assert_eq!(inner.idle.take(whole, LeaseInstant::now()).map(|lease| lease.id), Some(lease));
        let late = inner.session.key(&live);
        let answer =
            inner.txn(etcd_client::Txn::new().and_then([etcd_client::TxnOp::get(late.key, None)])).await.unwrap();
        assert!(crate::link::reads(&answer)[0].kvs()[0].mod_revision() > late.written, "the request for it is refused");
    }

    /// Of a client that has given away what it was granted, or whose hold was written anew.
    #[tokio::test]
    async fn the_hold_of_a_grant_is_ended_and_no_later_one() {
        let (_cluster, driver) = served();
        let (inner, keys) = (&driver.inner, driver.inner.keys(&name()));
        let token = held(&driver).await;
        let seen = inner.seen().await.unwrap();
        let other = OwnerToken::random();
        for (token, granted) in [(token, seen.granted - 1), (other, seen.granted)] {
            assert!(!inner.end_granted(&keys, &token, granted, new_id()).await.unwrap());
            assert_eq!(inner.seen().await, Some(seen.clone()));
        }
        assert!(inner.end_granted(&keys, &token, seen.granted, new_id()).await.unwrap(), "it is on another lease");
        assert_eq!(inner.seen().await, None);
        assert!(!inner.end_granted(&keys, &token, seen.granted, seen.lease).await.unwrap());
    }

    /// A token with a place needs the watch at once; a token without one does not.
    #[tokio::test]
    async fn who_listens_again_for_its_place_has_the_watch() {
        let (_cluster, driver) = served();
        let inner = &driver.inner;
        let is_live = || inner.watcher.view().epoch() > 0;
        let token = OwnerToken::random();
        drop(driver.watch(&name(), &token).await.unwrap());
        assert!(!is_live());
        let spot = Spot { arrival: 1, token };
        inner.tickets.set_waiting(Waits { spot, lease: 7, revision: Some(2) }).unwrap();
        let mut watch = driver.watch(&name(), &token).await.unwrap();
        assert!(is_live());
        let live = inner.session.ensure().await.unwrap();
        let kept = inner.leases.grant(new_id(), 3_600).await.unwrap();
        inner.idle.put(kept, &inner.leases);
        driver.close().await;
        tokio::time::timeout(Duration::from_secs(10), watch.next()).await.expect("the watch is over");
        assert_eq!(driver.watch(&name(), &token).await.err().map(|error| error.kind()), Some(ErrorKind::Closed));
        let later = EtcdDriver::new(inner.config.clone());
        assert!(!later.inner.lives(live.lease).await && !later.inner.lives(kept.id).await);
        let unknown = driver.watch(&name(), &OwnerToken::random()).await;
        assert_eq!(unknown.err().map(|error| error.kind()), Some(ErrorKind::Closed));
        driver.close().await;
    }

    /// By the time that the deletion arrives, it may be another hold, or written anew.
    #[tokio::test]
    async fn a_forced_release_takes_away_the_hold_that_was_seen() {
        let (_cluster, driver) = served();
        let (inner, keys) = (&driver.inner, driver.inner.keys(&name()));
        for expects in [false, true] {
            held(&driver).await;
            let seen = inner.seen().await.unwrap();
            let expected = seen.fence().filter(|_| expects);
            let take = async || inner.take_away(&keys, seen.clone(), expected).await.unwrap();
            let rewrite = txn::rewrite(&keys, &seen, seen.record.as_ref().unwrap(), txn::On::SameLease);
            inner.change(rewrite).await.unwrap();
            assert_eq!(take().await, ForceReleased::Released, "it is the same one");
            assert!(inner.seen().await.is_none());
            let gone = if expects { ForceReleased::NotHeld } else { ForceReleased::Released };
            assert_eq!(take().await, gone);
            let token = held(&driver).await;
            let changed = if expects { ForceReleased::Changed } else { ForceReleased::Released };
            assert_eq!(take().await, changed);
            assert!(inner.seen().await.is_some_and(|seen| seen.is_of(&token)), "that is a later one");
            let now = inner.seen().await.unwrap();
            let another = inner.take_away(&keys, now, seen.fence()).await.unwrap();
            assert_eq!(another, ForceReleased::Changed, "that is another fence");
            let fence = inner.seen().await.unwrap().fence();
            assert_eq!(driver.force_release(&name(), fence).await.unwrap(), ForceReleased::Released);
        }
    }

    #[test]
    fn a_closed_driver_asks_nobody() {
        let driver = unserved();
        driver.inner.link.close();
        let (token, name) = (OwnerToken::random(), name());
        let abandoned = driver.abandon(&hold(token)).now_or_never().unwrap();
        assert_eq!(abandoned.unwrap_err().kind(), ErrorKind::Closed);
        assert!(driver.inner.tickets.ensure_alive(&token).is_ok(), "nothing was done");
        let request = AcquireRequest::new(name, token, Ttl::DEFAULT);
        assert_eq!(driver.acquire(&request).now_or_never().unwrap().unwrap_err().kind(), ErrorKind::Closed);
    }
}
