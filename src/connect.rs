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
/// | `rediss://…` | `redis` | known, and refused by the driver until it has TLS |
///
/// What else a Redis URL may say is told by `redis::RedisConfig::from_url`. The backend is reached once, so that a
/// wrong address or password is told here and now; later outages are waited out.
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
        #[cfg(not(all(feature = "memory", feature = "redis")))]
        left_out => Err(left_out.left_out()),
    }
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
