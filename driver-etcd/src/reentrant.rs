//! Re-entrant locks: the hold's key lists its entries, and every change of the list is conditional on the revision that
//! was read.
//!
//! A re-entry moves the hold to a new lease, which is never shorter than the one before. So a hold is on the lease of
//! its latest entry, and undoing an earlier attempt can revoke that attempt's lease without harm to other entries.

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
        // The entry before its leases: only then is it known which lease carries the entries that remain.
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
                let text = format!("the owner has entered {deepest} times already, the maximum depth");
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
            // The last entry deletes on condition that no other one has joined; a revocation would end that one as
            // well.
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

#[cfg(test)]
mod tests {
    use tenure_core::{LockName, OwnerToken};

    use super::*;
    use crate::grants::{Revoked, new_id};
    use crate::test_support::served;

    fn name() -> LockName {
        LockName::new("name").unwrap()
    }

    fn request() -> AcquireRequest {
        AcquireRequest::new(name(), OwnerToken::random(), Ttl::DEFAULT)
    }

    fn entry(owner: OwnerId, request: &AcquireRequest) -> ReentrantEntry {
        ReentrantEntry::new(name(), owner, request.token)
    }

    impl Inner {
        async fn enter(&self, owner: OwnerId, request: &AcquireRequest) -> HoldSeen {
            let entered = self.ask(Some(owner), request).await.unwrap();
            assert!(matches!(entered, Acquisition::Granted(_)), "{entered:?}");
            self.hold(&self.keys(&name())).await.unwrap().unwrap()
        }
    }

    fn depth(resolved: Resolved) -> Option<u32> {
        match resolved {
            Resolved::Answer(Acquisition::Granted(grant)) => Some(grant.depth),
            _ => None,
        }
    }

    #[tokio::test]
    async fn an_exit_gives_back_what_was_made_for_the_entry_and_nothing_that_carries_others() {
        let (_cluster, driver) = served();
        let (inner, owner) = (&driver.inner, OwnerId::new());
        let [first, second] = [request(), request()];
        let spare = async |request: &AcquireRequest| {
            let id = new_id();
            inner.tickets.begin(&request.token, id, 30).unwrap();
            inner.leases.grant(id, 30).await.unwrap().id
        };
        inner.enter(owner, &first).await;
        let carrier = inner.enter(owner, &second).await.lease;
        assert_eq!(inner.tickets.hold(&second.token).map(|on| on.lease), Some(carrier));
        let spares = [spare(&first).await, spare(&second).await];
        assert_eq!(driver.exit(&entry(owner, &second)).await.unwrap(), Exited::Inside { depth: 1 });
        assert!(inner.lives(carrier).await && !inner.lives(spares[1]).await && inner.lives(spares[0]).await);
        assert!(!inner.tickets.know(&second.token) && inner.tickets.know(&first.token));
        assert_eq!(driver.exit(&entry(owner, &first)).await.unwrap(), Exited::Released);
        assert!(!inner.lives(carrier).await && !inner.lives(spares[0]).await && !inner.tickets.know(&first.token));
        assert_eq!(driver.exit(&entry(owner, &first)).await.unwrap(), Exited::NotHeld);
    }

    #[tokio::test]
    async fn a_lease_that_is_long_enough_carries_the_hold_and_a_shorter_one_is_given_up() {
        let (_cluster, driver) = served();
        let (inner, keys, owner) = (&driver.inner, driver.inner.keys(&name()), OwnerId::new());
        inner.enter(owner, &request()).await;
        let whole = i64::try_from(Ttl::DEFAULT.as_millis() / 1000).unwrap();
        for (number, (secs, serves)) in (2..).zip([(whole - 1, false), (whole, true), (whole + 1, true)]) {
            let next = request();
            let ask = Ask::new(inner, &keys, Some(owner), &next).unwrap();
            let before = inner.hold(&keys).await.unwrap().unwrap();
            let lease = ask.lease(secs).await.unwrap();
            assert_eq!(depth(ask.enter_again(before.clone(), Some(lease)).await.unwrap()), Some(number));
            let now = inner.hold(&keys).await.unwrap().unwrap();
            assert_eq!((now.lease == lease.id, inner.lives(lease.id).await), (serves, serves));
            assert!(inner.tickets.leases(&next.token) == [now.lease] && !inner.lives(before.lease).await);
            let again = ask.enter_again(now.clone(), None).await.unwrap();
            assert_eq!(depth(again), Some(number), "it is in already");
            assert_eq!(inner.hold(&keys).await.unwrap(), Some(now));
        }
    }

    /// The hold has changed since it was read: the lease that was made is not kept.
    #[tokio::test]
    async fn an_owner_whose_hold_has_moved_enters_it_and_one_whose_hold_is_gone_starts_over() {
        let (_cluster, driver) = served();
        let (inner, keys, owner) = (&driver.inner, driver.inner.keys(&name()), OwnerId::new());
        let first = request();
        let held = inner.enter(owner, &first).await;
        let again = async |owner, seen: &HoldSeen| {
            let next = request();
            let ask = Ask::new(inner, &keys, Some(owner), &next).unwrap();
            let lease = ask.lease(30).await.unwrap();
            let depth = depth(ask.enter_again(seen.clone(), Some(lease)).await.unwrap());
            let kept = inner.tickets.leases(&next.token).len();
            (depth, kept, inner.lives(lease.id).await)
        };
        assert_eq!(again(OwnerId::new(), &held).await, (None, 0, false), "that is another owner's");
        let moved = HoldSeen { lease: new_id(), ..held.clone() };
        assert_eq!(again(owner, &moved).await, (Some(2), 1, true));
        let now = inner.hold(&keys).await.unwrap().unwrap();
        let changed =
            inner.change(txn::rewrite(&keys, &held, now.record.as_ref().unwrap(), On::SameLease)).await.unwrap();
        assert!(matches!(changed, Tried::Not(Some(seen)) if seen == now), "it was written since");
        inner.change(txn::delete(&keys, &now)).await.unwrap();
        assert!(inner.lives(now.lease).await);
        assert_eq!(again(owner, &now).await, (None, 0, false), "its lease lives, and it is gone");
        assert_eq!(inner.leases.revoke(now.lease).await.unwrap(), Revoked::Revoked);
        assert_eq!(again(owner, &now).await, (None, 0, false));
        assert_eq!(inner.hold(&keys).await.unwrap(), None);
    }

    #[tokio::test]
    async fn at_the_greatest_depth_the_lease_that_was_made_is_given_up() {
        let (_cluster, mut driver) = served();
        let inner = std::sync::Arc::get_mut(&mut driver.inner).unwrap();
        inner.config.max_depth = 1;
        let (keys, owner, next) = (inner.keys(&name()), OwnerId::new(), request());
        let held = inner.enter(owner, &request()).await;
        let ask = Ask::new(inner, &keys, Some(owner), &next).unwrap();
        let lease = ask.lease(30).await.unwrap();
        let refused = ask.enter_again(held, Some(lease)).await.err().unwrap();
        assert_eq!(refused.kind(), ErrorKind::LimitReached);
        assert!(inner.tickets.leases(&next.token).is_empty() && !inner.lives(lease.id).await);
    }
}
