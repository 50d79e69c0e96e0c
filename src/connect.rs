//! Connections from a URL or a configuration to a client.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use tenure_core::driver::{Backend, BackendUrl};
use tenure_core::{Client, ClientBuilder, Result};

use crate::builtin::backend_of;
use crate::config::{ClientConfig, from_url, of_the_client};
use crate::scheme::{self, Scheme, invalid};

/// Makes a client of the backend that a URL names.
///
/// | URL | Cargo feature | backend |
/// |---|---|---|
/// | `memory:` | `memory` | a new store of this process; only this client and its clones see it |
/// | `memory:NAME` | `memory` | the store of that name in this process; all clients of that name share it |
/// | `sqlite:PATH`, `sqlite:///PATH` | `sqlite` | a file of this machine; created if it does not exist, in an existing folder |
/// | `sqlite:` | `sqlite` | the file of this user: `tenure/locks.db` in `$XDG_STATE_HOME` or `~/.local/state` |
/// | `postgres://user[:password]@host[:port],…[/database]` | `postgres` | a PostgreSQL server; also `postgresql://` |
/// | `mysql://user[:password]@host[:port]/database` | `mysql` | a MySQL or MariaDB server; also `mariadb://` |
/// | `redis://[user[:password]@]host[:port][/db]` | `redis` | a Redis server |
/// | `redis+unix:///path` | `redis` | a Redis server on this machine |
/// | `redis+cluster://host[:port],host[:port]…` | `redis` | a Redis Cluster |
/// | `redis+sentinel://host[:port],host[:port]…/service` | `redis` | the primary, as reported by the sentinels |
/// | `rediss…` instead of `redis` | `redis`, `tls` | the same over TLS; not for sockets |
/// | `fred+redis…` | `fred` | all of these, on the client library `fred` |
/// | `etcd://[user:password@]host[:port],host[:port]…` | `etcd` | an etcd cluster, by some or all of its members |
/// | `etcds` instead of `etcd` | `etcd`, `tls` | the same over TLS |
/// | `redlock+redis://[user[:password]@]host[:port],host[:port]…[/db]` | `redlock`, `redis` | a quorum of independent Redis servers |
/// | `redlock+fred+redis…` | `redlock`, `fred` | the same, on the client library `fred` |
///
/// The URL of every backend takes the settings of the client as parameters, such as `ttl_ms=10000`:
/// `docs/configuration.md` has the table. A [`ClientConfig`] may be given instead of a URL; its fields take precedence
/// over the parameters. The environment is not read unless [`ClientConfig::from_env`] is used.
///
/// The URL also takes this setting of the driver: `fence_floor`, the [number](crate::FenceFloor) that all fences
/// exceed, for rows that were fenced with another backend, prefix or name before. `docs/changing-the-backend.md`
/// explains when it is needed.
///
/// Schemes are case-insensitive; user, password, path and values are percent-encoded where they need it.
/// `sqlite::SqliteConfig`, `redis::RedisConfig::from_url` and `etcd::EtcdConfig` list the other parameters of a URL, and
/// `redlock::RedlockBuilder::settings_from_url` those of a quorum. The call connects to the backend once, so that a wrong
/// address or password is an error here; after a later outage the client connects again by itself. Of a quorum, a majority
/// has to answer, and the other nodes join later.
///
/// # Errors
///
/// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) when the URL cannot be read, its scheme or a
/// parameter is not known, or a setting is outside its limits (the ttl also, when the backend does not keep such
/// leases); [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) when the driver is not compiled in, with the name
/// of the feature; otherwise the driver's error. No part of user, password, or of an unknown parameter's value is
/// repeated.
///
/// # Cancel safety
///
/// Dropping the future closes the opened connections.
///
/// # Example
///
/// ```
/// # #[cfg(feature = "memory")]
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let client = tenure::connect("memory:").await?;
/// let guard = client.lock("orders/42").acquire().await?;
/// assert!(guard.is_held());
/// guard.release().await?;
/// # Ok::<(), tenure::Error>(())
/// # }).unwrap();
/// ```
pub async fn connect(to: impl Into<ClientConfig>) -> Result<Client> {
    Connectors::new().connect(to).await
}

/// Returns the builder of a client with the settings of a URL or a [`ClientConfig`], for further settings.
///
/// # Errors
///
/// As [`connect`].
///
/// # Cancel safety
///
/// As [`connect`].
///
/// # Example
///
/// ```
/// # #[cfg(feature = "memory")]
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let builder = tenure::connect_builder("memory:?ttl_ms=10000").await?;
/// let client = builder.holders_per_grant(1).build()?;
/// # Ok::<(), tenure::Error>(())
/// # }).unwrap();
/// ```
pub async fn connect_builder(to: impl Into<ClientConfig>) -> Result<ClientBuilder> {
    Connectors::new().connect_builder(to).await
}

/// Makes the backend that a URL names, for a client with its own settings.
///
/// # Errors
///
/// As [`connect`]; [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) also for settings of the client,
/// which a backend does not use.
///
/// # Cancel safety
///
/// As [`connect`].
///
/// # Example
///
/// ```
/// # #[cfg(feature = "memory")]
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use std::time::Duration;
/// use tenure::Client;
///
/// let backend = tenure::connect_backend("memory:").await?;
/// let client = Client::builder(backend).ttl(Duration::from_secs(10)).build()?;
/// # Ok::<(), tenure::Error>(())
/// # }).unwrap();
/// ```
pub async fn connect_backend(url: &str) -> Result<Backend> {
    Connectors::new().connect_backend(url).await
}

// Drivers of others.

/// A list of URL schemes with their connectors, through which [`connect`] reaches third-party drivers. The drivers of
/// this crate are always in it.
///
/// It is a value and not a registry of the process: two parts of a program, or two tests, may use one scheme for
/// different drivers, and nothing depends on the order of registration. Clones are cheap.
///
/// ```
/// # #[cfg(feature = "memory")]
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use tenure::Connectors;
/// use tenure::driver::{Backend, BackendUrl};
/// # use tenure::memory::MemoryDriver as TableDriver;
///
/// /// In the crate of a driver: reads its parameters, refuses others, connects.
/// async fn connect_table(mut url: BackendUrl) -> tenure::Result<Backend> {
///     let _table = url.text("table");
///     url.finish()?;
///     Ok(TableDriver::new().into())
/// }
///
/// let connectors = Connectors::new().with("table", connect_table)?;
/// let url = "table://host/?table=locks&ttl_ms=10000";
/// let client = connectors.connect(url).await?;
/// # Ok::<(), tenure::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Default)]
#[must_use = "it connects nothing until `connect`"]
pub struct Connectors {
    of_others: BTreeMap<String, Connector>,
}

type Connector = Arc<dyn Fn(BackendUrl) -> Connecting + Send + Sync>;
type Connecting = Pin<Box<dyn Future<Output = Result<Backend>> + Send>>;

impl Connectors {
    /// Makes a list of the compiled-in drivers of this crate only.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a connector for URLs of one more scheme. It gets the URL without the settings of the client, removes its
    /// own parameters, and calls [`BackendUrl::finish`](crate::driver::BackendUrl::finish), which refuses the others.
    /// Its errors must not repeat any part of the URL that may belong to a password. A driver of several schemes is
    /// given once for each.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) for a scheme that is already in the list, that
    /// this crate knows (also if its driver is not compiled in), or that is invalid. A valid one is a letter, followed
    /// by letters, digits, `+`, `-` and `.`, 32 at most. Capitals are the same as small letters.
    pub fn with<F>(mut self, scheme: &str, connector: impl Fn(BackendUrl) -> F + Send + Sync + 'static) -> Result<Self>
    where
        F: Future<Output = Result<Backend>> + Send + 'static,
    {
        let name = scheme::own_name(scheme)?;
        if self.of_others.contains_key(&name) {
            return Err(invalid(format!("there is a connector for the scheme \"{name}\" already")));
        }
        self.of_others.insert(name, Arc::new(move |url| Box::pin(connector(url))));
        Ok(self)
    }

    /// Makes a client of the backend that a URL or a [`ClientConfig`] names: see [`connect`](crate::connect()).
    ///
    /// # Errors
    ///
    /// As [`connect`](crate::connect()); otherwise the connector's error.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the connector's future, which closes its connections.
    pub async fn connect(&self, to: impl Into<ClientConfig>) -> Result<Client> {
        self.connect_builder(to).await?.build()
    }

    /// Returns the builder of a client with these settings: see [`connect_builder`](crate::connect_builder).
    ///
    /// # Errors
    ///
    /// As [`Connectors::connect`].
    ///
    /// # Cancel safety
    ///
    /// As [`Connectors::connect`].
    pub async fn connect_builder(&self, to: impl Into<ClientConfig>) -> Result<ClientBuilder> {
        self.builder_over(to.into(), ClientConfig::default()).await
    }

    /// Returns a builder as [`connect_builder`](Self::connect_builder), with other defaults.
    pub(crate) async fn builder_over(&self, mut config: ClientConfig, defaults: ClientConfig) -> Result<ClientBuilder> {
        let url = config.url.take().ok_or_else(|| invalid("the configuration has no URL of a backend".into()))?;
        let (driver, mut url) = self.driver(&url)?;
        let config = config.or(from_url(&mut url)?).or(defaults);
        config.apply(Client::builder(driver.backend(url).await?))
    }

    /// Makes the backend that a URL names, for a client with its own settings: see
    /// [`connect_backend`](crate::connect_backend).
    ///
    /// # Errors
    ///
    /// As [`connect_backend`](crate::connect_backend); otherwise the connector's error.
    ///
    /// # Cancel safety
    ///
    /// As [`Connectors::connect`].
    pub async fn connect_backend(&self, url: &str) -> Result<Backend> {
        let (driver, mut url) = self.driver(url)?;
        if let Some(name) = of_the_client(&mut url) {
            let text = format!("{name} is a setting of the client: use connect or connect_builder");
            return Err(invalid(text));
        }
        driver.backend(url).await
    }

    /// Returns the driver of this URL.
    fn driver(&self, url: &str) -> Result<(Driver, BackendUrl)> {
        let others = || self.of_others.keys().map(String::as_str);
        let url = scheme::parse(url, others())?;
        let driver = match self.of_others.get(url.scheme()) {
            Some(connector) => Driver::OfOthers(Arc::clone(connector)),
            None => Driver::Builtin(Scheme::of(&url).ok_or_else(|| scheme::unknown(&url, others()))?),
        };
        Ok((driver, url))
    }
}

impl fmt::Debug for Connectors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connectors").field(&self.of_others.keys()).finish()
    }
}

enum Driver {
    Builtin(Scheme),
    OfOthers(Connector),
}

impl Driver {
    async fn backend(self, url: BackendUrl) -> Result<Backend> {
        match self {
            Self::Builtin(scheme) => backend_of(scheme, url).await,
            Self::OfOthers(connector) => connector(url).await,
        }
    }
}
