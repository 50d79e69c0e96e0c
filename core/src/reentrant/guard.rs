//! The guard of one entry.

use std::sync::Arc;

use crate::driver::{Exited, ReentrantHold};
use crate::engine::hold::HeldEntry;
use crate::engine::shared::Shared;
use crate::lock::guard_methods;
use crate::value::error::{Error, ErrorKind, Result};
use crate::value::token::OwnerId;

/// One entry of a re-entrant lock. What is said of [`LockGuard`](crate::LockGuard) holds here too.
///
/// **Dropping the guard undoes its entry, but not at once**: its token goes to the client's reaper.
#[derive(Debug)]
#[must_use = "dropping the guard leaves the lock"]
pub struct ReentrantGuard {
    held: HeldEntry,
    owner: OwnerId,
}

impl ReentrantGuard {
    pub(crate) fn new(held: HeldEntry, owner: OwnerId) -> Self {
        Self { held, owner }
    }

    /// For patience that always ends in a guard or an error.
    pub(crate) fn certain(guard: Option<Self>) -> Self {
        guard.expect("waiting ends with a lock or an error")
    }

    guard_methods!();

    /// Whose entry this is.
    #[must_use]
    pub fn owner(&self) -> &OwnerId {
        &self.owner
    }

    /// How many entries the owner had when this one was made, this one included. Constant; no I/O.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.held.depth()
    }

    /// Undoes this entry and waits for the backend's word. Returns how many entries of the owner are left; with the last one
    /// the lock is free.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`], with the reason, when the hold had ended before; nobody else's lock was touched. Otherwise whatever
    /// the driver reports: the exit goes on in the background with the same token.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future is like dropping the guard: the exit goes on in the background.
    pub async fn release(self) -> Result<u32> {
        let (name, owner) = (self.name().clone(), self.owner);
        let call = |shared: Arc<Shared>, token, _| async move {
            let Some(driver) = shared.backend.reentrant() else {
                return Err(Error::new(ErrorKind::Unsupported, "this driver has no re-entrant locks"));
            };
            Ok(match driver.exit(&ReentrantHold { name, owner, token }).await? {
                Exited::Inside { depth } => Some(depth),
                Exited::Released => Some(0),
                Exited::NotHeld => None,
            })
        };
        self.held.give_back(call).await
    }
}
