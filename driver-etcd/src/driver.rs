//! The public driver type.

use std::fmt;
use std::sync::Arc;

use etcd_client::{Compare, CompareOp};
use tenure_core::driver::{Backend, ErrorExt as _};
use tenure_core::{Error, ErrorKind, FencingToken, LockName, Result};

use crate::config::EtcdConfig;
use crate::error::{of_a_first_request, of_a_read};
use crate::inner::Inner;
use crate::link::DRIVER;

/// A driver for locks on one etcd cluster. Clones share the connection, the watch and the memory of abandoned tokens.
///
/// The first call connects, on the tokio runtime in which it is awaited. Later calls reconnect when necessary.
#[derive(Clone)]
pub struct EtcdDriver {
    pub(crate) inner: Arc<Inner>,
}

impl EtcdDriver {
    /// A driver for this configuration. Does no I/O and needs no runtime.
    #[must_use]
    pub fn new(config: EtcdConfig) -> Self {
        Self { inner: Arc::new(Inner::new(config)) }
    }

    /// Creates a driver for this URL, after the cluster has answered a request. Each member has the
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
        Self::connect_with(url.parse()?).await
    }

    /// Like [`connect`](Self::connect), with a configuration.
    ///
    /// # Errors
    ///
    /// Like [`connect`](Self::connect).
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn connect_with(config: EtcdConfig) -> Result<Self> {
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

    /// Sends a read request under the prefix, to check that the cluster can be reached and read.
    ///
    /// # Errors
    ///
    /// Like [`EtcdDriver::connect`].
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

    /// Returns a comparison for a transaction on the same etcd, which then succeeds only while this hold lasts. Pass
    /// the name and the fence of a guard.
    ///
    /// This is the strongest protection: it trusts no clock, and the write and the check are one step. Costs one
    /// request, which returns the revision in which the lock was granted.
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
    /// [`ErrorKind::NotHeld`] when the hold with this fence has ended; otherwise the reason why the cluster did not
    /// answer.
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

impl From<EtcdDriver> for Backend {
    fn from(driver: EtcdDriver) -> Self {
        let driver = Arc::new(driver);
        Self::new(driver.clone())
            .with_reentrant(driver.clone())
            .with_permits(driver.clone())
            .with_queue(driver.clone())
            .with_queue_admin(driver.clone())
            .with_census(driver.clone())
            .with_doctor(driver)
    }
}

impl fmt::Debug for EtcdDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdDriver").field("config", &self.inner.config).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tenure_core::OwnerToken;
    use tenure_core::driver::{AcquireRequest, DistributedLock as _, Hold, Queueing};

    use super::*;
    use crate::test_support::served;

    #[tokio::test]
    async fn attempts_during_an_outage_are_not_remembered() {
        let (mut cluster, driver) = served();
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
