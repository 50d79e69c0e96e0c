//! The driver: configuration in, driver traits out.

use std::sync::Arc;

use fred::clients::Client;
use fred::interfaces::ClientLike as _;
use fred::types::config::ServerConfig;
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
        RedisLocks::connect(FredDialer::default(), &config).await.map(|locks| Self { locks })
    }

    /// Sends commands through a client of yours (version 10 of the crate `fred`), which others may go on using. A second
    /// connection, which only listens for wake-ups, is opened by `config`: that says where the same server is, how to log in
    /// there, and all the rest.
    ///
    /// The client has to be connected, to one server. **Each command is sent at most once**, whatever the client's
    /// `max_command_attempts` (default: 3) and reconnect policy say: commands of locks carry options of their own, one attempt and
    /// `fail_fast`. A client that reconnects serves locks again when it has; without a policy it ends with its connection, and a new
    /// driver has to be made. Its `default_command_timeout` holds, beside the response timeout of `config`.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` when the client or `config` is of a cluster or of sentinels, or their databases differ; `Unavailable` when the client
    /// is not connected; `Misconfigured` when the two connections lead to different servers, by a message that is published
    /// on the one and has to be heard on the other; otherwise those of [`connect`](Self::connect).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes what was opened, and leaves the given client as it is.
    ///
    /// # Example
    ///
    /// ```no_run
    /// use fred::prelude::*;
    /// use tenure_fred::{FredDriver, RedisConfig};
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = Builder::from_config(Config::from_url("redis://127.0.0.1/")?).build()?;
    /// client.init().await?;
    /// let driver = FredDriver::connect_on(client.clone(), RedisConfig::from_url("redis://127.0.0.1/")?).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect_on(client: Client, config: RedisConfig) -> Result<Self> {
        let theirs = client.client_config();
        let invalid = |text: String| Err(Error::new(ErrorKind::InvalidArgument, text));
        if !matches!(theirs.server, ServerConfig::Centralized { .. } | ServerConfig::Unix { .. }) {
            return invalid(
                "a client that is given leads to one server, and this one to a cluster or to sentinels".into(),
            );
        }
        let database = u32::from(theirs.database.unwrap_or_default());
        if let Some(endpoint) = config.endpoints().first().filter(|endpoint| endpoint.database != database) {
            let ours = endpoint.database;
            return invalid(format!(
                "the given client uses the database {database}, and the configuration says {ours}"
            ));
        }
        RedisLocks::connect_given(FredDialer::on(client), &config).await.map(|locks| Self { locks })
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
        tenure_redis_support::connect_nodes(FredDialer::default(), nodes).await
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
