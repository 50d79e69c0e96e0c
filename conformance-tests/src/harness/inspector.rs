//! A raw look at the store, past the driver.

use async_trait::async_trait;
use tenure_core::LockName;

use super::BoxError;

/// Looks at the store itself, so that a driver cannot hide what it left behind.
#[async_trait]
pub trait Inspector: Send + Sync {
    /// What the store holds for this name now. A lease or a waiter that has lapsed does not count, even if the store
    /// has not yet removed it.
    async fn residue(&self, name: &LockName) -> Result<Residue, BoxError>;

    /// How many names of locks the store keeps anything of, held or not.
    async fn names(&self) -> Result<usize, BoxError>;
}

/// What a store holds for one name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Residue {
    /// Leases: 0 or 1.
    pub leases: usize,
    /// Places in the queue.
    pub waiters: usize,
    /// Subscriptions to wake-ups of this name, where the store knows them by name.
    pub subscriptions: usize,
    /// Memories of abandoned tokens. They lapse by themselves.
    pub tombstones: usize,
    /// Entries that would stay for ever if nobody touched the name again (keys without an end). Must be 0.
    pub endless: usize,
}

impl Residue {
    /// Whether nobody holds, waits or listens, and nothing stays for ever.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.leases == 0 && self.waiters == 0 && self.subscriptions == 0 && self.endless == 0
    }
}
