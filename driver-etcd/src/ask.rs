//! Asking for a lock, for the first time or again, plainly or for an owner.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tenure_core::driver::{AcquireRequest, Acquisition, Begun, Busy, Grant, Queueing};
use tenure_core::{Error, ErrorKind, FencingToken, OwnerId, OwnerToken, Result};

use crate::driver::Inner;
use crate::grants::{Lease, new_id};
use crate::keys::NameKeys;
use crate::record::Record;
use crate::tickets::Place;
use crate::txn::{self, Extent, HoldSeen, Seen, Tried};
use crate::watcher::Asking;

/// How often one request starts over when things change under it.
const MOST_STARTS: usize = 4;

/// One request, on its way.
pub(crate) struct Ask<'a> {
    pub(crate) inner: &'a Inner,
    pub(crate) keys: &'a NameKeys,
    pub(crate) owner: Option<OwnerId>,
    pub(crate) request: &'a AcquireRequest,
    pub(crate) secs: i64,
    asking: Asking<'a>,
    /// The leases that were asked for on the way.
    made: Mutex<Vec<i64>>,
}

impl Inner {
    pub(crate) async fn ask(&self, owner: Option<OwnerId>, request: &AcquireRequest) -> Result<Acquisition> {
        self.link.ensure_open()?;
        let secs = Self::ttl_secs(request)?;
        self.tickets.ensure_alive(&request.token)?;
        let keys = self.keys(&request.name);
        let asking = self.watcher.asking(self.keyspace.encoded(&keys));
        let ask = Ask { inner: self, keys: &keys, owner, request, secs, asking, made: Mutex::default() };
        let answer = ask.answer().await;
        if let Err(abandoned) = self.tickets.ensure_alive(&request.token) {
            // Meanwhile; and the undoing may have been too early for what was made since.
            let made = std::mem::take(&mut *ask.made.lock().unwrap_or_else(PoisonError::into_inner));
            self.undo(owner, &request.name, &request.token, Some(made)).await?;
            return Err(abandoned);
        }
        answer
    }
}

impl Ask<'_> {
    async fn answer(&self) -> Result<Acquisition> {
        for _ in 0..MOST_STARTS {
            let answer = match self.inner.tickets.place(self.token()) {
                Some(place) => self.again(place).await?,
                None => self.afresh().await?,
            };
            if let Some(answer) = answer {
                return Ok(answer);
            }
        }
        Ok(Acquisition::Busy(Busy { position: None, recheck_after: Some(Duration::ZERO) }))
    }

    pub(crate) fn token(&self) -> &OwnerToken {
        &self.request.token
    }

    /// Asks for a token that has no place in the queue, as far as is known. `None` if it is to be asked again: things
    /// have changed on the way.
    async fn afresh(&self) -> Result<Option<Acquisition>> {
        let lease = self.lease(self.secs).await?;
        let txn = txn::take_free(self.keys, self.token(), &self.record(lease), lease.id);
        let seen = match self.try_txn(txn).await? {
            Tried::Done(revision) => return self.won(revision, lease).map(Some),
            Tried::Not(seen) => seen,
        };
        if let Some(answer) = self.resolve(&seen, Some(lease)).await? {
            return Ok(answer.known());
        }
        match (self.request.queue, seen.place) {
            (_, Some(place)) if seen.is_next(self.token()) => self.take_place(place, lease).await,
            (Queueing::None, _) => {
                self.inner.give_up(self.token(), lease.id).await?;
                Ok(Some(Acquisition::Busy(Busy::default())))
            }
            (Queueing::Join { .. }, Some(place)) => {
                self.inner.give_up(self.token(), lease.id).await?;
                self.inner.tickets.set_place(self.token(), Some(place));
                Ok(None)
            }
            (Queueing::Join { presence }, None) => self.enqueue(presence, lease).await,
        }
    }

    /// Joins the queue. The place gets a lease of its own, because a waiter's presence is not the ttl of a hold.
    async fn enqueue(&self, presence: Duration, unneeded: Lease) -> Result<Option<Acquisition>> {
        let presence = i64::try_from(presence.as_millis().div_ceil(1000)).unwrap_or(i64::MAX).max(1);
        let (given_up, lease) = tokio::join!(self.inner.give_up(self.token(), unneeded.id), self.lease(presence));
        let lease = lease?;
        given_up?;
        let seen = self.read(txn::enqueue(self.keys, self.token(), lease.id), Extent::All).await?;
        let place = seen.place.ok_or_else(|| txn::odd("a place that was made is not there"))?;
        if place.lease != lease.id {
            self.inner.give_up(self.token(), lease.id).await?;
        }
        let most = self.inner.config.max_waiters;
        if place.lease == lease.id && seen.position(self.token()).is_some_and(|before| before >= most) {
            self.inner.give_up(self.token(), lease.id).await?;
            return Err(Error::new(ErrorKind::LimitReached, format!("the queue is full: {most} wait already")));
        }
        self.inner.tickets.set_place(self.token(), Some(place));
        if let Some(answer) = self.resolve(&seen, None).await? {
            return Ok(answer.known());
        }
        if seen.is_next(self.token()) {
            let lease = self.lease(self.secs).await?;
            return self.take_place(place, lease).await;
        }
        Ok(Some(self.busy(&seen)))
    }

    /// Asks for a token that has a place. `None` if it has lapsed.
    async fn again(&self, place: Place) -> Result<Option<Acquisition>> {
        if !self.inner.watcher.view().seems_free_for(self.name(), self.token()) {
            let extent = match self.inner.watcher.view().is_synced(self.name(), self.token()) {
                true => Extent::Head,
                false => Extent::All,
            };
            let look = self.read(txn::just_look(self.keys, self.token(), extent), extent);
            let (alive, seen) = tokio::join!(self.inner.leases.keep_alive(place.lease), look);
            let (alive, seen) = (alive?, seen?);
            if let Some(answer) = self.resolve(&seen, None).await? {
                return Ok(answer.known());
            }
            if !alive || seen.place != Some(place) {
                self.lapsed(place).await?;
                return Ok(None);
            }
            if !seen.is_next(self.token()) {
                return Ok(Some(self.busy(&seen)));
            }
        }
        let lease = self.lease(self.secs).await?;
        self.take_place(place, lease).await
    }

    /// Takes the lock for the first in line. `None` if its place has lapsed.
    async fn take_place(&self, place: Place, lease: Lease) -> Result<Option<Acquisition>> {
        let txn = txn::take_place(self.keys, self.token(), place, &self.record(lease), lease.id);
        let seen = match self.try_txn(txn).await? {
            Tried::Done(revision) => return self.won(revision, lease).map(Some),
            Tried::Not(seen) => seen,
        };
        if let Some(answer) = self.resolve(&seen, Some(lease)).await? {
            return Ok(answer.known());
        }
        self.inner.give_up(self.token(), lease.id).await?;
        if seen.place != Some(place) {
            self.lapsed(place).await?;
            return Ok(None);
        }
        Ok(Some(self.busy(&seen)))
    }

    async fn lapsed(&self, place: Place) -> Result<()> {
        self.inner.tickets.set_place(self.token(), None);
        self.inner.give_up(self.token(), place.lease).await.map(drop)
    }

    /// What follows if the token, or its owner, is in already. `lease` is one that was made for a hold.
    async fn resolve(&self, seen: &Seen, lease: Option<Lease>) -> Result<Option<Resolved>> {
        let Some(hold) = &seen.hold else { return Ok(None) };
        let Some(record) = &hold.record else { return Ok(None) };
        if record.has(self.owner, self.token()) {
            return self.earlier(hold, record, lease).await.map(Resolved::Answer).map(Some);
        }
        if self.owner.is_some() && record.owner == self.owner {
            return self.enter_again(hold.clone(), lease).await.map(Some);
        }
        Ok(None)
    }

    /// The token holds it already: an answer was lost.
    pub(crate) async fn earlier(&self, hold: &HoldSeen, record: &Record, lease: Option<Lease>) -> Result<Acquisition> {
        self.inner.tickets.set_hold(self.token(), hold.lease);
        if let Some(lease) = lease.filter(|lease| lease.id != hold.lease) {
            self.inner.give_up(self.token(), lease.id).await?;
        }
        self.grant(hold.fence, record.lease_secs, Begun::Earlier, record.depth())
    }

    fn won(&self, revision: i64, lease: Lease) -> Result<Acquisition> {
        self.inner.tickets.set_hold(self.token(), lease.id);
        self.grant(revision, lease.secs, Begun::Now, 1)
    }

    pub(crate) fn grant(&self, fence: i64, secs: i64, begun: Begun, depth: u32) -> Result<Acquisition> {
        let fence = u64::try_from(fence).ok().and_then(FencingToken::new);
        let fence = fence.ok_or_else(|| txn::odd("a revision that is not positive"))?;
        let ttl = Duration::from_secs(u64::try_from(secs).unwrap_or_default());
        Ok(Acquisition::Granted(Grant { fence, ttl, begun, depth }))
    }

    /// Etcd tells of an expiry as it tells of a release, so there is no time at which asking would help.
    fn busy(&self, seen: &Seen) -> Acquisition {
        let position = match self.request.queue {
            Queueing::None => None,
            Queueing::Join { .. } => {
                seen.position(self.token()).or_else(|| self.inner.watcher.view().position(self.name(), self.token()))
            }
        };
        Acquisition::Busy(Busy { position, recheck_after: None })
    }

    /// A new lease for this token.
    pub(crate) async fn lease(&self, secs: i64) -> Result<Lease> {
        let id = new_id();
        self.inner.tickets.begin(self.token(), id)?;
        self.made.lock().unwrap_or_else(PoisonError::into_inner).push(id);
        self.inner.leases.grant(id, secs).await
    }

    pub(crate) fn record(&self, lease: Lease) -> Record {
        Record {
            owner: self.owner,
            entries: vec![*self.token()],
            lease_secs: lease.secs,
            label: self.request.label.clone(),
        }
    }

    async fn try_txn(&self, txn: etcd_client::Txn) -> Result<Tried<Seen>> {
        let answer = self.inner.txn(txn).await?;
        if answer.succeeded() {
            return txn::revision(&answer).map(Tried::Done);
        }
        self.take_in(&answer, Extent::All).map(Tried::Not)
    }

    async fn read(&self, txn: etcd_client::Txn, extent: Extent) -> Result<Seen> {
        let answer = self.inner.txn(txn).await?;
        self.take_in(&answer, extent)
    }

    fn take_in(&self, answer: &etcd_client::TxnResponse, extent: Extent) -> Result<Seen> {
        let seen = txn::seen(answer, self.keys, extent)?;
        self.inner.watcher.view().read(self.name(), self.asking.epoch, self.token(), &seen);
        Ok(seen)
    }

    fn name(&self) -> &[u8] {
        self.inner.keyspace.encoded(self.keys)
    }
}

/// What is left to do when the token, or its owner, was in already.
pub(crate) enum Resolved {
    Answer(Acquisition),
    /// It no longer is.
    StartOver,
}

impl Resolved {
    fn known(self) -> Option<Acquisition> {
        match self {
            Self::Answer(answer) => Some(answer),
            Self::StartOver => None,
        }
    }
}
