//! The address of the server and the settings of the driver.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use tenure_core::driver::BackendUrl;
use tenure_core::{Error, ErrorKind, FenceFloor, Result};

use crate::encryption::{Encryption, OF_OTHERS};

/// The address of the server and the settings of the driver. Parsed from a URL.
///
/// ```
/// use tenure_mysql::MysqlConfig;
///
/// let config: MysqlConfig = "mysql://app:secret@db.example.com/shop?connections=2".parse()?;
/// assert_eq!(config.database(), "shop");
/// assert!("mysql://app@db/shop?connection=2".parse::<MysqlConfig>().is_err());
/// # Ok::<(), tenure_core::Error>(())
/// ```
///
/// | part of the URL | what | default |
/// |---|---|---|
/// | `mysql://user:password@host:port/database` | the server, and the database that has the tables | port 3306 |
/// | `migrate` | create the tables and procedures if they are missing or older | `false` |
/// | `connections` | the number of connections for requests | 4 |
/// | `connect_timeout_ms` | the time limit for opening a connection | 5000 |
/// | `ssl-mode` | `REQUIRED` or `VERIFY_IDENTITY`: encrypt, and refuse a server whose certificate is not from a trusted authority or is for another name (feature `tls`); `DISABLED`: do not encrypt. Also `ssl_mode`, `sslmode`; lower case is accepted | `DISABLED`, with `ca` `REQUIRED` |
/// | `ca` | the file (PEM) of the trusted authorities. Also `ssl-ca`, `ssl_ca` | the system's |
/// | `socket` | connect to this unix socket; the host is `localhost` | TCP |
/// | `max_depth` | the deepest re-entry | 100 |
/// | `max_dead_letters` | the largest number of dead letters of a queue | 100000 |
/// | `fence_floor` | the lower bound of all fences | the server's clock |
#[derive(Clone)]
#[must_use = "a configuration does nothing until a driver is made of it"]
pub struct MysqlConfig {
    pub(crate) address: Address,
    pub(crate) encryption: Encryption,
    pub(crate) user: String,
    pub(crate) password: Option<String>,
    pub(crate) database: String,
    pub(crate) migrate: bool,
    pub(crate) connections: usize,
    pub(crate) connect_timeout: Duration,
    pub(crate) caps: Caps,
    pub(crate) fence_floor: FenceFloor,
}

/// Where the server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Tcp {
        host: String,
        port: u16,
    },
    /// The path of a unix socket.
    Socket(String),
}

/// The caps of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caps {
    pub(crate) max_depth: u32,
    pub(crate) max_dead_letters: u64,
}

impl MysqlConfig {
    /// The largest [`max_depth`](Self::max_depth): an entry writes all entries of its hold.
    pub const DEEPEST: u32 = 1_000;

    /// Creates tables and procedures on connecting if they are missing or of an older release. Needs the rights to
    /// create tables and procedures in the database.
    pub fn migrate(mut self, migrate: bool) -> Self {
        self.migrate = migrate;
        self
    }

    /// The deepest re-entry; one more is refused with [`ErrorKind::LimitReached`]. Default: 100.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when it is zero or more than [`MysqlConfig::DEEPEST`].
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
        &self.database
    }

    /// Whether requests travel over a network without encryption.
    pub(crate) fn is_readable_on_the_way(&self) -> bool {
        self.encryption == Encryption::Plain && matches!(self.address, Address::Tcp { .. })
    }

    /// Where the server is, for messages.
    pub(crate) fn place(&self) -> String {
        match &self.address {
            Address::Tcp { host, port } => format!("{host}:{port}"),
            Address::Socket(path) => path.clone(),
        }
    }

    /// Reads a parsed URL.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when it has no host, user or database, an unknown parameter, or parameters that
    /// contradict each other; and the errors of the setters.
    pub fn read(mut url: BackendUrl) -> Result<Self> {
        if !matches!(url.scheme(), "mysql" | "mariadb") {
            return Err(invalid("the URL of a MySQL or MariaDB server begins with mysql:// or mariadb://"));
        }
        let hosts = url.hosts(3306)?;
        let [(host, port)] = hosts.as_slice() else {
            return Err(invalid(
                "the URL names several hosts: only one server may be written to, and a proxy has to choose it",
            ));
        };
        url.refuse(&OF_OTHERS)?;
        let encryption = Encryption::read(&mut url)?;
        let address = match url.text("socket") {
            None => Address::Tcp { host: host.clone(), port: *port },
            Some(_) if encryption != Encryption::Plain => {
                return Err(invalid("a unix socket is not encrypted: leave out ssl-mode and ca, or socket"));
            }
            Some(path) if host == "localhost" && path.starts_with('/') => Address::Socket(path),
            Some(_) => {
                return Err(invalid("socket is the whole path of a unix socket, and the host is localhost then"));
            }
        };
        let user = url.user().ok_or_else(|| invalid("the URL names no user: mysql://user@host/database"))?.to_owned();
        if url.path().is_empty() {
            return Err(invalid("the URL names no database: mysql://user@host/database"));
        }
        let mut config = Self {
            address,
            encryption,
            user,
            password: url.password().map(str::to_owned),
            database: url.path().to_owned(),
            migrate: url.truth("migrate")?.unwrap_or(false),
            connections: url.number("connections")?.unwrap_or(4),
            connect_timeout: url.millis("connect_timeout_ms")?.unwrap_or(Duration::from_secs(5)),
            caps: Caps { max_depth: 100, max_dead_letters: 100_000 },
            fence_floor: FenceFloor::NONE,
        };
        if config.connections == 0 || config.connections > 100 {
            return Err(invalid(format!("connections of {} is outside 1 to 100", config.connections)));
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

impl FromStr for MysqlConfig {
    type Err = Error;

    fn from_str(url: &str) -> Result<Self> {
        Self::read(BackendUrl::parse(url)?)
    }
}

impl fmt::Debug for MysqlConfig {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MysqlConfig").field("place", &self.place()).field("caps", &self.caps).finish_non_exhaustive()
    }
}

fn invalid(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidArgument, text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_read_whole_or_refused() {
        let read = |url: &str| url.parse::<MysqlConfig>();
        let config = read("mysql://app:p%40ss@a:1/shop?migrate=true&connections=2&max_depth=7").unwrap();
        assert_eq!((config.place().as_str(), config.database(), config.migrate), ("a:1", "shop", true));
        assert_eq!((config.connections, config.caps.max_depth), (2, 7));
        assert_eq!(config.password.as_deref(), Some("p@ss"));
        assert!(!format!("{config:?}").contains("p@ss"));
        assert_eq!(read("mariadb://app@a/shop").unwrap().place(), "a:3306");
        assert_eq!(read("mysql://app@localhost/shop?socket=/run/a%20b").unwrap().place(), "/run/a b");
        assert_eq!(read("mysql://app@a/shop?ssl-mode=required").unwrap().encryption, Encryption::System);
        for bad in [
            "mysql:///shop",
            "mysql://a/shop",
            "mysql://app@a",
            "mysql://app@a,b/shop",
            "mysql://app@a/shop?connections=0",
            "mysql://app@a/shop?max_depth=1001",
            "mysql://app@a/shop?max_dead_letters=0",
            "mysql://app@a/shop?socket=/s",
            "mysql://app@localhost/shop?socket=s",
            "mysql://app@localhost/shop?socket=/s&ssl-mode=REQUIRED",
            "mysql://app@a/shop?tls=true",
            "postgres://app@a/shop",
        ] {
            assert_eq!(read(bad).unwrap_err().kind(), ErrorKind::InvalidArgument, "{bad}");
        }
    }
}
