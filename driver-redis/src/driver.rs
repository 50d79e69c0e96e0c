//! The driver: configuration in, driver traits out.

use std::sync::Arc;

use tenure_core::Result;
use tenure_core::driver::{Backend, DelayQueue, DistributedLock, QuorumNode, ReentrantLock};
use tenure_redis_support::{Notes, RedisConfig, RedisLocks, Remote};

use crate::dialer::RedisDialer;

/// A connected driver. Clones share the connections.
///
/// It implements `DistributedLock`, `ReentrantLock` and `DelayQueue` through [`Backend`]; [`RedisDriver::locks`] is the
/// implementation itself.
#[derive(Clone, Debug)]
pub struct RedisDriver {
    locks: RedisLocks<Remote<RedisDialer>>,
}

impl RedisDriver {
    /// Connects to the server, the cluster, or the primary behind sentinels, and checks that it is fit to keep locks.
    /// Needs a tokio runtime, which the connections and the tasks that keep them alive stay on.
    ///
    /// # Errors
    ///
    /// `Unavailable` when a server cannot be reached or does not answer in time, `Denied` for wrong credentials or a
    /// missing right, which is named, `Misconfigured` for a replica, an old server, an eviction policy other than
    /// `noeviction`, or another topology than the configuration says, `Unsupported` for TLS without the feature `tls`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes what was opened.
    pub async fn connect(config: RedisConfig) -> Result<Self> {
        RedisLocks::connect(RedisDialer, &config).await.map(|locks| Self { locks })
    }

    /// Connects to what a URL names; see [`RedisConfig::from_url`].
    ///
    /// # Errors
    ///
    /// Those of [`RedisConfig::from_url`] and [`RedisDriver::connect`].
    ///
    /// # Cancel safety
    ///
    /// As [`RedisDriver::connect`].
    pub async fn connect_url(url: &str) -> Result<Self> {
        Self::connect(RedisConfig::from_url(url)?).await
    }

    /// Connects to independent servers, the nodes of a quorum, which are returned with their names. A minority may be
    /// down: it joins when it comes back.
    ///
    /// # Errors
    ///
    /// Those of [`RedisDriver::connect`], naming the node; `Unavailable` only when no majority can be reached.
    ///
    /// # Cancel safety
    ///
    /// As [`RedisDriver::connect`].
    pub async fn connect_nodes(nodes: &[RedisConfig]) -> Result<Vec<(String, Arc<dyn QuorumNode>)>> {
        tenure_redis_support::connect_nodes(RedisDialer, nodes).await
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

impl From<RedisDriver> for Backend {
    fn from(driver: RedisDriver) -> Self {
        driver.locks.into()
    }
}
