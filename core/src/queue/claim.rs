//! One delivery, as the client owns it before and while somebody handles it.

use std::sync::Arc;

use tokio::sync::watch;

use super::Lease;
use super::pump::Pump;
use crate::clock::LeaseInstant;
use crate::driver::{Extended, Extension, RawDelivery, Settle, Settled, Settlement};
use crate::engine::reaper::{Cleanup, Undo};
use crate::error::{Error, ErrorKind, Result};
use crate::token::OwnerToken;

/// A delivery that is not settled. Dropped, it is settled in the background, as [`Claim::if_dropped`] says.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(super) pump: Arc<Pump>,
    pub(super) raw: RawDelivery,
    standing: watch::Sender<Standing>,
    /// `None` once it is settled, or once its settlement is on its way.
    if_dropped: Option<Settlement>,
}

/// Whether the lease lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Until(LeaseInstant),
    /// The backend says that the receipt is not valid any more.
    Stale,
}

impl Claim {
    /// A delivery that nobody has seen: dropped, it is returned.
    pub(super) fn new(pump: &Arc<Pump>, raw: RawDelivery, sent_at: LeaseInstant, lease: Lease) -> Self {
        let until = believable(pump, sent_at, lease);
        let (standing, _) = watch::channel(Standing::Until(until));
        Self { pump: Arc::clone(pump), raw, standing, if_dropped: Some(Settlement::Return) }
    }

    /// Changes what is done if it is dropped.
    pub(super) fn if_dropped(&mut self, settlement: Settlement) {
        if self.if_dropped.is_some() {
            self.if_dropped = Some(settlement);
        }
    }

    /// When the lease ends, as far as is known.
    fn until(&self) -> LeaseInstant {
        match *self.standing.borrow() {
            Standing::Until(until) => until,
            Standing::Stale => LeaseInstant::now(),
        }
    }

    pub(super) fn is_lost(&self) -> bool {
        match *self.standing.borrow() {
            Standing::Until(until) => until <= LeaseInstant::now(),
            Standing::Stale => true,
        }
    }

    pub(super) fn remaining(&self) -> std::time::Duration {
        match *self.standing.borrow() {
            Standing::Until(until) => until.remaining(),
            Standing::Stale => std::time::Duration::ZERO,
        }
    }

    /// Resolves when the lease has ended, no later than its deadline.
    pub(super) async fn lost(&self) {
        let mut standing = self.standing.subscribe();
        loop {
            let until = match *standing.borrow_and_update() {
                Standing::Until(until) => until,
                Standing::Stale => return,
            };
            tokio::select! {
                () = until.reached() => if self.is_lost() { return },
                // The sender lives in `self`.
                _ = standing.changed() => {}
            }
        }
    }

    pub(super) async fn settle(mut self, how: Settlement) -> Result<Settled> {
        self.if_dropped = None;
        let settle = Settle { receipt: self.raw.receipt, how };
        let settled = self.pump.settle(settle, self.until()).await.map_err(|error| self.pump.told(error, "settle"))?;
        if settled == Settled::Stale {
            self.standing.send_replace(Standing::Stale);
        }
        Ok(settled)
    }

    pub(super) async fn extend(&self, lease: Lease) -> Result<()> {
        self.pump.caps.check_lease(lease)?;
        let (queue, limit) = (&self.pump.name, self.pump.shared.config.op_timeout);
        let sent_at = LeaseInstant::before_send();
        let extension = [Extension { receipt: self.raw.receipt, lease }];
        let call = self.pump.driver.extend(queue, &extension);
        let answers = super::bounded(limit, call).await.map_err(|error| self.pump.told(error, "extend"))?;
        match answers.first() {
            Some(Extended::Extended) => {
                let until = believable(&self.pump, sent_at, lease);
                self.standing.send_if_modified(|standing| match standing {
                    Standing::Until(old) if *old < until && *old > LeaseInstant::now() => {
                        *old = until;
                        true
                    }
                    _ => false,
                });
                if self.is_lost() { Err(self.lost_error()) } else { Ok(()) }
            }
            Some(Extended::Stale) => {
                self.standing.send_replace(Standing::Stale);
                Err(self.lost_error())
            }
            None => Err(Error::new(ErrorKind::Protocol, "an extension was not answered")),
        }
    }

    pub(super) fn lost_error(&self) -> Error {
        let text = format!("the lease of message {} has ended", self.raw.id);
        self.pump.told(Error::new(ErrorKind::Lost, text), "delivery")
    }
}

fn believable(pump: &Pump, sent_at: LeaseInstant, lease: Lease) -> LeaseInstant {
    sent_at.after(pump.shared.config.drift.believable(lease.get()).unwrap_or_default())
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(how) = self.if_dropped.take() {
            let settle = Settle { receipt: self.raw.receipt, how };
            carry_on(&self.pump, settle, self.until());
        }
    }
}

/// Hands a settlement to the reaper, which repeats it until it is acknowledged or the lease has ended.
pub(super) fn carry_on(pump: &Pump, settle: Settle, until: LeaseInstant) {
    pump.shared.reaper.push(Cleanup {
        name: pump.name.for_errors().clone(),
        owner: None,
        token: OwnerToken::random(),
        undo: Undo::Delivery(Arc::clone(&pump.driver), pump.name.clone(), settle),
        until,
    });
}
