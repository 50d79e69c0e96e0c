//! Opening a connection, with the session settings that the procedures need.

use std::fmt;
use std::time::Duration;

use mysql_async::{Conn, Opts, OptsBuilder};
use tenure_core::driver::ErrorExt as _;
use tenure_core::{Error, ErrorKind, Result};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::config::{Address, MysqlConfig};
use crate::encryption::Encryption;
use crate::error::{AUTHENTICATION, misconfigured, unreached};

/// What a session has to have, whatever the server's or the user's defaults are: snapshots of one statement, statements that
/// commit, commits that end nothing else, a zone without summer time, waits for the locks of others that end, and a session that may be idle.
const SESSION: [&str; 2] = [
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    "SET SESSION autocommit = 1, completion_type = 0, innodb_lock_wait_timeout = 2, lock_wait_timeout = 3, wait_timeout = 28800, time_zone = '+00:00'",
];

/// Opens connections of one configuration.
pub(crate) struct Dialler {
    pub(crate) config: MysqlConfig,
    options: Opts,
}

impl Dialler {
    /// Reads the authorities that are trusted.
    pub(crate) fn new(config: MysqlConfig) -> Result<Self> {
        Ok(Self { options: options(&config)?, config })
    }

    /// A connection of its own.
    pub(crate) async fn dial(&self) -> Result<Conn> {
        let limit = self.config.connect_timeout;
        // A task, since the client library panics where a user signs in by a method that it was built without.
        let mut opening = JoinSet::new();
        opening.spawn(Conn::new(self.options.clone()));
        let error = match timeout(limit, opening.join_next()).await {
            Ok(Some(Ok(Ok(conn)))) => return Ok(conn),
            Ok(Some(Ok(Err(error)))) => unreached(error, &self.config),
            Ok(Some(Err(ended))) if ended.is_panic() => misconfigured(AUTHENTICATION).with_source(ended),
            Ok(_) | Err(_) => Error::new(ErrorKind::Unavailable, format!("no connection within {limit:?}")),
        };
        Err(error.at(self.config.place()))
    }
}

impl fmt::Debug for Dialler {
    /// Without the options, which have the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialler").field("config", &self.config).finish_non_exhaustive()
    }
}

fn options(config: &MysqlConfig) -> Result<Opts> {
    let options = OptsBuilder::default()
        .user(Some(&config.user))
        .pass(config.password.as_deref())
        .db_name(Some(&config.database))
        .prefer_socket(false)
        .tcp_keepalive(Some(Duration::from_secs(15)))
        .stmt_cache_size(64)
        .init(SESSION.to_vec());
    let options = match &config.address {
        Address::Tcp { host, port } => options.ip_or_hostname(host).tcp_port(*port),
        Address::Socket(path) => options.socket(Some(path)),
    };
    Ok(encrypted(options, &config.encryption)?.into())
}

#[cfg(not(feature = "tls"))]
fn encrypted(options: OptsBuilder, encryption: &Encryption) -> Result<OptsBuilder> {
    match encryption {
        Encryption::Plain => Ok(options),
        _ => Err(misconfigured("\"ssl-mode\" and \"ca\" need the feature \"tls\" of tenure-mysql")),
    }
}

#[cfg(feature = "tls")]
fn encrypted(options: OptsBuilder, encryption: &Encryption) -> Result<OptsBuilder> {
    Ok(options.ssl_opts(crate::tls::options(encryption)?))
}
