//! How to reach a server, and what to ask of it.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo};
use tenure_core::{Error, ErrorKind, Result};
use tenure_redis_support::RedisSettings;

use crate::url;

/// Where the server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

/// How to reach a Redis server. Credentials are kept out of `Debug`.
#[derive(Clone)]
pub struct RedisConfig {
    pub(crate) address: Address,
    pub(crate) username: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) database: i64,
    pub(crate) settings: RedisSettings,
    pub(crate) connect_timeout: Duration,
    pub(crate) response_timeout: Duration,
    pub(crate) ping_interval: Duration,
}

impl RedisConfig {
    /// A server at a host and port. Nothing is resolved or connected yet.
    #[must_use]
    pub fn tcp(host: impl Into<String>, port: u16) -> Self {
        Self::new(Address::Tcp { host: host.into(), port })
    }

    /// A server at a unix socket.
    #[must_use]
    pub fn unix(path: impl Into<PathBuf>) -> Self {
        Self::new(Address::Unix(path.into()))
    }

    /// Reads `redis://[user[:password]@]host[:port][/db]` or `redis+unix:///path[?user=…&pass=…&db=…]` (also `unix://`).
    ///
    /// Query parameters: `prefix`, `max_waiters`, `max_backlog`, `max_dead_letters`, `fences=clock|counter`, `allow_eviction=true|false`,
    /// `connect_timeout_ms`, `response_timeout_ms`, `ping_interval_ms`, and `protocol=resp3`. They mean what the
    /// setters and [`RedisSettings`] say.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] naming what is wrong, an unknown parameter too; [`ErrorKind::Unsupported`] for
    /// `rediss://` and for `protocol=resp2`. The URL itself, which may hold a password, is not repeated.
    pub fn from_url(url: &str) -> Result<Self> {
        url::parse(url)
    }

    pub(crate) fn new(address: Address) -> Self {
        Self {
            address,
            username: None,
            password: None,
            database: 0,
            settings: RedisSettings::default(),
            connect_timeout: Duration::from_secs(1),
            response_timeout: Duration::from_secs(1),
            ping_interval: Duration::from_secs(5),
        }
    }

    /// The user to log in as; default is the server's default user. Needs a [`password`](Self::password).
    #[must_use]
    pub fn username(mut self, username: impl Into<String>) -> Self {
        self.username = Some(username.into());
        self
    }

    /// The password to log in with; default none.
    #[must_use]
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// The number of the database; default 0.
    #[must_use]
    pub fn database(mut self, database: u32) -> Self {
        self.database = database.into();
        self
    }

    /// Prefix, fences, eviction and limits; default [`RedisSettings::default`].
    #[must_use]
    pub fn settings(mut self, settings: RedisSettings) -> Self {
        self.settings = settings;
        self
    }

    /// How long one attempt to connect, log in and subscribe may take; default 1 s.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] outside 10 ms to 60 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Result<Self> {
        self.connect_timeout = within("connect timeout", timeout)?;
        Ok(self)
    }

    /// How long a reply may take before its outcome counts as unknown; default 1 s.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] outside 10 ms to 60 s.
    pub fn response_timeout(mut self, timeout: Duration) -> Result<Self> {
        self.response_timeout = within("response timeout", timeout)?;
        Ok(self)
    }

    /// How long a link may be without any reply before it is tried; default 5 s. A link that does not answer within
    /// half the response timeout is replaced. While commands time out it is tried at once.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] outside 10 ms to 60 s.
    pub fn ping_interval(mut self, interval: Duration) -> Result<Self> {
        self.ping_interval = within("ping interval", interval)?;
        Ok(self)
    }

    /// The same in the client library's terms.
    pub(crate) fn connection_info(&self) -> Result<ConnectionInfo> {
        let address = match &self.address {
            Address::Tcp { host, port } => ConnectionAddr::Tcp(host.clone(), *port),
            Address::Unix(path) => ConnectionAddr::Unix(path.clone()),
        };
        let mut login = RedisConnectionInfo::default()
            .set_db(self.database)
            .set_protocol(ProtocolVersion::RESP3)
            .set_skip_set_lib_name();
        if let Some(username) = &self.username {
            login = login.set_username(username);
        }
        if let Some(password) = &self.password {
            login = login.set_password(password);
        }
        let info = address.into_connection_info().map_err(|_| {
            Error::new(ErrorKind::InvalidArgument, "this platform has no unix sockets, or the address is not valid")
        })?;
        let tcp = info.tcp_settings().clone().set_nodelay(true);
        Ok(info.set_tcp_settings(tcp).set_redis_settings(login))
    }

    /// The place in words, without credentials.
    pub(crate) fn place(&self) -> String {
        match &self.address {
            Address::Tcp { host, port } if host.contains(':') => format!("[{host}]:{port}"),
            Address::Tcp { host, port } => format!("{host}:{port}"),
            Address::Unix(path) => path.display().to_string(),
        }
    }
}

impl fmt::Debug for RedisConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hidden = |secret: &Option<String>| secret.as_ref().map(|_| "\u{2026}");
        f.debug_struct("RedisConfig")
            .field("address", &self.address)
            .field("username", &hidden(&self.username))
            .field("password", &hidden(&self.password))
            .field("database", &self.database)
            .field("settings", &self.settings)
            .field("connect_timeout", &self.connect_timeout)
            .field("response_timeout", &self.response_timeout)
            .field("ping_interval", &self.ping_interval)
            .finish()
    }
}

fn within(what: &str, time: Duration) -> Result<Duration> {
    if (Duration::from_millis(10)..=Duration::from_secs(60)).contains(&time) {
        return Ok(time);
    }
    Err(Error::new(ErrorKind::InvalidArgument, format!("a {what} of {time:?} is outside 10 ms to 60 s")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_shown() {
        let config = RedisConfig::tcp("h", 1).username("u5er").password("s3cret");
        let text = format!("{config:?}");
        assert!(!text.contains("u5er") && !text.contains("s3cret"), "{text}");
    }

    #[test]
    fn times_are_checked() {
        let config = RedisConfig::tcp("h", 1);
        assert!(config.clone().connect_timeout(Duration::ZERO).is_err());
        assert!(config.clone().response_timeout(Duration::from_secs(61)).is_err());
        assert!(config.ping_interval(Duration::from_secs(1)).is_ok());
    }

    #[test]
    fn small_frames_leave_at_once() {
        assert!(RedisConfig::tcp("h", 1).connection_info().unwrap().tcp_settings().nodelay());
    }
}
