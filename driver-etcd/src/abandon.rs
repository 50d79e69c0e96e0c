//! Undoing all requests of a token.
//!
//! Revoking its leases undoes a plain token: the hold ends with them, and etcd refuses a transaction that names one of
//! them and arrives later. Its place is on the lease of the session, which removes it. Undoing one entry of a
//! re-entrant hold must not end the other entries. So that entry is removed from the list first, which also makes every
//! transaction fail that was built from an older list.

use futures_util::future::join_all;
use tenure_core::driver::ReentrantEntry;
use tenure_core::{LockName, OwnerId, OwnerToken, Result};

use crate::answer::Tried;
use crate::inner::Inner;
use crate::keys::NameKeys;
use crate::tickets::{LeftBehind, Waiting};
use crate::txn::{self, On};

impl Inner {
    /// Refuses the token from now on, and undoes what it has.
    pub(crate) async fn abandon(&self, owner: Option<OwnerId>, name: &LockName, token: &OwnerToken) -> Result<()> {
        self.link.ensure_open()?;
        // First: what a request of this token makes from now on, it undoes itself.
        let known = self.tickets.bury(token);
        self.undo(owner, name, token, known).await?;
        // Only now: until everything is undone, a repeated abandonment has the same work to do.
        self.tickets.settle(token);
        Ok(())
    }

    /// Undoes what a token has, on these leases if they are known.
    pub(crate) async fn undo(
        &self,
        owner: Option<OwnerId>,
        name: &LockName,
        token: &OwnerToken,
        known: Option<LeftBehind>,
    ) -> Result<()> {
        let keys = self.keys(name);
        let Some(owner) = owner else { return self.undo_plain(&keys, token, known).await };
        self.undo_place(&keys, token, known.as_ref()).await?;
        let entry = ReentrantEntry::new(name.clone(), owner, *token);
        self.undo_entry(&keys, &entry, known.map(|known| known.leases)).await
    }

    /// Undoes what a token has that holds for no owner.
    pub(crate) async fn undo_plain(
        &self,
        keys: &NameKeys,
        token: &OwnerToken,
        known: Option<LeftBehind>,
    ) -> Result<()> {
        // The place before the hold: at the lock that becomes free, the place could be the first in line.
        self.undo_place(keys, token, known.as_ref()).await?;
        match known {
            Some(known) => self.revoke_all(known.leases).await,
            None => self.revoke_all(self.lease_in_etcd(keys, token).await?.into_iter().collect()).await,
        }
    }

    async fn undo_place(&self, keys: &NameKeys, token: &OwnerToken, known: Option<&LeftBehind>) -> Result<()> {
        let waiting = match known {
            Some(known) => known.waiting,
            None => self.find_place(keys, token).await?.map(Waiting::from),
        };
        match waiting {
            Some(waiting) => self.session.leave(keys, &waiting).await,
            None => Ok(()),
        }
    }

    /// The lease of the hold of a plain token that this client knows nothing of.
    async fn lease_in_etcd(&self, keys: &NameKeys, token: &OwnerToken) -> Result<Option<i64>> {
        let hold = self.hold(keys).await?;
        let own = hold.filter(|hold| hold.record.as_ref().is_some_and(|record| record.has(None, token)));
        Ok(own.map(|hold| hold.lease))
    }

    pub(crate) async fn revoke_all(&self, leases: Vec<i64>) -> Result<()> {
        let revoked = join_all(leases.into_iter().map(|lease| self.leases.revoke(lease))).await;
        revoked.into_iter().try_for_each(|revoked| revoked.map(drop))
    }

    async fn undo_entry(&self, keys: &NameKeys, entry: &ReentrantEntry, known: Option<Vec<i64>>) -> Result<()> {
        loop {
            self.leave(keys, entry).await?;
            let carrier = self.refuse_late_entry(keys, entry).await?;
            let leases = known.iter().flatten().copied();
            self.revoke_all(leases.filter(|lease| Some(*lease) != carrier).collect()).await?;
            // A request that found the lock free may have slipped in before its lease was revoked, and another entry
            // may have moved that hold on. Now nothing can slip in any more.
            let hold = self.hold(keys).await?.and_then(|hold| hold.record);
            if !hold.is_some_and(|record| record.has(Some(entry.owner), &entry.token)) {
                return Ok(());
            }
        }
    }

    /// Writes the owner's hold anew, unchanged, so that an entry on its way finds another revision than it expects;
    /// returns the lease of the hold.
    async fn refuse_late_entry(&self, keys: &NameKeys, entry: &ReentrantEntry) -> Result<Option<i64>> {
        let mut hold = self.hold(keys).await?;
        loop {
            let Some(seen) = hold else { return Ok(None) };
            let Some(record) = seen.record.as_ref().filter(|record| record.owner == Some(entry.owner)) else {
                return Ok(None);
            };
            match self.change(txn::rewrite(keys, &seen, record, On::SameLease)).await? {
                Tried::Done(_) => return Ok(Some(seen.lease)),
                Tried::Not(now) => hold = now,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::driver::{AcquireRequest, Acquisition, Ttl};

    use super::*;
    use crate::EtcdDriver;
    use crate::answer::HoldSeen;
    use crate::keys::Spot;
    use crate::record::Record;
    use crate::test_support::served;

    fn name() -> LockName {
        LockName::new("name").unwrap()
    }

    impl Inner {
        async fn granted(&self, owner: Option<OwnerId>) -> (OwnerToken, HoldSeen) {
            let request = AcquireRequest::new(name(), OwnerToken::random(), Ttl::DEFAULT);
            let granted = self.ask(owner, &request).await.unwrap();
            assert!(matches!(granted, Acquisition::Granted(_)), "{granted:?}");
            (request.token, self.hold(&self.keys(&name())).await.unwrap().unwrap())
        }

        async fn record(&self) -> Option<Record> {
            self.hold(&self.keys(&name())).await.unwrap().and_then(|seen| seen.record)
        }
    }

    /// Another client, which knows nothing of the token, finds its keys and deletes them.
    #[tokio::test]
    async fn a_token_is_undone_by_any_client_and_no_other_one_with_it() {
        let (cluster, driver) = served();
        let other = EtcdDriver::new(cluster.url().parse().unwrap());
        let (token, seen) = driver.inner.granted(None).await;
        let keys = other.inner.keys(&name());
        let waits = OwnerToken::random();
        let live = driver.inner.session.ensure().await.unwrap();
        let place = keys.place(&Spot { arrival: 1, token: waits });
        let options = etcd_client::PutOptions::new().with_lease(live.lease);
        let put = etcd_client::TxnOp::put(place, "", Some(options));
        driver.inner.txn(etcd_client::Txn::new().and_then([put])).await.unwrap();
        other.inner.abandon(None, &name(), &OwnerToken::random()).await.unwrap();
        assert_eq!(other.inner.hold(&keys).await.unwrap(), Some(seen.clone()));
        other.inner.abandon(None, &name(), &waits).await.unwrap();
        assert_eq!(other.inner.find_place(&keys, &waits).await.unwrap(), None);
        let foreign = LockName::new("foreign").unwrap();
        let options = etcd_client::PutOptions::new().with_lease(live.lease);
        let put = etcd_client::TxnOp::put(other.inner.keys(&foreign).hold(), "somebody else's", Some(options));
        other.inner.txn(etcd_client::Txn::new().and_then([put])).await.unwrap();
        other.inner.abandon(None, &foreign, &OwnerToken::random()).await.unwrap();
        assert!(other.inner.lives(live.lease).await, "what somebody else wrote is not ours");
        other.inner.abandon(Some(OwnerId::new()), &name(), &token).await.unwrap();
        assert_eq!(other.inner.hold(&keys).await.unwrap(), Some(seen.clone()), "that is no entry of this owner");
        let another = EtcdDriver::new(cluster.url().parse().unwrap());
        another.inner.abandon(None, &name(), &token).await.unwrap();
        assert_eq!(another.inner.hold(&keys).await.unwrap(), None);
        assert!(!another.inner.lives(seen.lease).await);
    }

    #[tokio::test]
    async fn an_entry_is_undone_by_any_client_and_the_others_stay() {
        let (cluster, driver) = served();
        let other = EtcdDriver::new(cluster.url().parse().unwrap());
        let owner = OwnerId::new();
        let (first, _) = driver.inner.granted(Some(owner)).await;
        let (second, seen) = driver.inner.granted(Some(owner)).await;
        let before = seen.written;
        other.inner.abandon(Some(owner), &name(), &OwnerToken::random()).await.unwrap();
        let now = other.inner.hold(&other.inner.keys(&name())).await.unwrap().unwrap();
        assert!(now.written > before, "an entry on its way finds another revision");
        other.inner.abandon(Some(OwnerId::new()), &name(), &OwnerToken::random()).await.unwrap();
        assert_eq!(
            other.inner.hold(&other.inner.keys(&name())).await.unwrap(),
            Some(now),
            "of somebody else's hold none"
        );
        for inner in [&other.inner, &driver.inner] {
            inner.abandon(Some(owner), &name(), &second).await.unwrap();
            assert_eq!(inner.record().await.map(|record| record.entries), Some(vec![first]));
            assert!(inner.lives(seen.lease).await, "it carries the first entry");
        }
        driver.inner.abandon(Some(owner), &name(), &first).await.unwrap();
        assert_eq!(other.inner.record().await, None);
        assert!(!driver.inner.lives(seen.lease).await);
    }

    /// Of this client, with everything that was made for it.
    #[tokio::test]
    async fn what_an_attempt_has_made_goes_with_it() {
        let (_cluster, driver) = served();
        let inner = &driver.inner;
        for owner in [None, Some(OwnerId::new())] {
            let token = OwnerToken::random();
            let lease = crate::grants::new_id();
            inner.tickets.begin(&token, lease, 30).unwrap();
            inner.leases.grant(lease, 30).await.unwrap();
            inner.abandon(owner, &name(), &token).await.unwrap();
            assert!(!inner.lives(lease).await);
            assert!(inner.tickets.ensure_alive(&token).is_err());
            assert_eq!(inner.tickets.bury(&token), Some(LeftBehind::default()), "nothing is left to do");
        }
    }
}
