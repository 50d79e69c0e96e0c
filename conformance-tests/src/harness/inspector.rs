//! A raw look at the store, without the driver.

use std::sync::Arc;

use async_trait::async_trait;
use tenure_core::LockName;

use super::{BoxError, words};

/// Looks at the store itself, so that a driver cannot hide leftovers.
#[async_trait]
pub trait Inspector: Send + Sync {
    /// The store's data for this name now: of the lock, the semaphore and the read-write lock together. An expired lease or waiter does not count, even if the store has not yet
    /// removed it.
    async fn residue(&self, name: &LockName) -> Result<Residue, BoxError>;

    /// The number of lock names with data in the store, held or not.
    async fn names(&self) -> Result<usize, BoxError>;
}

/// The inspector of a harness, whose own failures say that it failed, and not the driver.
pub(crate) struct Named(pub(crate) Arc<dyn Inspector>);

fn named(error: BoxError) -> BoxError {
    format!("the inspector of the harness failed: {}", words(&error)).into()
}

#[async_trait]
impl Inspector for Named {
    async fn residue(&self, name: &LockName) -> Result<Residue, BoxError> {
        self.0.residue(name).await.map_err(named)
    }

    async fn names(&self) -> Result<usize, BoxError> {
        self.0.names().await.map_err(named)
    }
}

/// A store's data for one name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Residue {
    /// Leases: at most one of the lock, and one for each hold of permits.
    pub leases: usize,
    /// Places in the queue.
    pub waiters: usize,
    /// Subscriptions to wake-ups of this name, where the store knows them by name.
    pub subscriptions: usize,
    /// Memories of abandoned tokens. They expire by themselves.
    pub tombstones: usize,
    /// Entries that would stay for ever if no client used the name again (keys without an end). Must be 0.
    pub endless: usize,
}

impl Residue {
    /// Whether the name has no holder, waiter or listener, and no entry stays for ever.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.leases == 0 && self.waiters == 0 && self.subscriptions == 0 && self.endless == 0
    }
}
