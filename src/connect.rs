//! From a URL to a client.

use std::time::Duration;

use tenure_core::driver::{Backend, BackendUrl};
use tenure_core::{Client, ClientBuilder, Result};

use crate::scheme::Scheme;

/// A client of the backend that a URL names.
///
/// | URL | Cargo feature | backend |
/// |---|---|---|
/// | `memory:` | `memory` | a new store of this process; only this client and its clones see it |
/// | `memory:NAME` | `memory` | the store that this process knows by that name; all its clients meet in it |
/// | `sqlite:PATH`, `sqlite:///PATH` | `sqlite` | a file of this machine; made if it is not there, in a folder that is |
/// | `sqlite:` | `sqlite` | the file of this user: `tenure/locks.db` in `$XDG_STATE_HOME` or `~/.local/state` |
/// | `redis://[user[:password]@]host[:port][/db]` | `redis` | a Redis server |
/// | `redis+unix:///path` | `redis` | a Redis server on this machine |
/// | `redis+cluster://host[:port],host[:port]…` | `redis` | a Redis Cluster |
/// | `redis+sentinel://host[:port],host[:port]…/service` | `redis` | the primary that sentinels name |
/// | `rediss…` in place of `redis` | `redis`, `tls` | the same over TLS; not for sockets |
/// | `fred+redis…` | `fred` | all of these, on the client library `fred` |
/// | `etcd://[user:password@]host[:port],host[:port]…` | `etcd` | an etcd cluster, by some or all of its members |
/// | `etcds` in place of `etcd` | `etcd`, `tls` | the same over TLS |
/// | `redlock+redis://[user[:password]@]host[:port],host[:port]…[/db]` | `redlock`, `redis` | a quorum of independent Redis servers |
/// | `redlock+fred+redis…` | `redlock`, `fred` | the same, on the client library `fred` |
///
/// The URL of every backend takes these settings of the client, in milliseconds; the others stay at their defaults:
///
/// | parameter | default | what |
/// |---|---|---|
/// | `ttl_ms` | 30000 | [`ClientBuilder::ttl`] |
/// | `op_timeout_ms` | 1000 | [`ClientBuilder::op_timeout`] |
/// | `presence_ms` | 15000 | [`ClientBuilder::presence`] |
///
/// And this setting of the driver: `fence_floor`, the [number](crate::FenceFloor) that all fences are greater than, for rows
/// that were fenced with another backend, prefix or name before. `docs/changing-the-backend.md` says when it is needed.
///
/// Schemes are case-insensitive; user, password, path and values are percent-encoded where they need it.
/// `sqlite::SqliteConfig`, `redis::RedisConfig::from_url` and `etcd::EtcdConfig` list the other parameters of a URL, and
/// `redlock::RedlockBuilder::settings_from_url` those of a quorum. The call connects to the backend once, so that a wrong
/// address or password is an error here; after a later outage the client connects again by itself. Of a quorum, a majority
/// has to answer, and the other nodes join later.
///
/// # Errors
///
/// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) when the URL cannot be read, its scheme or a parameter
/// is not known, or a setting is outside its limits (the ttl also, when the backend does not keep such leases); [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) when the driver is not compiled in, naming the
/// feature; whatever the driver reports. No part of user, password, or of an unknown parameter's value is repeated.
///
/// # Cancel safety
///
/// Dropping the future closes what was opened.
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
pub async fn connect(url: &str) -> Result<Client> {
    connect_builder(url).await?.build()
}

/// The builder of a client with the settings of a URL, for more settings of your own.
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
/// let client = tenure::connect_builder("memory:?ttl_ms=10000").await?.holders_per_grant(1).build()?;
/// # Ok::<(), tenure::Error>(())
/// # }).unwrap();
/// ```
pub async fn connect_builder(url: &str) -> Result<ClientBuilder> {
    let (scheme, mut url) = Scheme::read(url)?;
    let settings = SETTINGS.map(|(name, set)| (url.millis(name), set));
    let mut given: Vec<(Duration, Set)> = Vec::new();
    for (value, set) in settings {
        given.extend(value?.map(|value| (value, set)));
    }
    let backend = backend_of(scheme, url).await?;
    Ok(given.into_iter().fold(Client::builder(backend), |builder, (value, set)| set(builder, value)))
}

type Set = fn(ClientBuilder, Duration) -> ClientBuilder;

/// The settings of a client that a URL takes.
const SETTINGS: [(&str, Set); 3] = [
    ("ttl_ms", ClientBuilder::ttl),
    ("op_timeout_ms", ClientBuilder::op_timeout),
    ("presence_ms", ClientBuilder::presence),
];

/// The backend that a URL names, for a client with settings of its own.
///
/// # Errors
///
/// As [`connect`]; [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) also for settings of the client, which
/// a backend has no use for.
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
    let (scheme, mut url) = Scheme::read(url)?;
    if let Some((name, _)) = SETTINGS.into_iter().find(|(name, _)| url.text(name).is_some()) {
        let text = format!("{name} is a setting of the client, which connect and connect_builder take");
        return Err(crate::scheme::invalid(text));
    }
    backend_of(scheme, url).await
}

async fn backend_of(scheme: Scheme, url: BackendUrl) -> Result<Backend> {
    #[allow(unused_mut, unused_variables, reason = "which drivers there are is a matter of features")]
    let mut url = url;
    match scheme {
        #[cfg(feature = "memory")]
        Scheme::Memory => memory(url),
        #[cfg(feature = "sqlite")]
        Scheme::Sqlite => {
            let config = tenure_sqlite::SqliteConfig::read(url)?;
            tenure_sqlite::SqliteDriver::open(config).await.map(Backend::from)
        }
        #[cfg(feature = "postgres")]
        Scheme::Postgres => {
            let config = tenure_postgres::PostgresConfig::read(url)?;
            tenure_postgres::PostgresDriver::connect_with(config).await.map(Backend::from)
        }
        #[cfg(feature = "mysql")]
        Scheme::Mysql => {
            let config = tenure_mysql::MysqlConfig::read(url)?;
            tenure_mysql::MysqlDriver::connect_with(config).await.map(Backend::from)
        }
        #[cfg(feature = "redis")]
        Scheme::Redis => {
            let config = tenure_redis::RedisConfig::read(url)?;
            tenure_redis::RedisDriver::connect(config).await.map(Backend::from)
        }
        #[cfg(feature = "fred")]
        Scheme::Fred => {
            url.strip_scheme("fred+");
            let config = tenure_fred::RedisConfig::read(url)?;
            tenure_fred::FredDriver::connect(config).await.map(Backend::from)
        }
        #[cfg(feature = "etcd")]
        Scheme::Etcd => {
            let config = tenure_etcd::EtcdConfig::read(url)?;
            tenure_etcd::EtcdDriver::connect_to(config).await.map(Backend::from)
        }
        #[cfg(all(feature = "redlock", feature = "redis"))]
        Scheme::RedlockRedis => {
            url.strip_scheme("redlock+");
            let quorum = tenure_redlock::Redlock::builder().settings_from_url(&mut url)?;
            let servers = tenure_redis::RedisConfig::read_nodes(url)?;
            let nodes = tenure_redis::RedisDriver::connect_nodes(&servers).await?;
            quorum.nodes(nodes).build().map(Backend::from)
        }
        #[cfg(all(feature = "redlock", feature = "fred"))]
        Scheme::RedlockFred => {
            url.strip_scheme("redlock+fred+");
            let quorum = tenure_redlock::Redlock::builder().settings_from_url(&mut url)?;
            let servers = tenure_fred::RedisConfig::read_nodes(url)?;
            let nodes = tenure_fred::FredDriver::connect_nodes(&servers).await?;
            quorum.nodes(nodes).build().map(Backend::from)
        }
        #[cfg(not(all(
            feature = "memory",
            feature = "mysql",
            feature = "postgres",
            feature = "sqlite",
            feature = "redis",
            feature = "fred",
            feature = "etcd",
            feature = "redlock"
        )))]
        left_out => Err(left_out.left_out()),
    }
}

#[cfg(feature = "memory")]
fn memory(mut url: BackendUrl) -> Result<Backend> {
    use tenure_core::FenceFloor;
    use tenure_memory::{MemoryDriver, MemoryDriverBuilder};

    let name = url.path().to_owned();
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if url.has_slashes() || name.len() > 64 || !name.chars().all(plain) {
        let text = "the URL of a memory store is `memory:`, or `memory:` and a name of at most 64 letters, digits, \
                    `-`, `_` and `.`";
        return Err(crate::scheme::invalid(text.to_owned()));
    }
    let floor = FenceFloor::read(&mut url)?;
    url.finish()?;
    let store = floor.into_iter().fold(MemoryDriver::builder(), MemoryDriverBuilder::fence_floor);
    Ok(Backend::from(if name.is_empty() { store.build()? } else { store.named(&name)? }))
}
