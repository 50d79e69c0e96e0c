//! The configuration of the connection to Redis, whatever the client library and the topology.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::{Error, ErrorKind, Result};

use crate::settings::RedisSettings;

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A port of a host.
    Tcp {
        /// A name, or an IP address without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// A unix socket.
    Unix(PathBuf),
}

impl Address {
    pub(crate) fn tcp(host: impl Into<String>, port: u16) -> Self {
        Self::Tcp { host: host.into(), port }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

/// The topology of the servers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Topology {
    /// One server.
    Single(Address),
    /// A cluster, found through any of these nodes.
    Cluster(Vec<Address>),
    /// One primary at a time, found through any of these sentinels.
    Sentinel {
        /// The sentinels.
        sentinels: Vec<Address>,
        /// The sentinels' name of the primary.
        service: String,
    },
}

/// The version of the protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Protocol {
    /// The older one: wake-ups need a second connection.
    Resp2,
    /// The newer one, from Redis 6: one connection carries everything.
    #[default]
    Resp3,
}

/// A user name and password. Neither is shown by `Debug`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Login {
    /// The user; the server's default user if there is none.
    pub username: Option<String>,
    /// The password, if one is needed.
    pub password: Option<String>,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::default() { "Login(none)" } else { "Login(\u{2026})" })
    }
}

/// The certificates and keys of TLS connections. `Debug` does not show keys.
#[derive(Clone, Default)]
pub struct Tls {
    /// The trusted authorities, as PEM; those of the system if `None`.
    pub authorities: Option<Arc<[u8]>>,
    /// The client's identity, for servers that require one.
    pub identity: Option<Identity>,
}

/// A client's own certificate.
#[derive(Clone, Default)]
pub struct Identity {
    /// The certificate and its intermediate certificates, as PEM.
    pub certificates: Arc<[u8]>,
    /// The key, as PEM.
    pub key: Arc<[u8]>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Identity(\u{2026})")
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("authorities", &self.authorities.is_some())
            .field("identity", &self.identity.is_some())
            .finish()
    }
}

/// The configuration of the connection to Redis. `Debug` does not show credentials.
#[derive(Clone, Debug)]
pub struct RedisConfig {
    pub(crate) topology: Topology,
    pub(crate) login: Login,
    pub(crate) sentinel_login: Login,
    pub(crate) database: u32,
    pub(crate) name: Option<String>,
    pub(crate) protocol: Protocol,
    pub(crate) tls: Option<Tls>,
    pub(crate) settings: RedisSettings,
    pub(crate) connect_timeout: Duration,
    pub(crate) response_timeout: Duration,
    pub(crate) ping_interval: Duration,
    /// How long requests wait for a broken link to come back before they fail as not sent.
    pub(crate) link_patience: Patience,
    /// Commands are sent on a connection that the caller opened.
    pub(crate) is_given: bool,
}

impl RedisConfig {
    /// A configuration for servers of this topology. It does not resolve or connect yet.
    #[must_use]
    pub fn new(topology: Topology) -> Self {
        Self {
            topology,
            login: Login::default(),
            sentinel_login: Login::default(),
            database: 0,
            name: None,
            protocol: Protocol::default(),
            tls: None,
            settings: RedisSettings::default(),
            connect_timeout: Duration::from_secs(1),
            response_timeout: Duration::from_secs(1),
            ping_interval: Duration::from_secs(5),
            link_patience: Patience::EachRequest(Duration::from_millis(500)),
            is_given: false,
        }
    }

    /// A single server at a host and port.
    #[must_use]
    pub fn tcp(host: impl Into<String>, port: u16) -> Self {
        Self::new(Topology::Single(Address::tcp(host, port)))
    }

    /// A single server at a unix socket.
    #[must_use]
    pub fn unix(path: impl Into<PathBuf>) -> Self {
        Self::new(Topology::Single(Address::Unix(path.into())))
    }

    /// Replaces the address of the single server.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when it is of a cluster or of sentinels.
    pub fn at(self, address: Address) -> Result<Self> {
        Ok(Self { topology: Topology::Single(address), ..self.single()? })
    }

    /// The same for commands on a connection that the caller opened: wake-ups use a second connection, as with the older
    /// protocol, and the given one keeps its name.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when it is of a cluster or of sentinels.
    pub fn on_given(self) -> Result<Self> {
        Ok(Self { protocol: Protocol::Resp2, name: None, is_given: true, ..self.single()? })
    }

    /// The same, if it is of a single server.
    fn single(self) -> Result<Self> {
        match self.topology {
            Topology::Single(_) => Ok(self),
            Topology::Cluster(_) | Topology::Sentinel { .. } => {
                let text = "the given client leads to one server, and the configuration names a cluster or sentinels";
                Err(Error::new(ErrorKind::InvalidArgument, text))
            }
        }
    }

    /// The user to log in as; default is the server's default user. Needs a [`password`](Self::password).
    #[must_use]
    pub fn username(mut self, username: impl Into<String>) -> Self {
        self.login.username = Some(username.into());
        self
    }

    /// The password to log in with; default none.
    #[must_use]
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.login.password = Some(password.into());
        self
    }

    /// The login at sentinels; default none.
    #[must_use]
    pub fn sentinel_login(mut self, login: Login) -> Self {
        self.sentinel_login = login;
        self
    }

    /// The number of the database; default 0. A cluster has only this one.
    #[must_use]
    pub fn database(mut self, database: u32) -> Self {
        self.database = database;
        self
    }

    /// The name, at the server, of the connections that carry commands (`CLIENT SETNAME`); default none. A user without
    /// the right to set it is not refused.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// The version of the protocol; default [`Protocol::Resp3`].
    #[must_use]
    pub fn protocol(mut self, protocol: Protocol) -> Self {
        self.protocol = protocol;
        self
    }

    /// Encrypts all connections; default no encryption. Needs the feature `tls` of the driver.
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Prefix, fences, eviction and limits; default [`RedisSettings::default`].
    #[must_use]
    pub fn settings(mut self, settings: RedisSettings) -> Self {
        self.settings = settings;
        self
    }

    /// The time limit of one attempt to connect, log in and subscribe; default 1 s.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] outside 10 ms to 60 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Result<Self> {
        self.connect_timeout = within("connect timeout", timeout)?;
        Ok(self)
    }

    /// The time after which the outcome of a request without a reply counts as unknown; default 1 s.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] outside 10 ms to 60 s.
    pub fn response_timeout(mut self, timeout: Duration) -> Result<Self> {
        self.response_timeout = within("response timeout", timeout)?;
        Ok(self)
    }

    /// The time without any reply after which a link is tested; default 5 s. A link that does not answer within half
    /// the response timeout is replaced. While commands time out, a link is tested at once.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] outside 10 ms to 60 s.
    pub fn ping_interval(mut self, interval: Duration) -> Result<Self> {
        self.ping_interval = within("ping interval", interval)?;
        Ok(self)
    }

    /// The initial endpoints: the one server, the nodes of the cluster, or the sentinels.
    #[must_use]
    pub fn endpoints(&self) -> Vec<Endpoint> {
        let all = |addresses: &[Address], of: fn(&Self, Address) -> Endpoint| {
            addresses.iter().map(|address| of(self, address.clone())).collect()
        };
        match &self.topology {
            Topology::Single(address) => all(std::slice::from_ref(address), Self::endpoint),
            Topology::Cluster(nodes) => all(nodes, Self::endpoint),
            Topology::Sentinel { sentinels, .. } => all(sentinels, Self::sentinel),
        }
    }

    /// The data server at `address`.
    pub(crate) fn endpoint(&self, address: Address) -> Endpoint {
        Endpoint {
            address,
            login: self.login.clone(),
            database: self.database,
            protocol: self.protocol,
            tls: self.tls.clone(),
            timeout: self.connect_timeout,
        }
    }

    /// The sentinel at `address`. Sentinels speak both protocols only from version 7 on.
    pub(crate) fn sentinel(&self, address: Address) -> Endpoint {
        let login = self.sentinel_login.clone();
        Endpoint { login, database: 0, protocol: Protocol::Resp2, ..self.endpoint(address) }
    }
}

/// A single server at `127.0.0.1:6379`.
impl Default for RedisConfig {
    fn default() -> Self {
        Self::tcp("127.0.0.1", 6379)
    }
}

fn within(what: &str, time: Duration) -> Result<Duration> {
    if (Duration::from_millis(10)..=Duration::from_secs(60)).contains(&time) {
        return Ok(time);
    }
    Err(Error::new(ErrorKind::InvalidArgument, format!("a {what} of {time:?} is outside 10 ms to 60 s")))
}

/// One server and its login. `Debug` does not show credentials.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// The address of the server.
    pub address: Address,
    /// The login.
    pub login: Login,
    /// The number of the database; always 0 on nodes of a cluster and on sentinels.
    pub database: u32,
    /// The protocol to speak.
    pub protocol: Protocol,
    /// The encryption of the connection, if any.
    pub tls: Option<Tls>,
    /// The time limit for opening a connection, login included.
    pub timeout: Duration,
}

/// How long requests wait for a broken link.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    /// Each request waits at most this long.
    EachRequest(Duration),
    /// Requests wait until the link has been broken for this long; from then on they fail at once.
    SinceBroken(Duration),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_is_set_reaches_the_servers_that_are_called() {
        let login = |user: &str| Login { username: Some(user.into()), password: Some(format!("{user}'s")) };
        let config = RedisConfig::tcp("h", 1)
            .username("app")
            .password("app's")
            .database(3)
            .name("billing")
            .protocol(Protocol::Resp2)
            .tls(Tls::default())
            .connect_timeout(Duration::from_millis(10))
            .and_then(|config| config.response_timeout(Duration::from_millis(20)))
            .and_then(|config| config.ping_interval(Duration::from_secs(60)))
            .unwrap();
        assert_eq!(
            (config.response_timeout, config.ping_interval),
            (Duration::from_millis(20), Duration::from_secs(60))
        );
        assert_eq!(config.name.as_deref(), Some("billing"));
        let [endpoint] = &config.endpoints()[..] else { panic!("{:?}", config.endpoints()) };
        assert_eq!((&endpoint.address, &endpoint.login), (&Address::tcp("h", 1), &login("app")));
        assert_eq!((endpoint.database, endpoint.protocol, endpoint.tls.is_some()), (3, Protocol::Resp2, true));
        assert_eq!(endpoint.timeout, Duration::from_millis(10));
        let sentinels = vec![Address::tcp("s", 1), Address::tcp("s", 2)];
        let topology = Topology::Sentinel { sentinels: sentinels.clone(), service: "main".into() };
        let config = RedisConfig { topology, ..config }.sentinel_login(login("guard"));
        let endpoints = config.endpoints();
        assert_eq!(endpoints.iter().map(|endpoint| endpoint.address.clone()).collect::<Vec<_>>(), sentinels);
        assert!(endpoints.iter().all(|endpoint| endpoint.login == login("guard") && endpoint.database == 0));
    }

    #[test]
    fn secrets_are_not_shown() {
        let config = RedisConfig::tcp("h", 1).username("u5er").password("s3cret");
        let identity = Identity { certificates: Arc::default(), key: Arc::from(*b"s3cret") };
        let tls = Tls { authorities: None, identity: Some(identity) };
        let text = format!("{:?}", config.tls(tls));
        assert!(!text.contains("u5er") && !text.contains("s3cret"), "{text}");
    }

    #[test]
    fn times_are_checked() {
        let config = RedisConfig::tcp("h", 1);
        assert!(config.clone().connect_timeout(Duration::ZERO).is_err());
        assert!(config.clone().response_timeout(Duration::from_secs(61)).is_err());
        assert!(config.ping_interval(Duration::from_secs(1)).is_ok());
    }
}
