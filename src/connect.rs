//! From a URL to a client.

use tenure_core::driver::Backend;
use tenure_core::{Client, Result};

use crate::scheme::Scheme;

/// A client of the backend that a URL names, with the default settings.
///
/// | URL | Cargo feature | backend |
/// |---|---|---|
/// | `memory:` | `memory` | a new store of this process; only this client and its clones see it |
/// | `memory:NAME` | `memory` | the store that this process knows by that name; all its clients meet in it |
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
/// What else a URL may say is told by `redis::RedisConfig::from_url` and `etcd::EtcdConfig`, and that of a quorum beside
/// it by `redlock::RedlockBuilder::settings_from_url`. The backend is reached once, so that a wrong address or password
/// is told here and now; later outages are waited out. Of a quorum a majority has to be there, and the rest joins later.
///
/// # Errors
///
/// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) when the URL cannot be read or its scheme is not
/// known; [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) when the driver is not compiled in, naming the
/// feature; whatever the driver reports. The URL, which may hold a password, is not repeated in the error.
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
/// let guard = client.lock("orders/42")?.acquire().await?;
/// assert!(guard.is_held());
/// guard.release().await?;
/// # Ok::<(), tenure::Error>(())
/// # }).unwrap();
/// ```
pub async fn connect(url: &str) -> Result<Client> {
    connect_backend(url).await.map(Client::new)
}

/// The backend that a URL names, for a client with settings of its own.
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
/// use std::time::Duration;
/// use tenure::Client;
///
/// let backend = tenure::connect_backend("memory:").await?;
/// let client = Client::builder(backend).ttl(Duration::from_secs(10)).build()?;
/// # Ok::<(), tenure::Error>(())
/// # }).unwrap();
/// ```
pub async fn connect_backend(url: &str) -> Result<Backend> {
    match Scheme::of(url)? {
        #[cfg(feature = "memory")]
        Scheme::Memory => memory(url),
        #[cfg(feature = "redis")]
        Scheme::Redis => tenure_redis::RedisDriver::connect_url(url).await.map(Backend::from),
        #[cfg(feature = "fred")]
        Scheme::Fred => tenure_fred::FredDriver::connect_url(url).await.map(Backend::from),
        #[cfg(feature = "etcd")]
        Scheme::Etcd => tenure_etcd::EtcdDriver::connect(url).await.map(Backend::from),
        #[cfg(all(feature = "redlock", feature = "redis"))]
        Scheme::RedlockRedis => {
            let (quorum, servers) = quorum(url, "redlock+")?;
            let servers = tenure_redis::RedisConfig::nodes_from_url(&servers)?;
            let nodes = tenure_redis::RedisDriver::connect_nodes(&servers).await?;
            quorum.nodes(nodes).build().map(Backend::from)
        }
        #[cfg(all(feature = "redlock", feature = "fred"))]
        Scheme::RedlockFred => {
            let (quorum, servers) = quorum(url, "redlock+fred+")?;
            let servers = tenure_fred::RedisConfig::nodes_from_url(&servers)?;
            let nodes = tenure_fred::FredDriver::connect_nodes(&servers).await?;
            quorum.nodes(nodes).build().map(Backend::from)
        }
        #[cfg(not(all(
            feature = "memory",
            feature = "redis",
            feature = "fred",
            feature = "etcd",
            feature = "redlock"
        )))]
        left_out => Err(left_out.left_out()),
    }
}

/// A quorum with its settings, and the URL of its nodes.
#[cfg(all(feature = "redlock", any(feature = "redis", feature = "fred")))]
fn quorum(url: &str, scheme: &str) -> Result<(tenure_redlock::RedlockBuilder, String)> {
    tenure_redlock::Redlock::builder().settings_from_url(&url[scheme.len()..])
}

#[cfg(feature = "memory")]
fn memory(url: &str) -> Result<Backend> {
    use tenure_memory::MemoryDriver;

    let name = url.split_once(':').map_or("", |(_, name)| name);
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.len() > 64 || !name.chars().all(plain) {
        let text = "the URL of a memory store is `memory:`, or `memory:` and a name of at most 64 letters, digits, \
                    `-`, `_` and `.`";
        return Err(crate::scheme::invalid(text.to_owned()));
    }
    Ok(Backend::from(if name.is_empty() { MemoryDriver::new() } else { MemoryDriver::named(name) }))
}
