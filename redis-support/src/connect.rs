//! Connecting by a configuration, by a URL, or on a connection that the caller opened.

use futures_util::FutureExt as _;
use tenure_core::driver::BackendUrl;
use tenure_core::{Error, ErrorKind, Result};

use crate::config::{RedisConfig, Topology};
use crate::keyspace::{ClientId, Keyspace};
use crate::link::{Dialer, WakeLink};
use crate::lock::Driver;
use crate::script::Reply;
use crate::servers::Servers;
use crate::settings::FenceScope;

impl<D: Dialer + Default> Driver<D> {
    /// Connects to the server of a URL, as [`RedisConfig::from_url`] reads it; through `fred` with `fred+` in front,
    /// such as `fred+redis://127.0.0.1/`.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` when the URL does not begin so; otherwise those of [`RedisConfig::from_url`] and
    /// [`connect_with`](Self::connect_with).
    ///
    /// # Cancel safety
    ///
    /// Like [`connect_with`](Self::connect_with).
    pub async fn connect(url: &str) -> Result<Self> {
        let mut url = BackendUrl::parse(url)?;
        if !url.strip_scheme(D::SCHEME) {
            let text = format!("the URL does not begin with {}", D::SCHEME);
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        Self::connect_with(RedisConfig::read(url)?).await
    }

    /// Connects to the server, the cluster, or the primary behind sentinels, and checks that it is fit to keep locks.
    /// Needs a tokio runtime, which runs the connections and their tasks.
    ///
    /// # Errors
    ///
    /// `Unavailable` when a server cannot be reached or does not answer in time, `Denied` for wrong credentials or a
    /// missing right, which is named, `Misconfigured` for a replica, an old server, an eviction policy other than
    /// `noeviction`, or another topology than the configuration says, `Unsupported` for what the client library cannot
    /// do, such as TLS without the feature `tls`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes all connections that it opened.
    pub async fn connect_with(config: RedisConfig) -> Result<Self> {
        Self::on(D::default(), config).await
    }
}

impl<D: Dialer> Driver<D> {
    /// Connects like [`connect_with`](Self::connect_with), on what your program opened: see the type of the driver for
    /// what that may be.
    ///
    /// With a connection of yours, the driver opens a second one by `config`, which only listens for wake-ups. It also
    /// checks that a message published on the given connection reaches the listening one, and that the given connection
    /// has selected the [`database`](RedisConfig::database) of `config`, as far as the server reports it.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` when `config` is of a cluster or of sentinels, or names another database than your connection;
    /// `Misconfigured` when the two connections lead to different servers; otherwise those of
    /// [`connect_with`](Self::connect_with).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes all connections that it opened, and leaves the given one open.
    pub async fn on(yours: impl Into<D>, config: RedisConfig) -> Result<Self> {
        let dialer = yours.into();
        let mut config = dialer.agree(config)?;
        let in_cluster = matches!(config.topology, Topology::Cluster(_));
        if in_cluster {
            config.settings.fence_scope = FenceScope::Name;
        }
        let keys = Keyspace::of(&config.settings, ClientId::random());
        let keys = if in_cluster { keys.over_slots() } else { keys };
        let wake = WakeLink::default();
        let listen = wake.listen(keys.wake_channel());
        // Boxed: the future of connecting is deep, and would count against the limits of callers that await it.
        let servers = Servers::connect(dialer, &config, listen).boxed().await.map_err(|error| keys.explain(error))?;
        let driver = Self::unchecked(servers, keys, &config, wake, None);
        driver.check().boxed().await?;
        if config.is_given {
            driver.hears_itself().boxed().await?;
            driver.is_at(config.database).boxed().await?;
        }
        Ok(driver)
    }

    /// Checks that the database selected on the given connection is the one of other clients of the same configuration.
    async fn is_at(&self, database: u32) -> Result<()> {
        for (_, answer) in self.servers().everywhere(&["CLIENT", "INFO"]).await {
            let Ok(Reply::Bytes(info)) = answer else { continue }; // the user has no right to it: assume that it fits
            let info = String::from_utf8_lossy(&info).into_owned();
            let selected = info.split_whitespace().find_map(|word| word.strip_prefix("db="));
            if let Some(selected) = selected.filter(|selected| *selected != database.to_string()) {
                let text = format!(
                    "database {selected} is selected on the given connection, and the configuration names database {database}"
                );
                return Err(Error::new(ErrorKind::InvalidArgument, text));
            }
        }
        Ok(())
    }

    /// Checks that wake-ups sent over the given connection arrive on the other one.
    async fn hears_itself(&self) -> Result<()> {
        let keys = &self.calls().keys;
        for (server, answer) in self.servers().everywhere(&["PUBLISH", &keys.wake_channel(), ""]).await {
            match answer.map_err(|error| error.into_error(keys, None))? {
                Reply::Int(listeners) if listeners > 0 => {}
                _ => {
                    let text = format!(
                        "wake-ups that are sent on the given connection do not arrive on the one to {server}: the two lead to \
                         different servers"
                    );
                    return Err(Error::new(ErrorKind::Misconfigured, text));
                }
            }
        }
        Ok(())
    }
}
