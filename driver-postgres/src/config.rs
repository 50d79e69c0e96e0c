//! Where the server is, and how the driver behaves.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use tenure_core::driver::{BackendUrl, Ttl, host_and_port};
use tenure_core::{Error, ErrorKind, FenceFloor, Result};

/// Where the server is, and how the driver behaves. Parsed from a URL.
///
/// ```
/// use tenure_postgres::PostgresConfig;
///
/// let config: PostgresConfig = "postgres://app:secret@db.example.com/shop?max_waiters=100".parse()?;
/// assert_eq!(config.database(), "shop");
/// assert!("postgres://db/shop?max_waiter=100".parse::<PostgresConfig>().is_err());
/// # Ok::<(), tenure_core::Error>(())
/// ```
///
/// | part of the URL | what | default |
/// |---|---|---|
/// | `postgres://user:password@host:port,…/database` | the server; of several, the first that takes writes | port 5432, the database of the user's name |
/// | `migrate` | make the schema `tenure`, if it is not there; add the list of held locks, if that is missing | `false` |
/// | `logged` | with `migrate`: leases survive a crash, and each grant costs a flush | `false` |
/// | `longest_ttl_ms` | with `migrate`: the longest lease, and the time without grants after a crash | 60000 |
/// | `listen` | `host:port` of the server itself, where the host is a pooler in transaction mode | the host |
/// | `prepare` | prepare statements; `false` behind a pooler that does not keep them | `true` |
/// | `connections` | how many connections carry requests; one more listens | 4 |
/// | `connect_timeout_ms` | how long opening one may take | 5000 |
/// | `ca` | encrypt, and trust the authorities in this file (feature `tls`) | not encrypted |
/// | `max_waiters` | the most places in the queue of a lock | 10000 |
/// | `max_depth` | the deepest re-entry | 100 |
/// | `max_dead_letters` | the most dead letters of a queue | 100000 |
/// | `fence_floor` | what all fences are greater than | the server's clock |
#[derive(Clone)]
#[must_use = "a configuration does nothing until a driver is made of it"]
pub struct PostgresConfig {
    pub(crate) server: tokio_postgres::Config,
    /// The server itself, for the listening session.
    pub(crate) listener: Option<(String, u16)>,
    pub(crate) place: String,
    pub(crate) install: Option<Install>,
    pub(crate) prepare: bool,
    pub(crate) connections: usize,
    pub(crate) connect_timeout: Duration,
    pub(crate) authorities: Option<Vec<u8>>,
    pub(crate) caps: Caps,
    pub(crate) fence_floor: FenceFloor,
}

/// The caps of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caps {
    pub(crate) max_waiters: u32,
    pub(crate) max_depth: u32,
    pub(crate) max_dead_letters: u64,
}

/// How the schema is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Install {
    /// Whether the tables of locks are written to the log: then leases survive a crash of the server, each grant costs a flush,
    /// and the promotion of an asynchronous standby can bring two holders. Default: no.
    pub logged: bool,
    /// The longest lease of any client. After the server forgot its leases it grants none for so long. Default: a minute.
    pub longest_ttl: Duration,
}

impl Default for Install {
    /// Unlogged, with leases of up to a minute.
    fn default() -> Self {
        Self { logged: false, longest_ttl: Duration::from_secs(60) }
    }
}

impl PostgresConfig {
    /// The largest [`max_waiters`](Self::max_waiters).
    pub const MOST_WAITERS: u32 = 1_000_000;
    /// The largest [`max_depth`](Self::max_depth): an entry writes all entries of its hold.
    pub const DEEPEST: u32 = 10_000;

    /// Makes the schema on connecting, if it is not there. Needs the right to create a schema in the database. The list of held locks
    /// is added to a schema that was made without it, if this user owns the schema.
    pub fn migrate(mut self, install: Install) -> Self {
        self.install = Some(install);
        self
    }

    /// Whether statements are prepared, as is the default. Not behind a pooler in transaction mode that does not keep them.
    pub fn prepare(mut self, prepare: bool) -> Self {
        self.prepare = prepare;
        self
    }

    /// The most waiters in the queue of one lock; one more is refused with [`ErrorKind::LimitReached`]. Default: 10,000.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when it is zero or more than [`PostgresConfig::MOST_WAITERS`].
    pub fn max_waiters(mut self, most: u32) -> Result<Self> {
        if most == 0 || most > Self::MOST_WAITERS {
            return Err(invalid(format!("max_waiters of {most} is outside 1 to {}", Self::MOST_WAITERS)));
        }
        self.caps.max_waiters = most;
        Ok(self)
    }

    /// The deepest re-entry; one more is refused with [`ErrorKind::LimitReached`]. Default: 100.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when it is zero or more than [`PostgresConfig::DEEPEST`].
    pub fn max_depth(mut self, most: u32) -> Result<Self> {
        if most == 0 || most > Self::DEEPEST {
            return Err(invalid(format!("max_depth of {most} is outside 1 to {}", Self::DEEPEST)));
        }
        self.caps.max_depth = most;
        Ok(self)
    }

    /// The most dead letters of a queue; what finds them full waits. Default: 100,000.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when it is zero.
    pub fn max_dead_letters(mut self, most: u64) -> Result<Self> {
        if most == 0 || i64::try_from(most).is_err() {
            return Err(invalid(format!("max_dead_letters of {most} is outside 1 to {}", i64::MAX)));
        }
        self.caps.max_dead_letters = most;
        Ok(self)
    }

    /// What all fences are greater than from now on. Default: the server's clock in microseconds since 1970.
    pub fn fence_floor(mut self, floor: FenceFloor) -> Self {
        self.fence_floor = floor;
        self
    }

    /// The database.
    #[must_use]
    pub fn database(&self) -> &str {
        self.server.get_dbname().or_else(|| self.server.get_user()).unwrap_or_default()
    }

    /// Reads a URL that was taken apart.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when it has no host or user, or a parameter that is not known; and as the setters.
    pub fn read(mut url: BackendUrl) -> Result<Self> {
        if !matches!(url.scheme(), "postgres" | "postgresql") {
            return Err(invalid("the URL of a PostgreSQL server begins with postgres://"));
        }
        let mut server = tokio_postgres::Config::new();
        let hosts = url.hosts(5432)?;
        for (host, port) in &hosts {
            server.host(host).port(*port);
        }
        server.user(url.user().ok_or_else(|| invalid("the URL names no user: postgres://user@host/database"))?);
        if let Some(password) = url.password() {
            server.password(password);
        }
        if !url.path().is_empty() {
            server.dbname(url.path());
        }
        let connect_timeout = url.millis("connect_timeout_ms")?.unwrap_or(Duration::from_secs(5));
        server.application_name("tenure").connect_timeout(connect_timeout);
        keep_alive(&mut server);
        if hosts.len() > 1 {
            server.target_session_attrs(tokio_postgres::config::TargetSessionAttrs::ReadWrite);
        }
        let place = hosts.iter().map(|(host, port)| format!("{host}:{port}")).collect::<Vec<_>>().join(",");
        let caps = Caps { max_waiters: 10_000, max_depth: 100, max_dead_letters: 100_000 };
        let mut config = Self {
            server,
            listener: url.text("listen").map(|at| host_and_port(&at, 5432)).transpose()?,
            place,
            install: None,
            prepare: url.truth("prepare")?.unwrap_or(true),
            connections: url.number("connections")?.unwrap_or(4),
            connect_timeout,
            authorities: url.file_of("ca")?,
            caps,
            fence_floor: FenceFloor::NONE,
        };
        if config.connections == 0 || config.connections > 100 {
            return Err(invalid(format!("connections of {} is outside 1 to 100", config.connections)));
        }
        let migrate = url.truth("migrate")?.unwrap_or(false);
        let (logged, longest) = (url.truth("logged")?, url.millis("longest_ttl_ms")?);
        if migrate {
            let mut install = Install { logged: logged.unwrap_or(false), ..Install::default() };
            if let Some(longest) = longest {
                install.longest_ttl = Ttl::new(longest)?.get();
            }
            config = config.migrate(install);
        } else if logged.is_some() || longest.is_some() {
            return Err(invalid("logged and longest_ttl_ms say how the schema is made: they go with migrate=true"));
        }
        if let Some(most) = url.number("max_waiters")? {
            config = config.max_waiters(most)?;
        }
        if let Some(most) = url.number("max_depth")? {
            config = config.max_depth(most)?;
        }
        if let Some(most) = url.number("max_dead_letters")? {
            config = config.max_dead_letters(most)?;
        }
        if let Some(floor) = FenceFloor::read(&mut url)? {
            config = config.fence_floor(floor);
        }
        url.finish()?;
        Ok(config)
    }
}

impl FromStr for PostgresConfig {
    type Err = Error;

    fn from_str(url: &str) -> Result<Self> {
        Self::read(BackendUrl::parse(url)?)
    }
}

impl fmt::Debug for PostgresConfig {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresConfig").field("place", &self.place).field("caps", &self.caps).finish_non_exhaustive()
    }
}

fn invalid(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidArgument, text.into())
}

/// Has the system notice a far end that is gone.
pub(crate) fn keep_alive(server: &mut tokio_postgres::Config) {
    server.tcp_user_timeout(Duration::from_secs(15)).keepalives_idle(Duration::from_secs(15));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_read_whole_or_refused() {
        let read = |url: &str| url.parse::<PostgresConfig>();
        let config = read("postgres://app:p%40ss@a:1,b/shop?migrate=true&logged=true&longest_ttl_ms=5000").unwrap();
        assert_eq!((config.place.as_str(), config.database()), ("a:1,b:5432", "shop"));
        assert_eq!(config.install, Some(Install { logged: true, longest_ttl: Duration::from_secs(5) }));
        assert!(!format!("{config:?}").contains("p@ss"));
        assert_eq!(read("postgresql://app@a").unwrap().database(), "app");
        for bad in [
            "postgres:///shop",
            "postgres://a/shop",
            "postgres://app@a/shop?logged=true",
            "postgres://app@a/shop?connections=0",
            "postgres://app@a/shop?max_depth=0",
            "postgres://app@a/shop?sslmode=require",
            "mysql://app@a/shop",
        ] {
            assert_eq!(read(bad).unwrap_err().kind(), ErrorKind::InvalidArgument, "{bad}");
        }
    }
}
