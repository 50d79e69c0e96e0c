//! The driver type, and what it may be connected on.

use fred::clients::Client;
use fred::interfaces::ClientLike as _;
use fred::types::config::ServerConfig;
use tenure_core::{Error, ErrorKind, Result};
use tenure_redis_support::{Driver, RedisConfig};

/// A connected driver, through the crate `fred`. Clones share the connections.
///
/// Its URLs begin with `fred+`. A database above 255 is `Unsupported`.
///
/// # Your own client
///
/// [`on`](Driver::on) sends commands through a client that your program connected with version 10 of the
/// crate `fred`; other code may continue to use it. The configuration contains the address of the same server, the login
/// and all other settings.
///
/// The client has to be connected, to one server; otherwise the errors are `Unavailable` and `InvalidArgument`. **Each
/// command is sent at most once**, whatever the client's `max_command_attempts` (default: 3) and reconnect policy are:
/// commands of locks carry their own options, one attempt and `fail_fast`. A client that reconnects serves locks again
/// afterwards. Without a policy it ends with its connection, and you need a new driver. Its `default_command_timeout`
/// applies in addition to the response timeout of the configuration.
///
/// ```no_run
/// use fred::prelude::*;
/// use tenure_fred::{FredDriver, RedisConfig};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let client = Builder::from_config(Config::from_url("redis://127.0.0.1/")?).build()?;
/// client.init().await?;
/// let driver = FredDriver::on(client.clone(), RedisConfig::from_url("redis://127.0.0.1/")?).await?;
/// # Ok(())
/// # }
/// ```
pub type FredDriver = Driver<FredDialer>;

/// Opens connections of the crate `fred` for a [`FredDriver`].
#[derive(Clone, Debug, Default)]
pub struct FredDialer {
    /// The client that commands are sent through, instead of a connection that the driver opens.
    pub(crate) given: Option<Client>,
}

impl From<Client> for FredDialer {
    fn from(client: Client) -> Self {
        Self { given: Some(client) }
    }
}

impl FredDialer {
    /// The configuration of the given client's server, if there is a client and the two fit.
    pub(crate) fn fit(&self, config: RedisConfig) -> Result<RedisConfig> {
        let Some(client) = &self.given else { return Ok(config) };
        let theirs = client.client_config();
        let invalid = |text: String| Err(Error::new(ErrorKind::InvalidArgument, text));
        if !matches!(theirs.server, ServerConfig::Centralized { .. } | ServerConfig::Unix { .. }) {
            return invalid("the given client leads to a cluster or to sentinels; it must lead to one server".into());
        }
        let database = u32::from(theirs.database.unwrap_or_default());
        if let Some(endpoint) = config.endpoints().first().filter(|endpoint| endpoint.database != database) {
            let ours = endpoint.database;
            return invalid(format!(
                "the given client uses the database {database}, and the configuration names {ours}"
            ));
        }
        config.on_given()
    }
}
