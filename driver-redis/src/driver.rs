//! The driver: configuration in, driver traits out.

use std::sync::Arc;

use tenure_core::driver::{Backend, DelayQueue, DistributedLock, ReentrantLock};
use tenure_core::{Error, Result};
use tenure_redis_support::{ClientId, Keyspace, Notes, RedisLocks, WakeLink};

use crate::config::RedisConfig;
use crate::link::{ConnectError, Link};

/// A connected driver. Clones share the connection.
///
/// It implements `DistributedLock`, `ReentrantLock` and `DelayQueue` through [`Backend`]; [`RedisDriver::locks`] is the
/// implementation itself.
#[derive(Clone, Debug)]
pub struct RedisDriver {
    locks: RedisLocks<Link>,
}

impl RedisDriver {
    /// Connects to the server and checks that it is fit to keep locks. Needs a tokio runtime, which the connection and
    /// the task that keeps it alive stay on.
    ///
    /// # Errors
    ///
    /// `Unavailable` when the server cannot be reached or does not answer in time, `Denied` for wrong credentials or a
    /// missing right, which is named, `Misconfigured` for a replica, a cluster node, an old server or an eviction
    /// policy other than `noeviction`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes what was opened.
    pub async fn connect(config: RedisConfig) -> Result<Self> {
        let settings = config.settings.clone();
        let keys = Keyspace::of(&settings, ClientId::random());
        let wake = WakeLink::default();
        let link = match Link::connect(config, keys.wake_channel(), wake.clone()).await {
            Ok(link) => link,
            Err(ConnectError::Config(error)) => return Err(error),
            Err(ConnectError::Exec(error)) => return Err(keys.explain(error)),
        };
        RedisLocks::checked(link, keys, settings, wake).await.map(|locks| Self { locks })
    }

    /// Connects to the server that a URL names; see [`RedisConfig::from_url`].
    ///
    /// # Errors
    ///
    /// Those of [`RedisConfig::from_url`] and [`RedisDriver::connect`].
    ///
    /// # Cancel safety
    ///
    /// As [`RedisDriver::connect`].
    pub async fn connect_url(url: &str) -> Result<Self, Error> {
        Self::connect(RedisConfig::from_url(url)?).await
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
}

impl From<RedisDriver> for Backend {
    fn from(driver: RedisDriver) -> Self {
        let locks = Arc::new(driver.locks);
        Self::new(Arc::clone(&locks) as _).with_reentrant(Arc::clone(&locks) as _).with_queue(locks)
    }
}
