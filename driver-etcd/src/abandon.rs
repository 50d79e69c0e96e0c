//! Undoing whatever a token asked for.
//!
//! A plain token is undone by revoking its leases: with them goes its hold, and a transaction that names one of them and
//! arrives later is refused by etcd. Its place is on the lease of the session, which sees to that. An entry of a re-entrant hold must not take the other entries
//! along; it is taken out of the list first, which also makes every transaction fail that was made from an older list.

use futures_util::future::join_all;
use tenure_core::driver::ReentrantEntry;
use tenure_core::{LockName, OwnerId, OwnerToken, Result};

use crate::answer::Tried;
use crate::inner::Inner;
use crate::keys::NameKeys;
use crate::tickets::{Remains, Waiting};
use crate::txn::{self, On};

impl Inner {
    /// Refuses the token from now on, and undoes what it has.
    pub(crate) async fn abandon(&self, owner: Option<OwnerId>, name: &LockName, token: &OwnerToken) -> Result<()> {
        self.link.ensure_open()?;
        let known = self.tickets.bury(token);
        self.undo(owner, name, token, known).await?;
        self.tickets.settle(token);
        Ok(())
    }

    /// Undoes what a token has, on these leases if they are known.
    pub(crate) async fn undo(
        &self,
        owner: Option<OwnerId>,
        name: &LockName,
        token: &OwnerToken,
        known: Option<Remains>,
    ) -> Result<()> {
        let keys = self.keys(name);
        let waiting = match &known {
            Some(known) => known.waiting,
            None => self.find_place(&keys, token).await?.map(Waiting::from),
        };
        if let Some(waiting) = waiting {
            self.session.leave(&keys, &waiting).await?;
        }
        match (owner, known.map(|known| known.leases)) {
            (Some(owner), known) => {
                let entry = ReentrantEntry::new(name.clone(), owner, *token);
                self.undo_entry(&keys, &entry, known).await
            }
            (None, Some(leases)) => self.revoke_all(leases).await,
            (None, None) => self.revoke_all(self.lease_in_etcd(&keys, token).await?.into_iter().collect()).await,
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
            let leases = match &known {
                Some(leases) => leases.clone(),
                None => self.lease_in_etcd(keys, &entry.token).await?.into_iter().collect(),
            };
            self.revoke_all(leases.into_iter().filter(|lease| Some(*lease) != carrier).collect()).await?;
            // A request that found the lock free may have slipped in before its lease was revoked, and another entry
            // may have moved that hold on. Now nothing can slip in any more.
            let hold = self.hold(keys).await?.and_then(|hold| hold.record);
            if !hold.is_some_and(|record| record.has(Some(entry.owner), &entry.token)) {
                return Ok(());
            }
        }
    }

    /// Writes the owner's hold anew, unchanged, so that an entry on its way finds another revision than it expects;
    /// tells which lease the hold is on.
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
