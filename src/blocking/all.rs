//! Several locks at once: all or none.

use super::lock::lock_methods;
use super::{Lock, LockAllGuard};

/// A handle on several locks, which are taken one after the other in the order of their names, all or none. Its methods
/// apply to all the locks together; see [`LockAll`](crate::LockAll).
///
/// ```
/// # #[cfg(feature = "memory")]
/// # fn main() -> tenure::Result<()> {
/// let client = tenure::blocking::connect("memory:")?;
/// let both = client.lock_all(["from/1", "to/2"]);
/// both.with(|guards| println!("fence {:?}", guards.fence("to/2")))?;
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "memory"))]
/// # fn main() {}
/// ```
#[derive(Clone, Debug)]
pub struct LockAll {
    inner: crate::LockAll,
}

impl From<crate::LockAll> for LockAll {
    fn from(inner: crate::LockAll) -> Self {
        Self { inner }
    }
}

impl LockAll {
    /// Returns a handle on these locks, of one client or of several, each with its own options:
    /// [`LockAll::of`](crate::LockAll::of).
    pub fn of(locks: impl IntoIterator<Item = Lock>) -> Self {
        crate::LockAll::of(locks.into_iter().map(Lock::into_async)).into()
    }

    lock_methods!(crate::LockAll, LockAllGuard);

    /// Keeps the locks taken until this long after the grant: [`Lock::at_least`](crate::Lock::at_least).
    #[must_use]
    pub fn at_least(self, least: std::time::Duration) -> Self {
        Self { inner: self.inner.at_least(least) }
    }
}
