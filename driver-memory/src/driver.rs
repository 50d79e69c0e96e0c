//! The driver: a connection to a store.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenure_core::driver::{Backend, ErrorExt as _};
use tenure_core::rules::locks::Waiter;
use tenure_core::{Error, ErrorKind, FenceFloor, LockName, OwnerToken, Result};

use crate::faults::Faults;
use crate::link::{Failure, Link, Operation};
use crate::store::{Caps, Residue, Store};

/// A driver for locks within one process: a connection to the store that keeps them.
///
/// A clone is another connection to the same store and shares its link, so faults affect both; closing one does not
/// close the other. [`another_client`](Self::another_client) returns a client with its own link. Several clients over
/// clones of one driver act like several processes over one server.
///
/// The constructor needs no runtime. All times are tokio's, so a paused runtime makes all behaviour deterministic; do
/// not share one store between a paused runtime and another one.
pub struct MemoryDriver {
    store: Arc<Store>,
    link: Arc<Link>,
    closed: AtomicBool,
}

/// A builder that sets the caps of a store and the beginning of its fences. Made by [`MemoryDriver::builder`].
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct MemoryDriverBuilder {
    caps: Caps,
    floor: Option<FenceFloor>,
}

impl MemoryDriver {
    /// A new, empty store with the default caps.
    #[must_use]
    pub fn new() -> Self {
        Self::over(Store::new(Caps::DEFAULT, None))
    }

    /// A new, empty store with custom caps.
    pub fn builder() -> MemoryDriverBuilder {
        MemoryDriverBuilder { caps: Caps::DEFAULT, floor: None }
    }

    /// A new client of this process's store of that `name`, with the default caps. The store lives as long as any of
    /// its clients; after that the name creates a new, empty one.
    ///
    /// Use it in applications that create clients in several places and need them to share locks. Tests share one
    /// process: give each a separate name, or better a separate store.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self::over(Store::named(name, Caps::DEFAULT, None))
    }

    /// Another client of the same store, with its own link: faults of one do not affect the other.
    #[must_use]
    pub fn another_client(&self) -> Self {
        Self::over(Arc::clone(&self.store))
    }

    /// Makes all later fences of the store, of locks and of deliveries, greater than this. Fences never fall: a floor
    /// below them has no effect. Votes, as a node of a quorum, follow the quorum's floor.
    pub fn raise_fences(&self, floor: FenceFloor) {
        self.store.raise_fences(floor);
    }

    /// The hooks that inject faults into this connection, or into the leases of its store.
    pub fn faults(&self) -> Faults {
        Faults::new(&self.store, &self.link)
    }

    /// What the store remembers at this moment, after everything expired was dropped: for tests that prove that nothing
    /// is left behind. Looks at every name.
    #[must_use]
    pub fn residue(&self) -> Residue {
        self.store.residue()
    }

    /// The waiters of a lock, in order of arrival, and how long each still counts as present: for tests that compare
    /// the store with another backend.
    #[must_use]
    pub fn waiters(&self, name: &LockName) -> Vec<(OwnerToken, Duration)> {
        let left = |time, waiter: &Waiter<()>| (waiter.token, waiter.present.saturating_sub(time));
        self.store.with_entry(name, |entry| {
            entry.record.settle(entry.time);
            entry.record.line.iter().map(|waiter| left(entry.time, waiter)).collect()
        })
    }

    fn over(store: Arc<Store>) -> Self {
        let link = store.connect();
        Self { store, link, closed: AtomicBool::new(false) }
    }

    /// The same for all clients of a store, and for no other store while it lives.
    pub(crate) fn store_identity(&self) -> String {
        format!("memory {:p}", Arc::as_ptr(&self.store))
    }

    pub(crate) fn caps(&self) -> Caps {
        self.store.caps
    }

    pub(crate) fn link(&self) -> Arc<Link> {
        Arc::clone(&self.link)
    }

    pub(crate) fn close_connection(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Carries a call over the link.
    pub(crate) async fn carry<T: Send + 'static>(
        &self,
        operation: Operation,
        apply: impl FnOnce(&Store) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Failure::CLOSED);
        }
        let store = Arc::clone(&self.store);
        self.link.carry(operation, move || apply(&store)).await
    }

    /// Carries a call about one name over the link.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        operation: Operation,
        name: &LockName,
        apply: impl FnOnce(&Store, &LockName) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let same = name.clone();
        let carried = self.carry(operation, move |store| apply(store, &same)).await;
        let answer = carried.map_err(Failure::error).and_then(|answer| answer);
        answer.map_err(|error| error.during(DRIVER, operation.as_str(), name))
    }
}

/// The driver's short name.
pub(crate) const DRIVER: &str = "memory";

impl fmt::Debug for MemoryDriver {
    /// Without the contents of the store, which may be large.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryDriver").field("caps", &self.store.caps).finish_non_exhaustive()
    }
}

impl Default for MemoryDriver {
    fn default() -> Self {
        Self::new()
    }
}

impl Clone for MemoryDriver {
    fn clone(&self) -> Self {
        let (store, link) = (Arc::clone(&self.store), Arc::clone(&self.link));
        Self { store, link, closed: AtomicBool::new(false) }
    }
}

impl From<MemoryDriver> for Backend {
    fn from(driver: MemoryDriver) -> Self {
        let driver = Arc::new(driver);
        Self::new(Arc::clone(&driver) as _)
            .with_reentrant(Arc::clone(&driver) as _)
            .with_permits(Arc::clone(&driver) as _)
            .with_census(Arc::clone(&driver) as _)
            .with_queue(Arc::clone(&driver) as _)
            .with_queue_admin(driver)
    }
}

impl MemoryDriverBuilder {
    /// The largest number of waiters of one name; one more is refused. 1 to 1,000,000; default 10,000.
    pub fn max_waiters(mut self, most: u32) -> Self {
        self.caps.locks.waiters = most;
        self.caps.permits.waiters = most;
        self
    }

    /// The deepest re-entry of one owner; one deeper is refused. 1 to 65,535, which is the default.
    pub fn max_depth(mut self, deepest: u32) -> Self {
        self.caps.locks.depth = deepest;
        self
    }

    /// The largest number of messages of a delay queue, dead ones not counted; one more is refused. Default
    /// 100,000,000.
    pub fn max_messages(mut self, most: u64) -> Self {
        self.caps.queues.backlog = most;
        self
    }

    /// The largest number of dead letters of a delay queue; one more waits. Default 100,000.
    pub fn max_dead_letters(mut self, most: u64) -> Self {
        self.caps.queues.dead_letters = most;
        self
    }

    /// The largest number of bytes of one push to a delay queue, as
    /// [`QueueCapabilities::request_bytes`](tenure_core::driver::QueueCapabilities::request_bytes) counts them; more
    /// are refused, and a payload has half of them at most. Default: no bound.
    pub fn max_request_bytes(mut self, most: usize) -> Self {
        self.caps.queues.request_bytes = most;
        self
    }

    /// The lower bound of all fences, of locks and of deliveries. Default: the wall clock when the store is created, in
    /// microseconds since 1970, so that fences continue from those of any other backend. With [`FenceFloor::NONE`] they
    /// are 1, 2, 3 …, the same each time.
    ///
    /// From there, the store counts by itself. Its fences stay behind the clock while it grants fewer than 125,000
    /// locks a second (a grant carries up to eight fences).
    pub fn fence_floor(mut self, floor: FenceFloor) -> Self {
        self.floor = Some(floor);
        self
    }

    /// A new, empty store.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when a cap is outside its limits.
    pub fn build(self) -> Result<MemoryDriver> {
        self.check()?;
        Ok(MemoryDriver::over(Store::new(self.caps, self.floor)))
    }

    /// A new client of this process's store of that `name`, as [`MemoryDriver::named`]. These settings apply if the
    /// name is unused now. A store in use keeps its caps, and its fences continue beyond the
    /// [floor](Self::fence_floor).
    ///
    /// # Errors
    ///
    /// Like [`build`](Self::build).
    pub fn named(self, name: &str) -> Result<MemoryDriver> {
        self.check()?;
        Ok(MemoryDriver::over(Store::named(name, self.caps, self.floor)))
    }

    fn check(self) -> Result<()> {
        check("max_waiters", self.caps.locks.waiters, Caps::MOST_WAITERS)?;
        check("max_depth", self.caps.locks.depth, Caps::DEEPEST)
    }
}

fn check(what: &str, value: u32, most: u32) -> Result<()> {
    if (1..=most).contains(&value) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::InvalidArgument, format!("{what} of {value} is outside 1 to {most}")))
}
