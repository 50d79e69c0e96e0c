//! The driver type, and what it may be connected on.

use redis::aio::MultiplexedConnection;
use redis::{Client, ConnectionAddr, ProtocolVersion};
use tenure_core::{Error, ErrorKind, Result};
use tenure_redis_support::{Address, Driver, Protocol, RedisConfig};

/// A connected driver, through the crate `redis`. Clones share the connections.
///
/// [`on`](Driver::on) takes what your program opened with version 1 of the crate `redis`.
///
/// # Your own connection
///
/// A [`MultiplexedConnection`] sends each command at most once, which locks need; other code may continue to use it. (A
/// `ConnectionManager` is not accepted, since the outcome of a command is unknown if it reconnects in between.) The
/// configuration contains the address of the same server, the login and all other settings; set the
/// [`database`](RedisConfig::database) that your connection has selected, and select no other one later. The driver does
/// not change the connection's response timeout or its name; its limit of concurrent commands applies, and the wait
/// counts towards the response timeout of the configuration.
///
/// **It is never replaced**: when it ends, requests on their way are `Indeterminate`, later ones `Unavailable`, and you
/// need a new driver. Other ways to connect open connections that are replaced.
///
/// ```no_run
/// use tenure_redis::{RedisConfig, RedisDriver};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let client = redis::Client::open("redis://127.0.0.1/")?;
/// let connection = client.get_multiplexed_async_connection().await?;
/// let driver = RedisDriver::on(connection, RedisConfig::from_url("redis://127.0.0.1/")?).await?;
/// # Ok(())
/// # }
/// ```
///
/// # Your own client
///
/// The driver opens its own connections through a [`redis::Client`], one with the newer protocol and two with the older,
/// and opens others when they end. Each command is sent at most once, whatever else uses the client. Address, login,
/// database, protocol and TLS are the client's; these settings of the configuration are not used. All other settings are
/// from the configuration: times, the name of the connections, and the lock settings.
///
/// ```no_run
/// use tenure_redis::{RedisConfig, RedisDriver};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let client = redis::Client::open("redis://127.0.0.1/")?;
/// let driver = RedisDriver::on(client, RedisConfig::default()).await?;
/// # Ok(())
/// # }
/// ```
pub type RedisDriver = Driver<RedisDialer>;

/// Opens connections of the crate `redis` for a [`RedisDriver`].
#[derive(Clone, Debug, Default)]
pub struct RedisDialer(pub(crate) Source);

/// The source of connections.
#[derive(Clone, Debug, Default)]
pub(crate) enum Source {
    /// Connections as the endpoint describes.
    #[default]
    Own,
    /// This connection sends commands; the listening one is opened as the endpoint describes.
    On(MultiplexedConnection),
    /// This client opens all connections, and defines address and login.
    Through(Client),
}

impl From<MultiplexedConnection> for RedisDialer {
    fn from(connection: MultiplexedConnection) -> Self {
        Self(Source::On(connection))
    }
}

impl From<Client> for RedisDialer {
    fn from(client: Client) -> Self {
        Self(Source::Through(client))
    }
}

impl Source {
    /// The configuration for connections from this source.
    pub(crate) fn agree(&self, config: RedisConfig) -> Result<RedisConfig> {
        match self {
            Self::Own => Ok(config),
            Self::On(_) => config.on_given(),
            Self::Through(client) => as_said(client, config),
        }
    }
}

/// A configuration of the server that a client leads to, and of the database and protocol that it says.
fn as_said(client: &Client, config: RedisConfig) -> Result<RedisConfig> {
    let info = client.get_connection_info();
    let invalid = |text: &'static str| Error::new(ErrorKind::InvalidArgument, text);
    let address = match info.addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            Address::Tcp { host: host.clone(), port: *port }
        }
        ConnectionAddr::Unix(path) => Address::Unix(path.clone()),
        _ => return Err(invalid("the given client leads to an address of an unknown kind")),
    };
    let database = u32::try_from(info.redis_settings().db());
    let database = database.map_err(|_| invalid("the number of the given client's database is no such number"))?;
    let protocol = match info.redis_settings().protocol() {
        ProtocolVersion::RESP2 => Protocol::Resp2,
        _ => Protocol::Resp3,
    };
    config.at(address).map(|config| config.database(database).protocol(protocol))
}
