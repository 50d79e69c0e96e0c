//! A box office: code that takes locks, as a user of tenure writes it. It takes a [`Client`] and knows no backend.
//! Its tests in `tests/box_office.rs` run on memory, Redis and etcd.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tenure::{Client, FenceGate, FencingToken, Result, StaleFence};

/// The plan of the seats, shared by all box offices. A database in real life; like one, it refuses those whose lease has ended,
/// when they read as well as when they write.
#[derive(Clone, Debug, Default)]
pub struct Plan(Arc<Mutex<HashMap<String, Seat>>>);

#[derive(Debug, Default)]
struct Seat {
    guest: Option<String>,
    gate: FenceGate,
}

/// One process that sells seats.
#[derive(Debug)]
pub struct BoxOffice {
    locks: Client,
    plan: Plan,
}

impl Plan {
    /// Who sits there.
    #[must_use]
    pub fn guest(&self, seat: &str) -> Option<String> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(seat)?
            .guest
            .clone()
    }

    /// Claims a seat for the holder of its lock, and returns who sits there. From now on no earlier holder can write: the value that
    /// was read stays true until this one writes, or a later one claims the seat.
    ///
    /// # Errors
    ///
    /// [`StaleFence`] when a later holder has claimed the seat.
    pub fn claim(
        &self,
        seat: &str,
        fence: FencingToken,
    ) -> std::result::Result<Option<String>, StaleFence> {
        let mut plan = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let seat = plan.entry(seat.to_owned()).or_default();
        seat.gate.admit(fence)?;
        Ok(seat.guest.clone())
    }

    /// Writes a guest down.
    ///
    /// # Errors
    ///
    /// [`StaleFence`] when a later holder has claimed the seat.
    pub fn write(
        &self,
        seat: &str,
        guest: &str,
        fence: FencingToken,
    ) -> std::result::Result<(), StaleFence> {
        let mut plan = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let seat = plan.entry(seat.to_owned()).or_default();
        seat.gate.admit(fence)?;
        seat.guest = Some(guest.to_owned());
        Ok(())
    }
}

impl BoxOffice {
    /// An office on a plan that it shares with others.
    #[must_use]
    pub fn new(locks: Client, plan: Plan) -> Self {
        Self { locks, plan }
    }

    /// Sells a seat if it is free. Offices that are asked for the same seat take turns.
    ///
    /// # Errors
    ///
    /// Those of taking and keeping the lock.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it has sold the seat or not, and holds no lock.
    pub async fn sell(&self, seat: &str, guest: &str) -> Result<bool> {
        let guard = self.locks.lock(seat).acquire().await?;
        let fence = guard.fence();
        let sold =
            self.plan.claim(seat, fence).and_then(|sitting| match sitting {
                None => self.plan.write(seat, guest, fence).map(|()| true),
                Some(_) => Ok(false),
            });
        if sold.is_err() {
            guard.check()?; // somebody held the lock after us, so this tells of the loss
        }
        guard.release().await?;
        Ok(sold.unwrap_or(false))
    }
}
