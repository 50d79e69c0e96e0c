//! The fault hooks: an application uses them to rehearse failures of its locks.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::driver::ForceReleased;
use tenure_core::{ErrorKind, LockName, Result};

use crate::link::{Fault, Link, Operation, Traffic, Wakeups};
use crate::store::Store;

/// Injects faults, deterministically. Made by [`MemoryDriver::faults`](crate::MemoryDriver::faults).
///
/// There are two kinds of hooks, for two questions:
///
/// * **What if the lease ends?** [`expire`](Self::expire) and [`lose`](Self::lose) act on the store, so every
///   connection sees the effect.
/// * **What if the link is bad?** All others act on their own connection, and on its clones. A driver made with
///   [`another_client`](crate::MemoryDriver::another_client) has its own link, so a test can cut off one client while
///   another continues. [`heal`](Self::heal) ends all faults at once.
///
/// Faults that are scripted for the *next* call queue up: two of them affect the next two calls. An engine that renews,
/// retries or cleans up calls the driver too; [`calls`](Self::calls) returns the count.
///
/// Under `#[tokio::test(start_paused = true)]` all of this is deterministic, and no test waits for real time.
///
/// # Example
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
/// use tenure_core::driver::{AcquireRequest, Acquisition, DistributedLock, Hold, Queueing, Renewed};
/// use tenure_core::driver::Ttl;
/// use tenure_core::{ErrorKind, LockName, OwnerToken};
/// use tenure_memory::{MemoryDriver, Operation};
/// use std::time::Duration;
///
/// let driver = MemoryDriver::new();
/// let (name, token) = (LockName::new("orders/42")?, OwnerToken::random());
/// let ttl = Ttl::new(Duration::from_secs(30))?;
/// let request = AcquireRequest::new(name.clone(), token, ttl);
///
/// driver.faults().lose_reply_next(Operation::Acquire);
/// let unknown = driver.acquire(&request).await.unwrap_err();
/// // It was taken, and the reply is lost.
/// assert_eq!(unknown.kind(), ErrorKind::Indeterminate);
///
/// assert!(matches!(driver.acquire(&request).await?, Acquisition::Granted(_)));
/// driver.faults().expire("orders/42")?;
/// assert_eq!(driver.renew(ttl, &[Hold::new(name, token)]).await.remove(0)?, Renewed::Lost);
/// # Ok::<(), tenure_core::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Faults {
    store: Arc<Store>,
    link: Arc<Link>,
}

impl Faults {
    pub(crate) fn new(store: &Arc<Store>, link: &Arc<Link>) -> Self {
        Self { store: Arc::clone(store), link: Arc::clone(link) }
    }

    /// Ends the lease on `name` at the store *now*, as if it had expired, without notification: neither the holder nor
    /// a waiter is notified. The holder sees it at its next renewal or release.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when `name` is not the name of a lock.
    pub fn expire(&self, name: impl AsRef<[u8]>) -> Result<ForceReleased> {
        let name = LockName::new(name)?;
        Ok(self.store.with_entry(&name, |entry| match entry.hold().take() {
            Some(_) => ForceReleased::Released,
            None => ForceReleased::NotHeld,
        }))
    }

    /// Takes the lock from its holder, as an operator would: the first waiter is woken, and the holder learns of it at
    /// its next renewal.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when `name` is not the name of a lock.
    pub fn lose(&self, name: impl AsRef<[u8]>) -> Result<ForceReleased> {
        let name = LockName::new(name)?;
        Ok(self.store.force_release(&name, None))
    }

    /// The store forgets everything at once, fence counters included, like a server without persistence that restarts.
    /// All waiters of all connections are woken, as after a reconnect.
    ///
    /// This breaks a declared promise of the driver: the same fences occur again. Use it for stores that are nodes of a
    /// quorum, which has to cope. As such a node, a store votes again only after it has kept its memory for long
    /// enough.
    pub fn restart_empty(&self) {
        self.store.forget_everything();
    }

    /// The next call fails with this kind and changes nothing.
    pub fn fail_next(&self, operation: Operation, kind: ErrorKind) {
        self.link.script(operation, Fault::Fail(kind));
    }

    /// The next call is applied, and then fails with [`ErrorKind::Indeterminate`]: its reply is lost.
    pub fn lose_reply_next(&self, operation: Operation) {
        self.link.script(operation, Fault::LoseReply);
    }

    /// The next call hangs until [`heal`](Self::heal). Then the store executes it, even if its caller has given up
    /// meanwhile: a request that was sent cannot be withdrawn.
    pub fn hang_next(&self, operation: Operation) {
        self.link.script(operation, Fault::Hang);
    }

    /// Every request takes this long to reach the store; zero ends the delay. A request whose caller gives up earlier
    /// has no effect.
    pub fn delay(&self, operation: Operation, takes: Duration) {
        self.link.slow_request(operation, takes);
    }

    /// Every reply takes this long to return; zero ends the delay. A request whose caller gives up earlier has had its
    /// effect.
    pub fn delay_reply(&self, operation: Operation, takes: Duration) {
        self.link.slow_reply(operation, takes);
    }

    /// From now on every call fails with [`ErrorKind::Unavailable`] and no wake-up arrives: the backend is down. A
    /// reply that is on its way is lost.
    pub fn outage(&self) {
        self.link.set_traffic(Traffic::Refused);
    }

    /// From now on every call hangs and no wake-up arrives: the link went silent without closing. The store executes
    /// these calls when [healed](Self::heal), in their order, even if the caller has given up.
    pub fn silence(&self) {
        self.link.set_traffic(Traffic::Hangs);
    }

    /// Delivers or drops wake-ups. Unlike during an [`outage`](Self::outage), calls still work.
    pub fn set_wakeups(&self, wakeups: Wakeups) {
        self.link.set_wakeups(wakeups);
    }

    /// Ends every fault of this connection, including scripted ones that no call has met yet. Hanging calls are
    /// executed, and all waiters are woken, as after a reconnect.
    pub fn heal(&self) {
        self.link.heal();
    }

    /// The number of calls of this connection so far, including those that met a fault.
    #[must_use]
    pub fn calls(&self, operation: Operation) -> u64 {
        self.link.calls(operation)
    }
}
