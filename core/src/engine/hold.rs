//! One entry of a lease, as a guard owns it.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Poll, ready};

use super::lease::{Entry, Lease, Past};
use super::outcome::{HoldState, LostReason};
use super::reaper::Cleanup;
use super::shared::{Reservation, Shared};
use crate::error::{Error, ErrorKind, Result};
use crate::token::OwnerToken;

/// Dropped, it hands its token to the reaper.
#[derive(Debug)]
pub(crate) struct HeldEntry {
    shared: Arc<Shared>,
    lease: Arc<Lease>,
    token: OwnerToken,
    depth: u32,
    _place: Option<Reservation>,
}

/// Whether the lease was still the guard's when its release began.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    Held,
    Lost,
}

impl HeldEntry {
    pub(crate) fn new(
        shared: Arc<Shared>,
        lease: Arc<Lease>,
        token: OwnerToken,
        depth: u32,
        place: Option<Reservation>,
    ) -> Self {
        shared.holds.fetch_add(1, Ordering::AcqRel);
        Self { shared, lease, token, depth, _place: place }
    }

    pub(crate) fn lease(&self) -> &Lease {
        &self.lease
    }

    pub(crate) fn token(&self) -> &OwnerToken {
        &self.token
    }

    pub(crate) fn depth(&self) -> u32 {
        self.depth
    }

    pub(crate) fn driver(&self) -> &'static str {
        self.shared.driver()
    }

    pub(crate) fn lost_error(&self, reason: LostReason) -> Error {
        Error::new(ErrorKind::Lost, reason.to_string()).during(self.driver(), "hold", self.lease.name())
    }

    pub(crate) fn check(&self) -> Result<()> {
        match self.lease.state() {
            HoldState::Held | HoldState::Suspect => Ok(()),
            HoldState::Lost(reason) => Err(self.lost_error(reason)),
            HoldState::Released => Err(self.lost_error(LostReason::Gone)),
        }
    }

    pub(crate) async fn run<F: Future>(&self, work: F) -> Result<F::Output> {
        let (mut lost, mut work) = (pin!(self.lease.lost()), pin!(work));
        poll_fn(|cx| {
            if let Poll::Ready(reason) = lost.as_mut().poll(cx) {
                return Poll::Ready(Err(self.lost_error(reason)));
            }
            // Timers are late after a suspend, or when something blocked the runtime. The clock is not.
            self.check()?;
            let output = ready!(work.as_mut().poll(cx));
            Poll::Ready(self.check().map(|()| output))
        })
        .await
    }

    /// Gives the entry back with `call`, once no renewal can come behind it. `None` when it was lost and is being
    /// cleaned up already. Dropped or failed half-way, the reaper carries on with the same token.
    pub(crate) async fn give_back<T, F>(
        self,
        call: impl FnOnce(Arc<Shared>, OwnerToken) -> F,
    ) -> Result<Option<(T, Standing)>>
    where
        F: Future<Output = Result<T>>,
    {
        let standing = match self.lease.state() {
            HoldState::Lost(_) => Standing::Lost,
            _ => Standing::Held,
        };
        let Some(entry) = self.lease.leave(&self.token) else { return Ok(None) };
        let mut unacknowledged = Unacknowledged { hold: &self, entry: Some(entry) };
        let limit = self.shared.config.op_timeout;
        let work = async {
            self.lease.quiet().await;
            call(Arc::clone(&self.shared), self.token).await
        };
        let outcome = match tokio::time::timeout(limit, work).await {
            Ok(outcome) => outcome,
            Err(_) => {
                Err(Error::new(ErrorKind::Indeterminate, format!("no answer within {limit:?}, the release goes on")))
            }
        };
        let value = outcome.map_err(|error| error.during(self.driver(), "release", self.lease.name()))?;
        if entry.past == Past::Answered {
            unacknowledged.entry = None; // else the reaper abandons the token as well
        }
        Ok(Some((value, standing)))
    }
}

impl Drop for HeldEntry {
    fn drop(&mut self) {
        if let Some(entry) = self.lease.leave(&self.token) {
            self.shared.reaper.push(Cleanup::of_lease(&self.lease, &entry));
        }
        if self.lease.is_empty() {
            self.shared.keeper.forget(&self.lease);
            self.shared.owners.remove(&self.lease);
        }
        self.shared.holds.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A release whose acknowledgement is not in; dropped, the reaper takes it over.
struct Unacknowledged<'a> {
    hold: &'a HeldEntry,
    entry: Option<Entry>,
}

impl Drop for Unacknowledged<'_> {
    fn drop(&mut self) {
        if let Some(entry) = self.entry.take() {
            self.hold.shared.reaper.push(Cleanup::of_lease(&self.hold.lease, &entry));
        }
    }
}
