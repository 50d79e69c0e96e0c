//! The backends that the workspace proves its own drivers on.
//!
//! | id | what |
//! |---|---|
//! | `memory/virtual-time` | the memory driver on a paused clock |
//! | `memory/no-passing`, `redis/no-passing` | clients that pass no lease on among their own waiters |
//! | `redis/single`, `fred/single` | the drivers on a `redis-server` of the harness's own |
//! | `…/resp2` | the same in the older protocol, on connections with a name |
//! | `…/tls` | the same over TLS, with certificates on both sides |
//! | `…/acl` | the same, as a user with exactly the rights that the driver's README lists |
//! | `…/cluster` | on a cluster of three primaries with a replica each |
//! | `…/sentinel` | on a primary and a replica, found through three sentinels |
//! | `redlock/memory-virtual-time` | a quorum of three memory stores on a paused clock |
//! | `redlock/3-live`, `5-live` | a quorum of three or five `redis-server`s |
//! | `redlock/2-live-1-dead` | the same, one of three killed before the clients connect |
//! | `redlock/slow-minority` | the same, two of five stopped after the clients connected |
//! | `etcd/single`, `etcd/3-members` | the `etcd` driver on clusters of the harness's own; with the feature `etcd` |
//! | `sqlite/file` | the `sqlite` driver, on a file of its own for each case |
//! | `mysql/mariadb` | the `mysql` driver on MariaDB servers of the harness's own |
//! | `postgres/unlogged`, `postgres/logged` | the `postgres` driver on servers of the harness's own |
//! | `postgres/pgbouncer` | the same, unlogged, through a PgBouncer in transaction mode |
//! | `redis/single@6.2`, `redis/acl@6.2` | the oldest server that is supported |
//! | `redis/single@valkey-9` | Valkey |
//! | `etcd/single@3.5`, `etcd/single@3.6` | other versions of etcd |
//! | `postgres/unlogged@18` | a newer PostgreSQL |
//! | `mysql/mysql@8.0` | the `mysql` driver on MySQL itself |
//!
//! The last ones run on servers that are fetched for them (`cargo xtask test` does that where it can).
//!
//! A backend is a [`HarnessMaker`]; `src/bin/conformance.rs` runs the suite on them.

pub mod chaos;
mod defaults;
#[cfg(feature = "etcd")]
mod etcd;
mod memory;
mod mysql;
mod other;
mod pages;
mod postgres;
mod proxied;
mod redis;
mod redlock;
mod sqlite;

use std::sync::Arc;

use tenure_conformance::HarnessMaker;
use tenure_core::driver::Backend;
use tenure_core::{Error, ErrorKind};

pub use defaults::{Defaults, defaults};
#[cfg(feature = "etcd")]
pub use etcd::EtcdMaker;
pub use memory::MemoryMaker;
pub use mysql::MysqlMaker;
pub use pages::{capabilities_page, cases_page, ids};
pub use postgres::PostgresMaker;
pub use redis::{Library, RedisMaker, Setup};
pub use redlock::{RedlockMaker, RedlockMemoryMaker};
pub use sqlite::SqliteMaker;

/// A connection to the backend at `url`, for a worker in another process.
///
/// # Errors
///
/// Those of the driver; `Unsupported` for a URL of no backend that other processes can reach.
pub async fn connect(url: &str) -> tenure_core::Result<Backend> {
    match url.split_once(':') {
        Some((scheme, _)) if scheme.contains("redis") => tenure::connect_backend(url).await,
        Some(("sqlite", _)) => Ok(tenure_sqlite::SqliteDriver::connect(url).await?.into()),
        Some(("postgres", _)) => Ok(tenure_postgres::PostgresDriver::connect(url).await?.into()),
        Some(("mysql", _)) => Ok(tenure_mysql::MysqlDriver::connect(url).await?.into()),
        #[cfg(feature = "etcd")]
        Some(("etcd", _)) => Ok(tenure_etcd::EtcdDriver::connect(url).await?.into()),
        _ => Err(Error::new(ErrorKind::Unsupported, "no backend that a worker can reach")),
    }
}

/// Every backend, in the order of the reports.
#[must_use]
pub fn makers() -> Vec<Arc<dyn HarnessMaker>> {
    let mut makers: Vec<Arc<dyn HarnessMaker>> =
        vec![Arc::new(MemoryMaker::new()), Arc::new(MemoryMaker::without_passing())];
    makers.extend(RedisMaker::all().map(|maker| Arc::new(maker) as Arc<dyn HarnessMaker>));
    makers.extend([
        Arc::new(RedisMaker::without_passing()) as Arc<dyn HarnessMaker>,
        Arc::new(RedlockMemoryMaker),
        Arc::new(RedlockMaker::live(3)),
        Arc::new(RedlockMaker::live(5)),
        Arc::new(RedlockMaker::with_a_dead_node()),
        Arc::new(RedlockMaker::with_a_slow_minority()),
        #[cfg(feature = "etcd")]
        Arc::new(EtcdMaker::single()),
        #[cfg(feature = "etcd")]
        Arc::new(EtcdMaker::three_members()),
        Arc::new(SqliteMaker),
        Arc::new(PostgresMaker::unlogged()),
        Arc::new(PostgresMaker::logged()),
        Arc::new(PostgresMaker::pooled()),
        Arc::new(MysqlMaker::mariadb()),
        Arc::new(RedisMaker::other(Setup::Single, "redis-6.2")),
        Arc::new(RedisMaker::other(Setup::Acl, "redis-6.2")),
        Arc::new(RedisMaker::other(Setup::Single, "valkey-9")),
        Arc::new(PostgresMaker::of_18()),
        Arc::new(MysqlMaker::of_8_0()),
        #[cfg(feature = "etcd")]
        Arc::new(EtcdMaker::of_3_5()),
        #[cfg(feature = "etcd")]
        Arc::new(EtcdMaker::of_3_6()),
    ]);
    makers
}
