//! Opening a connection, with the session that the procedures count on.

use std::time::Duration;

use mysql_async::{Conn, Opts, OptsBuilder};
use tenure_core::{Error, ErrorKind, Result};
use tokio::time::timeout;

use crate::config::MysqlConfig;
use crate::error::unreached;

/// What a session has to have, whatever the server's or the user's defaults are: snapshots of one statement, statements that
/// commit, commits that end nothing else, a zone without summer time, waits for the locks of others that end, and a session that may be idle.
const SESSION: [&str; 2] = [
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    "SET SESSION autocommit = 1, completion_type = 0, innodb_lock_wait_timeout = 2, lock_wait_timeout = 3, wait_timeout = 28800, time_zone = '+00:00'",
];

/// A connection of its own.
pub(crate) async fn dial(config: &MysqlConfig) -> Result<Conn> {
    let limit = config.connect_timeout;
    match timeout(limit, Conn::new(options(config)?)).await {
        Ok(opened) => opened.map_err(|error| unreached(error).at(config.place())),
        Err(_) => Err(Error::new(ErrorKind::Unavailable, format!("no connection within {limit:?}")).at(config.place())),
    }
}

fn options(config: &MysqlConfig) -> Result<Opts> {
    let options = OptsBuilder::default()
        .ip_or_hostname(&config.host)
        .tcp_port(config.port)
        .user(Some(&config.user))
        .pass(config.password.as_deref())
        .db_name(Some(&config.database))
        .prefer_socket(false)
        .tcp_keepalive(Some(Duration::from_secs(15)))
        .stmt_cache_size(64)
        .init(SESSION.to_vec());
    Ok(encrypted(options, config)?.into())
}

#[cfg(not(feature = "tls"))]
fn encrypted(options: OptsBuilder, config: &MysqlConfig) -> Result<OptsBuilder> {
    match config.authorities {
        None => Ok(options),
        Some(_) => Err(crate::error::misconfigured("\"ca\" needs the feature \"tls\" of tenure-mysql")),
    }
}

/// Trusts the authorities of the configuration, and no others.
#[cfg(feature = "tls")]
fn encrypted(options: OptsBuilder, config: &MysqlConfig) -> Result<OptsBuilder> {
    let Some(authorities) = &config.authorities else { return Ok(options) };
    let trusted = mysql_async::SslOpts::default()
        .with_root_certs(vec![authorities.clone().into()])
        .with_disable_built_in_roots(true);
    Ok(options.ssl_opts(Some(trusted)))
}
