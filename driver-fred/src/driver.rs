//! The driver: configuration in, driver traits out.

use std::sync::Arc;

use tenure_core::driver::{Backend, BackendUrl, DelayQueue, DistributedLock, QuorumNode, ReentrantLock};
use tenure_core::{Error, ErrorKind, Result};
use tenure_redis_support::{Notes, RedisConfig, RedisLocks, Remote};

use crate::dialer::FredDialer;

/// A connected driver. Clones share the connections.
///
/// It implements `DistributedLock`, `ReentrantLock` and `DelayQueue` through [`Backend`]; [`FredDriver::locks`] is the
/// implementation itself.
#[derive(Clone, Debug)]
pub struct FredDriver {
    locks: RedisLocks<Remote<FredDialer>>,
}

impl FredDriver {
    /// Connects to the server, the cluster, or the primary behind sentinels, and checks that it is fit to keep locks.
    /// Needs a tokio runtime, which the connections and the tasks that keep them alive stay on.
    ///
    /// # Errors
    ///
    /// `Unavailable` when a server cannot be reached or does not answer in time, `Denied` for wrong credentials or a
    /// missing right, which is named, `Misconfigured` for a replica, an old server, an eviction policy other than
    /// `noeviction`, or another topology than the configuration says, `Unsupported` for TLS without the feature `tls`
    /// and for a database above 255.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes what was opened.
    pub async fn connect(config: RedisConfig) -> Result<Self> {
        RedisLocks::connect(FredDialer, &config).await.map(|locks| Self { locks })
    }

    /// Connects to what a URL names: `fred+` and a URL as [`RedisConfig::from_url`] reads it, such as
    /// `fred+redis://127.0.0.1/` or `fred+redis+unix:///run/redis.sock`.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` when the URL does not begin with `fred+`; otherwise those of [`RedisConfig::from_url`] and
    /// [`FredDriver::connect`].
    ///
    /// # Cancel safety
    ///
    /// As [`FredDriver::connect`].
    pub async fn connect_url(url: &str) -> Result<Self> {
        let mut url = BackendUrl::parse(url)?;
        if !url.strip_scheme("fred+") {
            return Err(Error::new(ErrorKind::InvalidArgument, "the URL does not begin with fred+"));
        }
        Self::connect(RedisConfig::read(url)?).await
    }

    /// Connects to independent servers, the nodes of a quorum, which are returned with their names. A minority may be
    /// down: it joins when it comes back.
    ///
    /// # Errors
    ///
    /// Those of [`FredDriver::connect`], naming the node; `Unavailable` only when no majority can be reached.
    ///
    /// # Cancel safety
    ///
    /// As [`FredDriver::connect`].
    pub async fn connect_nodes(nodes: &[RedisConfig]) -> Result<Vec<(String, Arc<dyn QuorumNode>)>> {
        tenure_redis_support::connect_nodes(FredDialer, nodes).await
    }

    /// What the check at the start could not look at, or was told to overlook.
    #[must_use]
    pub fn notes(&self) -> &Notes {
        self.locks.notes()
    }

    /// The implementation of the driver traits.
    #[must_use]
    pub fn locks(&self) -> Arc<impl DistributedLock + ReentrantLock + DelayQueue> {
        Arc::new(self.locks.clone())
    }

    /// The server as a node of a quorum.
    #[must_use]
    pub fn node(&self) -> Arc<dyn QuorumNode> {
        Arc::new(self.locks.clone())
    }
}

impl From<FredDriver> for Backend {
    fn from(driver: FredDriver) -> Self {
        driver.locks.into()
    }
}
