//! The trait behind the list of held locks.

use std::fmt::{self, Debug};

use async_trait::async_trait;

use crate::driver::Holder;
use crate::value::error::{LockName, Result};

/// Lists the locks that are held under a prefix. A driver offers it where the backend can list names
/// ([`Backend::with_census`](super::Backend::with_census)); users call
/// [`Client::held_locks`](crate::Client::held_locks).
///
/// A list is for operators, and decides nothing: each lock on a page was held at some moment while the page was made, and
/// may be free by the time it arrives. Pages of one list belong to different moments. A lock that is held from before the
/// first request of a list until after the last one is on it; one that is taken or released meanwhile is or is not.
#[async_trait]
pub trait Census: Debug + Send + Sync + 'static {
    /// What a list promises. Constant; does no I/O.
    fn capabilities(&self) -> CensusCapabilities;

    /// A page of the locks that are held now and whose names begin with exactly the bytes of `prefix`: all locks if it is
    /// empty. Goes on at `from`, the [`next`](HeldPage::next) of the page before, or begins where there is none.
    ///
    /// At most `max` locks, which is 1 to [`max_page`](CensusCapabilities::max_page). A page may hold fewer, and none, and
    /// not be the last one: the work for one page is bounded by `max`, however many keys the backend has. Only a page
    /// without `next` is the last. Changes nothing.
    ///
    /// Locks that are free, or whose lease has ended, are not on it, and neither are names that are only waited for.
    ///
    /// May be called concurrently, and the future may be dropped half-way. A place that this driver did not give, or that it
    /// gave for another prefix, is refused with [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) or begins
    /// anywhere. A right that is missing is [`ErrorKind::Denied`](crate::ErrorKind::Denied), and names the right.
    async fn held(&self, prefix: &[u8], from: Option<&CensusPlace>, max: usize) -> Result<HeldPage>;
}

/// What a driver's list of held locks promises. Constant for the life of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CensusCapabilities {
    /// In which order the names come.
    pub order: CensusOrder,
    /// Whether those are counted who wait.
    pub waiters: WaitersCounted,
    /// The most locks of one page.
    pub max_page: usize,
}

impl CensusCapabilities {
    /// A list in this order, with pages of up to 500 locks and the number of those who wait.
    #[must_use]
    pub const fn new(order: CensusOrder) -> Self {
        Self { order, waiters: WaitersCounted::Yes, max_page: 500 }
    }
}

setters!(const CensusCapabilities {
    with_order => order: CensusOrder,
    with_waiters => waiters: WaitersCounted,
    with_max_page => max_page: usize,
});

/// In which order a list tells names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CensusOrder {
    /// In the order of their bytes, each once.
    Sorted,
    /// In no order. A name may come twice, on different pages, while the backend moves its keys.
    None,
}

/// Whether a list counts those who wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitersCounted {
    /// Yes, in the request that lists.
    Yes,
    /// No: [`HeldLock::waiters`] is `None`. [`inspect`](super::DistributedLock::inspect) counts those of one lock.
    No,
}

/// Where a list of held locks goes on. Opaque: of the driver that gave it, and of the prefix that was asked for.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct CensusPlace(Vec<u8>);

impl CensusPlace {
    /// A place of these bytes; what they mean is the driver's business.
    #[must_use]
    pub const fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// The bytes, as the driver gave them.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Debug for CensusPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CensusPlace(\"{}\")", self.0.escape_ascii())
    }
}

/// A page of held locks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldPage {
    /// The locks, in the order that [`CensusCapabilities::order`] tells.
    pub locks: Vec<HeldLock>,
    /// Where the list goes on; `None` behind its end.
    pub next: Option<CensusPlace>,
}

impl HeldPage {
    /// A page of these locks, behind which the list goes on at `next`.
    #[must_use]
    pub const fn new(locks: Vec<HeldLock>, next: Option<CensusPlace>) -> Self {
        Self { locks, next }
    }
}

setters!(HeldPage {
    with_locks => locks: Vec<HeldLock>,
    with_next => next: Option<CensusPlace>,
});

/// A lock that somebody holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldLock {
    /// Which lock.
    pub name: LockName,
    /// Who holds it, as [`inspect`](super::DistributedLock::inspect) tells. A re-entrant hold has an
    /// [`owner`](Holder::owner), and as many entries as [`depth`](Holder::depth) says.
    pub holder: Holder,
    /// How many places in its queue are taken; `None` where they are [not counted](WaitersCounted::No).
    pub waiters: Option<u32>,
}

impl HeldLock {
    /// A lock that this holder has, with an unknown number of those who wait.
    #[must_use]
    pub const fn new(name: LockName, holder: Holder) -> Self {
        Self { name, holder, waiters: None }
    }
}

setters!(HeldLock {
    with_name => name: LockName,
    with_holder => holder: Holder,
    with_waiters => waiters: Option<u32>,
});
