//! The driver, as users hold it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use etcd_client::{Compare, CompareOp, Txn, TxnResponse};
use tenure_core::driver::{AcquireRequest, Backend, DelayQueue, DistributedLock, ReentrantLock};
use tenure_core::{Error, ErrorKind, FencingToken, LockName, OwnerToken, Result};

use crate::config::EtcdConfig;
use crate::error::{of_a_first_request, of_a_read};
use crate::fences::Fences;
use crate::grants::{Leases, Revoked};
use crate::idle::Idle;
use crate::keys::{Keyspace, NameKeys};
use crate::link::Link;
use crate::queue::{Clock, Delivered, HeldLooks, QueueSpace, Signals};
use crate::session::Session;
use crate::tickets::Tickets;
use crate::watcher::Watcher;

/// What errors and spans call the driver.
pub(crate) const DRIVER: &str = "etcd";

/// Locks on one etcd cluster. Clones share the connection, the watch and the memory of abandoned tokens.
///
/// Connecting happens with the first call, on the tokio runtime that it is awaited in, and again whenever it is needed.
#[derive(Clone)]
pub struct EtcdDriver {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) config: EtcdConfig,
    pub(crate) link: Arc<Link>,
    pub(crate) leases: Arc<Leases>,
    pub(crate) idle: Arc<Idle>,
    pub(crate) keyspace: Keyspace,
    pub(crate) fences: Fences,
    pub(crate) tickets: Tickets,
    pub(crate) watcher: Watcher,
    pub(crate) session: Arc<Session>,
    pub(crate) queues: QueueSpace,
    pub(crate) clock: Arc<Clock>,
    pub(crate) signals: Signals,
    pub(crate) delivered: Delivered,
    pub(crate) held_looks: HeldLooks,
    /// How many receives are still to start behind the first message that is due, since others took what was due first.
    pub(crate) crowded: AtomicU32,
}

impl EtcdDriver {
    /// A driver for this configuration. Does no I/O and needs no runtime.
    #[must_use]
    pub fn new(config: EtcdConfig) -> Self {
        let link = Arc::new(Link::new(config.clone()));
        let keyspace = Keyspace::new(&config.prefix);
        let queues = QueueSpace::new(&config.prefix);
        let leases = Arc::new(Leases::new(Arc::clone(&link)));
        let watcher = Watcher::new(Arc::clone(&link), keyspace.clone());
        let session = Session::new(Arc::clone(&link), Arc::clone(&leases), keyspace.clone(), watcher.clone());
        let clock = Arc::new(Clock::default());
        let fences = Fences::new(Arc::clone(&link), keyspace.fences(), config.fence_floor);
        let signals = Signals::new(Arc::clone(&link), Arc::clone(&leases), queues.clone(), Arc::clone(&clock));
        let inner = Inner {
            leases,
            idle: Arc::default(),
            watcher,
            session,
            signals,
            clock,
            delivered: Delivered::default(),
            held_looks: HeldLooks::default(),
            crowded: AtomicU32::new(0),
            queues,
            fences,
            tickets: Tickets::default(),
            config,
            link,
            keyspace,
        };
        Self { inner: Arc::new(inner) }
    }

    /// A driver for this URL, after a request to the cluster has been answered. Each member has the
    /// [`connect_timeout`](EtcdConfig::connect_timeout) to answer. See [`EtcdConfig`] for the URL.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when the URL is not understood, [`ErrorKind::Unavailable`] when no member can be
    /// reached or answers in time, [`ErrorKind::Denied`] when the credentials or the right to read the prefix are refused.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn connect(url: &str) -> Result<Self> {
        Self::connect_to(url.parse()?).await
    }

    /// As [`connect`](Self::connect), with a configuration.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn connect_to(config: EtcdConfig) -> Result<Self> {
        let driver = Self::new(config);
        let (limit, members) = (driver.inner.config.connect_timeout, driver.inner.link.names());
        for _ in &members {
            // A member that does not answer is passed over by the next call.
            if let Ok(answered) = tokio::time::timeout(limit, driver.ping()).await {
                answered.map_err(of_a_first_request)?;
                return Ok(driver.clone());
            }
        }
        let text = format!("no answer within {limit:?} from any of {}", members.join(", "));
        Err(Error::new(ErrorKind::Unavailable, text))
    }

    /// Asks the cluster for something under the prefix, to learn whether it can be reached and read.
    ///
    /// # Errors
    ///
    /// As [`EtcdDriver::connect`].
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn ping(&self) -> Result<()> {
        let root = self.inner.keyspace.root();
        let options = etcd_client::GetOptions::new().with_prefix().with_count_only();
        let read = |stubs: crate::link::Stubs| {
            let options = options.clone();
            async move { stubs.kv().get(root, Some(options)).await.map(drop) }
        };
        self.inner.link.call(read).await.map_err(of_a_read)
    }

    /// The comparison that makes a transaction on the same etcd succeed only while this hold lasts: give it the name
    /// and the fence of a guard.
    ///
    /// This is the strongest protection there is: no clock is trusted, the write and the check are one step. One request,
    /// which learns in which revision the lock was granted.
    ///
    /// ```no_run
    /// # use tenure_core::LockGuard;
    /// # use tenure_etcd::EtcdDriver;
    /// # async fn example(driver: EtcdDriver, guard: LockGuard, mut etcd: etcd_client::Client)
    /// # -> Result<(), Box<dyn std::error::Error>> {
    /// use etcd_client::{Txn, TxnOp};
    ///
    /// let still_mine = driver.txn_guard(guard.name(), guard.fence()).await?;
    /// let write = Txn::new().when([still_mine]).and_then([TxnOp::put("stock/42", "7", None)]);
    /// if !etcd.txn(write).await?.succeeded() {
    ///     // the lock was lost, and nothing was written
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotHeld`] when the hold with this fence has ended; otherwise why the cluster did not answer.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn txn_guard(&self, name: &LockName, fence: FencingToken) -> Result<Compare> {
        let keys = self.inner.keys(name);
        let during = |error: Error| error.during(DRIVER, "guard", name);
        let hold = self.inner.hold(&keys).await.map_err(of_a_read).map_err(during)?;
        let Some(hold) = hold.filter(|hold| hold.fence() == Some(fence)) else {
            return Err(during(Error::new(ErrorKind::NotHeld, format!("the hold with the fence {fence} has ended"))));
        };
        Ok(Compare::create_revision(keys.hold(), CompareOp::Equal, hold.granted))
    }

    /// The key that exists exactly while the lock is held.
    #[must_use]
    pub fn hold_key(&self, name: &LockName) -> Vec<u8> {
        self.inner.keys(name).hold()
    }
}

impl Inner {
    pub(crate) fn keys(&self, name: &LockName) -> NameKeys {
        self.keyspace.of(name)
    }

    pub(crate) async fn txn(&self, txn: Txn) -> Result<TxnResponse> {
        self.link.txn(txn).await
    }

    /// Revokes a lease of this token.
    pub(crate) async fn give_up(&self, token: &OwnerToken, lease: i64) -> Result<Revoked> {
        let revoked = self.leases.revoke(lease).await?;
        self.tickets.end(token, lease);
        Ok(revoked)
    }

    /// Keeps a lease of this token for later, if nothing is on it nor can come to be on it; revokes it otherwise.
    pub(crate) async fn give_back(&self, token: &OwnerToken, lease: i64) -> Result<()> {
        if !self.keep_for_later(token, lease) {
            self.give_up(token, lease).await?;
        }
        Ok(())
    }

    /// Keeps a lease of this token, which nothing is on, for later, unless something can come to be on it.
    pub(crate) fn keep_for_later(&self, token: &OwnerToken, lease: i64) -> bool {
        let Some(free) = self.tickets.free(token, lease, |lease| self.idle.wants(lease)) else { return false };
        // Only whoever strikes it may give it away: an abandonment may have come in between, and revokes it.
        let struck = self.tickets.end(token, lease);
        if struck {
            self.idle.put(free, &self.leases);
        }
        struck
    }

    /// The ttl in the seconds that etcd counts in.
    pub(crate) fn ttl_secs(request: &AcquireRequest) -> Result<i64> {
        let ttl = request.ttl.get();
        if ttl.subsec_nanos() != 0 || ttl < crate::locks::SHORTEST {
            let text =
                format!("etcd keeps leases of whole seconds from {:?} on, not of {ttl:?}", crate::locks::SHORTEST);
            return Err(crate::config::invalid(text));
        }
        Ok(i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX))
    }
}

impl From<EtcdDriver> for Backend {
    fn from(driver: EtcdDriver) -> Self {
        let driver = Arc::new(driver);
        let locks: Arc<dyn DistributedLock> = driver.clone();
        let reentrant: Arc<dyn ReentrantLock> = driver.clone();
        let queue: Arc<dyn DelayQueue> = driver.clone();
        Self::new(locks).with_reentrant(reentrant).with_queue(queue).with_doctor(driver)
    }
}

impl fmt::Debug for EtcdDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdDriver").field("config", &self.inner.config).finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.session.abort();
        self.watcher.abort();
        self.signals.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tenure_core::driver::{Hold, Queueing};
    use tenure_testkit::{EtcdCluster, EtcdOptions};

    use super::*;

    #[tokio::test]
    async fn attempts_during_an_outage_are_not_remembered() {
        let mut cluster = EtcdCluster::single(EtcdOptions::new()).unwrap();
        let driver = EtcdDriver::new(cluster.url().parse().unwrap());
        let name = LockName::new("name").unwrap();
        let ttl = tenure_core::driver::Ttl::new(Duration::from_secs(30)).unwrap();
        let (queue, name_of) = (Queueing::None, || name.clone());
        let request = |token| AcquireRequest::new(name_of(), token, ttl).with_queue(queue);
        let token = OwnerToken::random();
        driver.acquire(&request(token)).await.unwrap();
        driver.release(&Hold::new(name.clone(), token)).await.unwrap();
        cluster.kill(0).unwrap();
        for _ in 0..20 {
            let token = OwnerToken::random();
            let error = driver.acquire(&request(token)).await.unwrap_err();
            assert!(!error.was_not_applied() || !driver.inner.tickets.know(&token), "{error}");
        }
    }
}
