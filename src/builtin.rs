//! The drivers of this crate.

use tenure_core::Result;
use tenure_core::driver::{Backend, BackendUrl};

use crate::scheme::Scheme;

/// Makes the backend that a URL of this scheme names.
pub(crate) async fn backend_of(scheme: Scheme, url: BackendUrl) -> Result<Backend> {
    #[allow(unused_mut, unused_variables, reason = "which drivers there are is a matter of features")]
    let mut url = url;
    match scheme {
        #[cfg(feature = "memory")]
        Scheme::Memory => memory(url),
        #[cfg(feature = "sqlite")]
        Scheme::Sqlite => {
            let config = tenure_sqlite::SqliteConfig::read(url)?;
            tenure_sqlite::SqliteDriver::connect_with(config).await.map(Backend::from)
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
            tenure_redis::RedisDriver::connect_with(config).await.map(Backend::from)
        }
        #[cfg(feature = "fred")]
        Scheme::Fred => {
            url.strip_scheme("fred+");
            let config = tenure_fred::RedisConfig::read(url)?;
            tenure_fred::FredDriver::connect_with(config).await.map(Backend::from)
        }
        #[cfg(feature = "etcd")]
        Scheme::Etcd => {
            let config = tenure_etcd::EtcdConfig::read(url)?;
            tenure_etcd::EtcdDriver::connect_with(config).await.map(Backend::from)
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
