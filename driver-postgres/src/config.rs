//! The address of the server and the settings of the driver.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use tenure_core::driver::{BackendUrl, Ttl, host_and_port};
use tenure_core::{Error, ErrorKind, FenceFloor, Result};
use tokio_postgres::config::{ChannelBinding, TargetSessionAttrs};

/// The address of the server and the settings of the driver. Parsed from a URL.
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
/// | `postgres://user:password@host:port,…/database` | the server; of several, the first that accepts writes | port 5432, the database of the user's name |
/// | `migrate` | create the schema `tenure` if it is missing; add the list of held locks, semaphores and read-write locks if these are missing | `false` |
/// | `logged` | with `migrate`: leases survive a crash, and each grant costs a flush | `false` |
/// | `longest_ttl_ms` | with `migrate`: the longest lease, and the time without grants after a crash | 60000 |
/// | `listen` | `host:port` of the server itself, where the host is a pooler in transaction mode | the host |
/// | `prepare` | prepare statements; `false` behind a pooler in transaction mode | `true` |
/// | `connections` | the number of connections for requests; one more listens | 4 |
/// | `connect_timeout_ms` | the time limit for opening a connection; `connect_timeout` in seconds | 5000 |
/// | `sslmode` | `disable`, or `verify-full`: encrypt, and check the server's certificate and name (feature `tls`); `require` is the same | `disable`; `verify-full` with `sslrootcert` |
/// | `sslrootcert`, `ca` | the file of the trusted authorities, or `system` | those of the system |
/// | `host`, `port` | the folder of the server's unix socket, and its number; the URL names no host then: `postgres://user@/database?host=/run/postgresql` | |
/// | `target_session_attrs` | `read-write` or `primary`; locks need one of these | `read-write` with several hosts |
/// | `channel_binding` | `disable`, `prefer` or `require` | `prefer` |
/// | `application_name`, `options` | the values that the driver sends to the server | `tenure`, none |
/// | `max_waiters` | the largest number of places in the line of a name | 10000 |
/// | `max_depth` | the deepest re-entry | 100 |
/// | `max_dead_letters` | the largest number of dead letters of a queue | 100000 |
/// | `fence_floor` | the lower bound of all fences | the server's clock |
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
    pub(crate) encryption: Encryption,
    pub(crate) caps: Caps,
    pub(crate) fence_floor: FenceFloor,
}

/// Whether connections are encrypted, and whose certificates are trusted then.
#[derive(Clone)]
#[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "refused when connecting"))]
pub(crate) enum Encryption {
    Off,
    /// The authorities that this machine trusts.
    System,
    /// The certificates of a file.
    Authorities(Vec<u8>),
}

/// The caps of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caps {
    pub(crate) max_waiters: u32,
    pub(crate) max_depth: u32,
    pub(crate) max_dead_letters: u64,
}

/// Options for creating the schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Install {
    /// Writes the tables of locks to the log: then leases survive a crash of the server, each grant costs a flush, and
    /// the promotion of an asynchronous standby can bring two holders. Default: no.
    pub logged: bool,
    /// The longest lease of any client. After the server forgot its leases, it grants none for this long. Default: a
    /// minute.
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

    /// Creates the schema on connecting if it is missing. Needs the right to create a schema in the database. If this
    /// user owns a schema without the list of held locks, or without semaphores and read-write locks, connecting adds them.
    pub fn migrate(mut self, install: Install) -> Self {
        self.install = Some(install);
        self
    }

    /// Prepares statements, which is the default, or does not. Do not prepare behind a pooler in transaction mode. Each
    /// connection then sends a request only after the answer to the one before it, because PgBouncer may give the server
    /// to another client between the messages of a request that was sent earlier.
    pub fn prepare(mut self, prepare: bool) -> Self {
        self.prepare = prepare;
        self
    }

    /// The largest number of waiters in the queue of one lock; one more is refused with [`ErrorKind::LimitReached`].
    /// Default: 10,000.
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

    /// The largest number of dead letters of a queue; while they are full, further messages wait. Default: 100,000.
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

    /// The lower bound of all later fences. Default: the server's clock in microseconds since 1970.
    pub fn fence_floor(mut self, floor: FenceFloor) -> Self {
        self.fence_floor = floor;
        self
    }

    /// The name of the database.
    #[must_use]
    pub fn database(&self) -> &str {
        self.server.get_dbname().or_else(|| self.server.get_user()).unwrap_or_default()
    }

    /// Reads a parsed URL.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when it has no host or user, or an unknown parameter; and the errors of the
    /// setters.
    pub fn read(mut url: BackendUrl) -> Result<Self> {
        if !matches!(url.scheme(), "postgres" | "postgresql") {
            return Err(invalid("the URL of a PostgreSQL server begins with postgres://"));
        }
        let mut server = tokio_postgres::Config::new();
        let encryption = encryption(&mut url)?;
        let place = place(&mut url, &mut server, &encryption)?;
        server.user(url.user().ok_or_else(|| invalid("the URL names no user: postgres://user@host/database"))?);
        if let Some(password) = url.password() {
            server.password(password);
        }
        if !url.path().is_empty() {
            server.dbname(url.path());
        }
        let seconds = url.number("connect_timeout")?.map(Duration::from_secs);
        let connect_timeout = url.millis("connect_timeout_ms")?.or(seconds).unwrap_or(Duration::from_secs(5));
        server.connect_timeout(connect_timeout);
        server.application_name(url.text("application_name").unwrap_or_else(|| String::from("tenure")));
        if let Some(options) = url.text("options") {
            server.options(options);
        }
        let bindings = [
            ("prefer", ChannelBinding::Prefer),
            ("require", ChannelBinding::Require),
            ("disable", ChannelBinding::Disable),
        ];
        if let Some(binding) = url.choice("channel_binding", &bindings)? {
            server.channel_binding(binding);
        }
        keep_alive(&mut server);
        let caps = Caps { max_waiters: 10_000, max_depth: 100, max_dead_letters: 100_000 };
        let mut config = Self {
            server,
            listener: url.text("listen").map(|at| host_and_port(&at, 5432)).transpose()?,
            place,
            install: None,
            prepare: url.truth("prepare")?.unwrap_or(true),
            connections: url.number("connections")?.unwrap_or(4),
            connect_timeout,
            encryption,
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
        url.refuse(&OF_OTHERS)?;
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

/// Parameters of other programs, as URLs of hosting providers have them, and what to use instead.
const OF_OTHERS: [(&str, &str); 6] = [
    ("pgbouncer", "set prepare=false, and listen=host:port of the server behind the pooler"),
    ("connection_limit", "set connections"),
    ("ssl", "set sslmode=verify-full, or sslmode=disable"),
    ("sslaccept", "set sslmode=verify-full"),
    ("sslcert", "this driver has no certificate of its own to show: give the user a password"),
    ("sslkey", "this driver has no certificate of its own to show: give the user a password"),
];

fn encryption(url: &mut BackendUrl) -> Result<Encryption> {
    let (mode, system) = (url.text("sslmode"), url.word("sslrootcert", "system"));
    let trusted = match (url.file_of("ca")?, url.file_of("sslrootcert")?) {
        (Some(_), Some(_)) => return Err(invalid("ca and sslrootcert are the same: name one file")),
        (Some(_), None) if system => return Err(invalid("ca and sslrootcert=system contradict each other")),
        (ca, root) => ca.or(root).map(Encryption::Authorities).or(system.then_some(Encryption::System)),
    };
    match mode.as_deref() {
        None => Ok(trusted.unwrap_or(Encryption::Off)),
        Some("disable") if trusted.is_some() => {
            Err(invalid("sslmode=disable and a file of authorities contradict each other"))
        }
        Some("disable") => Ok(Encryption::Off),
        Some("require" | "verify-full") => Ok(trusted.unwrap_or(Encryption::System)),
        Some("allow" | "prefer") => Err(invalid(
            "sslmode=allow and sslmode=prefer let the network decide whether a password is encrypted: set sslmode=verify-full, or \
             sslmode=disable",
        )),
        Some("verify-ca") => Err(invalid(
            "sslmode=verify-ca leaves the server's name unchecked: set sslmode=verify-full, and connect to a name of its certificate",
        )),
        Some(_) => Err(invalid("sslmode is disable, require or verify-full")),
    }
}

/// Reads the hosts, or the folder of a socket. What messages call them.
fn place(url: &mut BackendUrl, server: &mut tokio_postgres::Config, encryption: &Encryption) -> Result<String> {
    let (folder, port) = (url.text("host"), url.number("port")?);
    let writes = [("read-write", ()), ("primary", ())];
    let primary = url.choice("target_session_attrs", &writes)?.is_some();
    let Some(folder) = folder else {
        if port.is_some() {
            return Err(invalid(
                "port belongs to host, the folder of a unix socket; of other hosts it is in the URL: host:port",
            ));
        }
        let hosts = url.hosts(5432)?;
        for (host, port) in &hosts {
            server.host(host).port(*port);
        }
        if primary || hosts.len() > 1 {
            server.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        return Ok(hosts.iter().map(|(host, port)| format!("{host}:{port}")).collect::<Vec<_>>().join(","));
    };
    if !folder.starts_with('/') || url.hosts(5432).is_ok() {
        return Err(invalid(
            "host is the folder of a unix socket, in a URL without a host: postgres://user@/database?host=/run/postgresql",
        ));
    }
    if !matches!(encryption, Encryption::Off) {
        return Err(invalid("a unix socket is not encrypted: leave out sslmode and the file of authorities"));
    }
    let port = port.unwrap_or(5432);
    server.host_path(&folder).port(port);
    Ok(format!("{folder}/.s.PGSQL.{port}"))
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
            "mysql://app@a/shop",
        ] {
            assert_eq!(read(bad).unwrap_err().kind(), ErrorKind::InvalidArgument, "{bad}");
        }
    }

    #[test]
    fn a_url_of_a_hosting_provider_is_honoured_or_its_replacement_named() {
        let read = |parameters: &str| format!("postgres://app@a/shop?{parameters}").parse::<PostgresConfig>();
        for (parameters, encrypted) in [
            ("sslmode=require&channel_binding=require", true),
            ("sslmode=verify-full&sslrootcert=system", true),
            ("sslrootcert=system&target_session_attrs=read-write", true),
            ("sslmode=disable&connect_timeout=10&application_name=shop&options=endpoint%3Dx", false),
            ("target_session_attrs=primary", false),
        ] {
            let config = read(parameters).unwrap_or_else(|error| panic!("{parameters}: {error}"));
            assert_eq!(matches!(config.encryption, Encryption::System), encrypted, "{parameters}");
        }
        assert_eq!(read("connect_timeout=10").unwrap().connect_timeout, Duration::from_secs(10));
        let socket: PostgresConfig = "postgres://app@/shop?host=/run/postgresql&port=5433".parse().unwrap();
        assert_eq!((socket.place.as_str(), socket.database()), ("/run/postgresql/.s.PGSQL.5433", "shop"));
        for (parameters, named) in [
            ("sslmode=prefer", "sslmode=verify-full"),
            ("sslmode=verify-ca", "sslmode=verify-full"),
            ("sslmode=on", "verify-full"),
            ("sslmode=disable&sslrootcert=system", "contradict"),
            ("target_session_attrs=standby", "read-write"),
            ("pgbouncer=true", "listen="),
            ("ssl=true", "sslmode"),
            ("sslcert=a&sslkey=b", "password"),
            ("host=/run/postgresql", "without a host"),
            ("port=5433", "host:port"),
        ] {
            let error = read(parameters).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{parameters}");
            assert!(error.to_string().contains(named), "{parameters}: {error}");
        }
        assert!("postgres://app@/shop?host=/run&sslmode=require".parse::<PostgresConfig>().is_err());
    }
}
