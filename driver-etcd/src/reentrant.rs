//! Re-entrant locks: the hold's key lists its entries, and every change of the list is conditional on the revision that
//! it was read in.
//!
//! A re-entry moves the hold to a lease of its own, which is never shorter than the one before. So a hold hangs on the
//! lease of its latest entry, and undoing an earlier attempt can revoke that attempt's lease without harm to others.

use async_trait::async_trait;
use tenure_core::driver::{
    AcquireRequest, Acquisition, Begun, Exited, OwnerScope, ReentrantCapabilities, ReentrantEntry, ReentrantHold,
    ReentrantLock, Renewed, Ttl,
};
use tenure_core::{Error, ErrorKind, OwnerId, Result};

use crate::answer::{self, HoldSeen, Tried};
use crate::ask::{Ask, Resolved};
use crate::driver::EtcdDriver;
use crate::grants::{Lease, seconds};
use crate::inner::Inner;
use crate::keys::NameKeys;
use crate::record::Record;
use crate::renew::{Renewable, Whose};
use crate::txn::{self, On};

#[async_trait]
impl ReentrantLock for EtcdDriver {
    fn capabilities(&self) -> ReentrantCapabilities {
        ReentrantCapabilities::new(OwnerScope::Backend, self.inner.config.max_depth)
    }

    async fn enter(&self, owner: &OwnerId, request: &AcquireRequest) -> Result<Acquisition> {
        self.inner.ask(Some(*owner), request).await
    }

    async fn renew(&self, ttl: Ttl, holds: &[ReentrantHold]) -> Vec<Result<Renewed>> {
        let renewable = |hold: &ReentrantHold| Renewable {
            keys: self.inner.keys(&hold.name),
            whose: Whose::Owner(hold.owner, hold.fence),
        };
        self.inner.renew(ttl, holds.iter().map(renewable).collect()).await
    }

    /// Two requests, and one more for the last entry.
    async fn exit(&self, hold: &ReentrantEntry) -> Result<Exited> {
        let keys = self.inner.keys(&hold.name);
        let left = self.inner.leave(&keys, hold).await?;
        // What else was made for this entry, and does not carry the hold of the others.
        let mut spare = self.inner.tickets.leases(&hold.token);
        spare.retain(|lease| Some(*lease) != left.carrier);
        self.inner.revoke_all(spare).await?;
        self.inner.tickets.forget(&hold.token);
        Ok(left.exited)
    }

    async fn abandon(&self, hold: &ReentrantEntry) -> Result<()> {
        self.inner.abandon(Some(hold.owner), &hold.name, &hold.token).await
    }
}

impl Ask<'_> {
    /// Adds an entry to the owner's hold.
    pub(crate) async fn enter_again(&self, mut hold: HoldSeen, mut lease: Option<Lease>) -> Result<Resolved> {
        loop {
            let Some(record) = hold.record.clone().filter(|record| record.owner == self.owner) else {
                self.give_up(lease).await?;
                return Ok(Resolved::StartOver);
            };
            if record.has(self.owner, self.token()) {
                return self.earlier(&hold, &record, lease).await.map(Resolved::Answer);
            }
            let deepest = self.inner.config.max_depth;
            if record.depth() >= deepest {
                self.give_up(lease).await?;
                let text = format!("the owner has entered {deepest} times already");
                return Err(Error::new(ErrorKind::LimitReached, text));
            }
            // A lease that has run out may not be revoked yet, and a hold on it must not come back to life. Keeping it
            // alive is the proof; etcd refuses it for a lease that has run out, and for one that another entry, which
            // has moved the hold to its own, has revoked.
            if !self.inner.leases.keep_alive(hold.lease).await? {
                match self.inner.hold(self.keys).await? {
                    Some(moved) if moved.lease != hold.lease => {
                        hold = moved;
                        continue;
                    }
                    _ => {
                        self.give_up(lease).await?;
                        return Ok(Resolved::StartOver);
                    }
                }
            }
            let secs = self.secs.max(record.lease_secs);
            let carrier = match lease.take() {
                Some(lease) if lease.secs >= secs => lease,
                shorter => {
                    self.give_up(shorter).await?;
                    self.lease(secs).await?
                }
            };
            let deeper = record.with(*self.token(), &carrier);
            match self.inner.change(txn::rewrite(self.keys, &hold, &deeper, On::Lease(carrier.id))).await? {
                Tried::Done(_) => return self.entered(&hold, &deeper, carrier).await.map(Resolved::Answer),
                Tried::Not(Some(now)) => (hold, lease) = (now, Some(carrier)),
                Tried::Not(None) => {
                    self.give_up(Some(carrier)).await?;
                    return Ok(Resolved::StartOver);
                }
            }
        }
    }

    async fn entered(&self, before: &HoldSeen, now: &Record, lease: Lease) -> Result<Acquisition> {
        self.inner.tickets.set_hold(self.token(), lease.id, None);
        // The lease that carried the hold until now carries nothing any more; unrevoked it would end by itself.
        let _ = self.inner.leases.revoke(before.lease).await;
        // A place that stays ends with the presence of its waiter.
        let _ = self.leave().await;
        self.grant(now, before.granted, seconds(lease.secs), Begun::Now)
    }

    async fn give_up(&self, lease: Option<Lease>) -> Result<()> {
        match lease {
            Some(lease) => self.inner.give_up(self.token(), lease.id).await.map(drop),
            None => Ok(()),
        }
    }
}

impl Inner {
    pub(crate) async fn hold(&self, keys: &NameKeys) -> Result<Option<HoldSeen>> {
        let answer = self.txn(txn::holds([keys])).await?;
        Ok(crate::link::reads(&answer).first().and_then(answer::hold_in))
    }

    /// Changes a hold if it is still as it was seen.
    pub(crate) async fn change(&self, txn: etcd_client::Txn) -> Result<Tried<Option<HoldSeen>>> {
        let answer = self.txn(txn).await?;
        if answer.succeeded() {
            return crate::link::revision(&answer).map(Tried::Done);
        }
        Ok(Tried::Not(crate::link::reads(&answer).first().and_then(answer::hold_in)))
    }

    /// Takes an entry out of the hold; the last one ends it.
    pub(crate) async fn leave(&self, keys: &NameKeys, entry: &ReentrantEntry) -> Result<Left> {
        let mut hold = self.hold(keys).await?;
        loop {
            let Some(seen) = hold else { return Ok(Left { exited: Exited::NotHeld, carrier: None }) };
            let Some(record) = seen.record.as_ref().filter(|record| record.owner == Some(entry.owner)) else {
                return Ok(Left { exited: Exited::NotHeld, carrier: None });
            };
            if !record.entries.contains(&entry.token) {
                return Ok(Left { exited: Exited::NotHeld, carrier: Some(seen.lease) });
            }
            let rest = record.without(&entry.token);
            let last = rest.entries.is_empty();
            let txn = if last { txn::delete(keys, &seen) } else { txn::rewrite(keys, &seen, &rest, On::SameLease) };
            match self.change(txn).await? {
                Tried::Done(_) if last => {
                    self.leases.revoke(seen.lease).await?;
                    self.tickets.end(&entry.token, seen.lease);
                    return Ok(Left { exited: Exited::Released, carrier: None });
                }
                Tried::Done(_) => {
                    return Ok(Left { exited: Exited::Inside { depth: rest.depth() }, carrier: Some(seen.lease) });
                }
                Tried::Not(now) => hold = now,
            }
        }
    }
}

/// What became of an entry, and on which lease its owner still holds the lock.
pub(crate) struct Left {
    pub(crate) exited: Exited,
    pub(crate) carrier: Option<i64>,
}
