//! The driver: configuration in, driver traits out.

use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use tenure_core::Result;
use tenure_core::driver::{Backend, DelayQueue, DistributedLock, QuorumNode, ReentrantLock};
use tenure_redis_support::{Notes, RedisConfig, RedisLocks, Remote};

use crate::dialer::{RedisDialer, as_said};

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
        RedisLocks::connect(RedisDialer::default(), &config).await.map(|locks| Self { locks })
    }

    /// Sends commands on a connection of yours (version 1 of the crate `redis`), which others may go on using. A second
    /// connection, which only listens for wake-ups, is opened by `config`: that says where the same server is, how to log in
    /// there, and all the rest. Say the [`database`](RedisConfig::database) that your connection has selected.
    ///
    /// A [`MultiplexedConnection`] sends each command at most once, which locks need. (A `ConnectionManager` is not accepted,
    /// since nobody could tell what became of a command that it carried while it connected anew.) Its response timeout and its name are
    /// left alone; its limit of concurrent commands holds, and counts into the response timeout of `config`.
    ///
    /// **It is never replaced**: when it ends, requests on their way are `Indeterminate`, later ones `Unavailable`, and a new
    /// driver has to be made. [`connect`](Self::connect) and [`connect_through`](Self::connect_through) open connections that are.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` when `config` is of a cluster or of sentinels; `Misconfigured` when the two connections
    /// lead to different servers, by a message that is published on the one and has to be heard on the other; otherwise those of
    /// [`connect`](Self::connect).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes what was opened, and leaves the given connection open.
    ///
    /// # Example
    ///
    /// ```no_run
    /// use tenure_redis::{RedisConfig, RedisDriver};
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = redis::Client::open("redis://127.0.0.1/")?;
    /// let connection = client.get_multiplexed_async_connection().await?;
    /// let driver = RedisDriver::connect_on(connection, RedisConfig::from_url("redis://127.0.0.1/")?).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect_on(connection: MultiplexedConnection, config: RedisConfig) -> Result<Self> {
        RedisLocks::connect_given(RedisDialer::On(connection), &config).await.map(|locks| Self { locks })
    }

    /// As [`connect`](Self::connect), by a client of yours (version 1 of the crate `redis`): where the server is, who logs in,
    /// the database, the protocol and TLS are the client's, and what `config` says of these is not used. `config` says all the
    /// rest: times, the name of the connections, and settings.
    ///
    /// The driver opens connections of its own by it, one with the newer protocol and two with the older, and opens others
    /// when they end. Each command is sent at most once, whatever the client is used for besides.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` when `config` is of a cluster or of sentinels, whose servers one client does not lead to; otherwise those of
    /// [`connect`](Self::connect).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes what was opened.
    ///
    /// # Example
    ///
    /// ```no_run
    /// use tenure_redis::{RedisConfig, RedisDriver};
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = redis::Client::open("redis://127.0.0.1/")?;
    /// let driver = RedisDriver::connect_through(client, RedisConfig::default()).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect_through(client: redis::Client, config: RedisConfig) -> Result<Self> {
        let config = as_said(&client, config)?;
        RedisLocks::connect(RedisDialer::Through(client), &config).await.map(|locks| Self { locks })
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
        tenure_redis_support::connect_nodes(RedisDialer::default(), nodes).await
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
