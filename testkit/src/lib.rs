//! Real servers for tests: each is started by the test that owns it, in a directory of its own, on loopback or a unix
//! socket, and is killed when it is dropped.
//!
//! ```no_run
//! use tenure_testkit::{PgBouncer, PostgresOptions, PostgresServer, RedisOptions, RedisServer};
//!
//! let mut server = RedisServer::start(RedisOptions::new())?;
//! server.cli(&["SET", "key", "value"])?;
//! server.pause()?; // SIGSTOP: sockets stay open, nobody answers
//! server.resume()?;
//! server.kill()?; // SIGKILL
//! server.restart()?; // the same address and directory
//!
//! let database = PostgresServer::start(PostgresOptions::new())?; // likewise; as `nobody` where the tests run as root
//! let (standby, pooler) = (database.standby()?, PgBouncer::start(&database)?);
//! assert_eq!(pooler.sql("postgres", "SELECT 1")?, "1");
//! standby.promote()?;
//! # Ok::<(), std::io::Error>(())
//! ```

mod account;
#[cfg(feature = "tls")]
mod authority;
mod certificates;
mod checked;
mod clock;
mod cluster;
mod dir;
mod etcd;
#[cfg(feature = "inputs")]
pub mod inputs;
mod mariadb;
mod options;
mod pgbouncer;
mod port;
mod postgres;
mod postgres_options;
mod process;
mod proxy;
mod redis;
mod resp;
mod sentinel;
#[cfg(feature = "telemetry")]
mod telemetry;
mod template;
mod wait;

#[cfg(feature = "tls")]
pub use authority::Authority;
pub use certificates::Certificates;
pub use checked::CheckedServer;
pub use clock::ClockShim;
pub use cluster::RedisCluster;
pub use dir::TempDir;
pub use etcd::{EtcdCertificates, EtcdCluster, EtcdOptions};
pub use mariadb::{MariaDbOptions, MariaDbServer};
pub use options::RedisOptions;
pub use pgbouncer::PgBouncer;
pub use port::ClosedPort;
pub use postgres::PostgresServer;
pub use postgres_options::PostgresOptions;
pub use proxy::{Link, TcpProxy};
pub use redis::RedisServer;
pub use resp::{Reply, RespClient};
pub use sentinel::{Announcements, RedisSentinels};
#[cfg(feature = "telemetry")]
pub use telemetry::Recorder;
pub use wait::{PATIENCE, eventually};
