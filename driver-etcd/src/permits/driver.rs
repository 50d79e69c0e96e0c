//! The trait of permits.

use async_trait::async_trait;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tenure_core::driver::{
    Acquisition, Exclusion, Family, Fencing, ForceReleased, Holder, Introspection, PermitCapabilities, PermitChange,
    PermitHold, PermitHolder, PermitInspection, PermitRequest, Permits, Released, Renewed, Ttl, Waiting, Watch,
};
use tenure_core::{Error, FencingToken, LockName, OwnerToken, Result};

use super::seen::MOST_HOLDERS;
use super::txn::Of;
use crate::driver::EtcdDriver;
use crate::error::of_a_read;
use crate::locks::{RENEW_BATCH, ttls};
use crate::renew::{Renewable, Whose};

/// How many questions about leases are on their way at once.
const AT_ONCE: usize = 32;

#[async_trait]
impl Permits for EtcdDriver {
    fn capabilities(&self) -> PermitCapabilities {
        PermitCapabilities::new(Exclusion::Consensus, Fencing::Strict, Waiting::Fifo, ttls())
            .with_introspection(Introspection::Ageless)
            .with_max_holders(MOST_HOLDERS as u32)
            .with_max_waiters(Some(self.inner.config.max_waiters))
            .with_renew_batch(RENEW_BATCH)
    }

    /// Two requests for a name without holders: a lease, which may be left from an earlier hold, and the transaction.
    /// One more beside other holders. Joining the line takes two more, asking again one, and taking the share three.
    async fn acquire(&self, request: &PermitRequest) -> Result<Acquisition> {
        self.inner.ask_for(request).await
    }

    /// Two requests.
    async fn resize(&self, change: &PermitChange) -> Result<Acquisition> {
        self.inner.resize(change).await
    }

    /// One request for each lease, at the same time, and then one for all.
    async fn renew(&self, ttl: Ttl, holds: &[PermitHold]) -> Vec<Result<Renewed>> {
        let renewable = |PermitHold { family, name, token, .. }: &PermitHold| Renewable {
            keys: self.inner.permits.of(*family, name).of(token),
            whose: Whose::Token(*token),
        };
        self.inner.renew(ttl, holds.iter().map(renewable).collect()).await
    }

    /// One request, as for a lock.
    async fn release(&self, hold: &PermitHold) -> Result<Released> {
        let keys = self.inner.permits.of(hold.family, &hold.name).of(&hold.token);
        // Without its hold, a wait to weigh more counts for nothing: the order of the two does not matter.
        self.inner.stop_growing(&hold.token).await?;
        self.inner.release(&keys, &hold.token).await
    }

    async fn abandon(&self, hold: &PermitHold) -> Result<()> {
        let (inner, token) = (&self.inner, &hold.token);
        inner.link.ensure_open()?;
        // First: what a request of this token makes from now on, it undoes itself.
        let known = inner.tickets.bury(token);
        if known.as_ref().is_none_or(|known| known.waiting.is_none()) {
            inner.session.withdraw(token).await?;
        }
        inner.undo_plain(&inner.permits.of(hold.family, &hold.name).of(token), token, known).await?;
        // Only now: until everything is undone, a repeated abandonment has the same work to do.
        inner.tickets.settle(token);
        Ok(())
    }

    async fn watch(&self, hold: &PermitHold) -> Result<Watch> {
        self.inner.link.ensure_open()?;
        let keys = self.inner.permits.of(hold.family, &hold.name);
        let watch = self.inner.crowds.listen(keys.base(), hold.token);
        if self.inner.tickets.place(&hold.token).is_some() {
            self.inner.crowds.ensure_live().await?;
        }
        Ok(watch)
    }

    /// One request for the keys, and one for the lease of each holder.
    async fn inspect(&self, family: Family, name: &LockName, most: usize) -> Result<PermitInspection> {
        let keys = self.inner.permits.of(family, name);
        let (token, inner) = (OwnerToken::random(), &self.inner);
        let mut seen = inner.look(Of { keys: &keys, own: &keys.of(&token) }, &token, None).await?;
        seen.holds.sort_by_key(|held| held.seen.fence());
        let (mut used, waiters) = (seen.used(), seen.waiters);
        let looked = seen.holds.into_iter().take(most).map(|held| async move {
            let holder: Option<Holder> = inner.holder(held.seen).await.map_err(of_a_read)?;
            Ok::<_, Error>((held.part.share, holder))
        });
        let looked: Vec<_> = stream::iter(looked).buffered(AT_ONCE).try_collect().await?;
        let mut holders = Vec::with_capacity(looked.len());
        for (share, holder) in looked {
            match holder {
                Some(holder) => holders.push(PermitHolder::new(share, holder)),
                None => used -= u64::from(share.weight), // its lease has just ended
            }
        }
        Ok(PermitInspection::default().with_used(used).with_holders(holders).with_waiters(waiters))
    }

    /// Two requests: the holds, and the deletion.
    async fn evict(&self, family: Family, name: &LockName, fence: FencingToken) -> Result<ForceReleased> {
        let keys = self.inner.permits.of(family, name);
        let token = OwnerToken::random();
        let seen = self.inner.look(Of { keys: &keys, own: &keys.of(&token) }, &token, None).await?;
        let Some(held) = seen.holds.into_iter().find(|held| held.seen.fence() == Some(fence)) else {
            return Ok(ForceReleased::NotHeld);
        };
        Ok(match self.inner.take_away(&keys.of(&held.token), held.seen, Some(fence)).await? {
            ForceReleased::Released => ForceReleased::Released,
            _ => ForceReleased::NotHeld,
        })
    }
}
