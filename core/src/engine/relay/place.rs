//! A waiter's place in a relay.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::super::attempt::Ask;
use super::super::hold::HeldEntry;
use super::super::shared::{Reservation, Shared};
use crate::value::clock::LeaseInstant;
use crate::value::error::{Error, ErrorKind, Result};
use crate::value::name::LockName;

/// What a waiter is given.
#[derive(Debug)]
pub(super) enum Offer {
    /// The lease, to be claimed.
    Held(HeldEntry),
    /// Why waiting failed.
    Failed(Error),
    /// Nobody waits for the others any more: each for itself.
    Scattered,
}

/// How a turn came out.
#[derive(Debug)]
pub(crate) enum Turn {
    /// The lease, claimed.
    Held(HeldEntry),
    /// It ended before it was taken, or the task ended that waited for all. The waiter has to start over.
    Over,
    /// The waiter has to go on by itself.
    Scattered,
}

/// Dropped, it is left; and what was offered in the same instant goes to the next.
#[derive(Debug)]
pub(crate) struct Place {
    shared: Arc<Shared>,
    name: LockName,
    max_hold: Option<Duration>,
    number: u64,
    reservation: Option<Reservation>,
    offers: oneshot::Receiver<Offer>,
    left: bool,
}

impl Place {
    pub(super) fn new(
        shared: &Arc<Shared>,
        ask: &Ask,
        number: u64,
        reservation: Option<Reservation>,
        offers: oneshot::Receiver<Offer>,
    ) -> Self {
        let (shared, name, max_hold) = (Arc::clone(shared), ask.name.clone(), ask.max_hold);
        Self { shared, name, max_hold, number, reservation, offers, left: false }
    }

    /// The lease, once it is this waiter's turn.
    ///
    /// Dropping the future loses nothing.
    pub(crate) async fn turn(&mut self) -> Result<Turn> {
        let offer = (&mut self.offers).await;
        self.left = true; // whoever offers something has taken this one out
        match offer {
            Ok(Offer::Held(mut held)) => {
                let claimed = held.claim(self.reservation.take(), self.max_hold);
                Ok(if claimed { Turn::Held(held) } else { Turn::Over })
            }
            Ok(Offer::Scattered) => Ok(Turn::Scattered),
            Ok(Offer::Failed(error)) => Err(error),
            Err(_) => Ok(Turn::Over),
        }
    }

    /// As [`turn`](Self::turn), until `deadline`, of a wait that began at `started`.
    pub(crate) async fn wait(mut self, started: LeaseInstant, deadline: Option<LeaseInstant>) -> Result<Turn> {
        let shared = Arc::clone(&self.shared);
        let patience = async {
            match deadline {
                Some(at) => at.reached().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = shared.closed() => Err(Error::new(ErrorKind::Closed, "the client was closed while waiting")),
            turn = self.turn() => turn,
            () = patience => {
                let waited = LeaseInstant::now().since(started);
                self.leave().await;
                Err(Error::new(ErrorKind::TimedOut, format!("waited {waited:?} among others of this client")))
            }
        }
    }

    /// Leaves. The last one waits until nobody waits at the backend for it any more, as a waiter with a place of its own
    /// does; not for long.
    pub(crate) async fn leave(mut self) {
        self.left = true;
        if let Some(runner) = self.shared.relays.leave(&self.shared, &self.name, self.number, None) {
            let _ = tokio::time::timeout(self.shared.config.leave_limit() * 2, runner).await;
        }
    }

    /// Leaves with a lease that the waiter won itself, and that those behind it may hope for.
    pub(crate) fn leave_with(mut self, held: &HeldEntry) {
        self.left = true;
        self.shared.relays.leave(&self.shared, &self.name, self.number, Some(held));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.left {
            self.shared.relays.leave(&self.shared, &self.name, self.number, None);
        }
    }
}
