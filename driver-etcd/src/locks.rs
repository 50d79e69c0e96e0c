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

/// How many holds one renewal carries; etcd takes 128 operations in a transaction, unless it is told otherwise.
const RENEW_BATCH: usize = 100;

#[async_trait]
impl DistributedLock for EtcdDriver {
    fn driver(&self) -> &'static str {
        DRIVER
    }

    fn capabilities(&self) -> LockCapabilities {
        let second = Duration::from_secs(1);
        LockCapabilities::new(
            Exclusion::Consensus,
            Fencing::Strict,
            Waiting::Fifo,
            TtlRange { min: SHORTEST, max: Ttl::MAX, granularity: second },
        )
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
        let on = match self.inner.tickets.hold(&hold.token) {
            Some(on) => on,
            None => match self.inner.hold(&self.inner.keys(&hold.name)).await? {
                Some(seen) if seen.is_of(&hold.token) => On { lease: seen.lease, granted: None },
                _ => return Ok(Released::NotHeld),
            },
        };
        let mut spare = self.inner.tickets.leases(&hold.token);
        spare.retain(|other| *other != on.lease);
        if let Some(waiting) = self.inner.tickets.waiting(&hold.token) {
            self.inner.session.leave(&self.inner.keys(&hold.name), &waiting).await?;
        }
        let (released, spared) = join(self.inner.end(hold, on), self.inner.revoke_all(spare)).await;
        let released = released?;
        spared?;
        self.inner.tickets.forget(&hold.token);
        Ok(released)
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
        let [hold, queue] = reads.as_slice() else { return Err(crate::link::odd("an answer of another shape")) };
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
        let Some(first) = self.inner.hold(&keys).await? else { return Ok(ForceReleased::NotHeld) };
        if expected.is_some_and(|fence| first.fence() != Some(fence)) {
            return Ok(ForceReleased::Changed);
        }
        let mut hold = first.clone();
        loop {
            hold = match self.inner.change(txn::delete(&keys, &hold)).await? {
                Tried::Done(_) => return Ok(ForceReleased::Released),
                // The same hold, and its owner has just entered once more.
                Tried::Not(Some(now)) if now.granted == first.granted => now,
                // It has just ended.
                Tried::Not(_) if expected.is_none() => return Ok(ForceReleased::Released),
                Tried::Not(Some(_)) => return Ok(ForceReleased::Changed),
                Tried::Not(None) => return Ok(ForceReleased::NotHeld),
            };
        }
    }

    async fn close(&self) {
        self.inner.session.close().await;
        let idle = self.inner.idle.take_all();
        // What cannot be revoked ends by itself.
        join_all(idle.iter().map(|lease| self.inner.leases.revoke(lease.id))).await;
        self.inner.signals.leave().await;
        if self.inner.link.close() {
            self.inner.watcher.close().await;
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
    async fn end(&self, hold: &Hold, on: On) -> Result<Released> {
        let (token, lease) = (&hold.token, on.lease);
        let free = self.tickets.free(token, lease, |lease| self.idle.wants(lease)).is_some();
        let Some(granted) = on.granted.filter(|_| free) else {
            return Ok(match self.leases.revoke(lease).await? {
                Revoked::Revoked => Released::Released,
                Revoked::Absent => Released::NotHeld,
            });
        };
        let ended = self.end_granted(&self.keys(&hold.name), token, granted, lease).await?;
        self.give_back(token, lease).await?;
        Ok(if ended { Released::Released } else { Released::NotHeld })
    }

    /// Deletes the hold that was granted in this revision; tells whether it stood. It may be on another lease by now, after a
    /// renewal; but what somebody else has written there is not ours to delete.
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
