//! Commands on a connection that somebody else opened.

use tenure_core::{Error, ErrorKind, Result};

use crate::config::{Protocol, RedisConfig};
use crate::link::Dialer;
use crate::lock::RedisLocks;
use crate::remote::{RedisExecutor as _, Remote};
use crate::script::Reply;

impl<D: Dialer> RedisLocks<Remote<D>> {
    /// As [`connect`](Self::connect), with a dialer whose sockets without a [`Listen`](crate::Listen) are a connection that it
    /// was given. Those that listen it opens itself, by the configuration.
    ///
    /// Beside what `connect` checks: that a message which is published on the given connection reaches the one that
    /// listens, and that the database selected on it is the configuration's, as far as the server tells. Nobody may select
    /// another one later.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when the configuration is not of a single server, or names another database;
    /// [`ErrorKind::Misconfigured`] when the two connections lead to different servers; otherwise those of
    /// [`connect`](Self::connect).
    ///
    /// # Cancel safety
    ///
    /// As [`connect`](Self::connect).
    pub async fn connect_given(dialer: D, config: &RedisConfig) -> Result<Self> {
        let config = config.clone().single()?;
        // Two connections, as with the older protocol. The given one keeps its name.
        let config = RedisConfig { protocol: Protocol::Resp2, name: None, ..config };
        let locks = Self::connect(dialer, &config).await?;
        locks.hears_itself().await?;
        locks.is_at(config.database).await?;
        Ok(locks)
    }

    /// Whether the database that is selected on the given connection is the one that clients of the same configuration use.
    async fn is_at(&self, database: u32) -> Result<()> {
        for (_, answer) in self.executor().command(&["CLIENT", "INFO"]).await {
            let Ok(Reply::Bytes(told)) = answer else { continue }; // kept from the user: it is believed
            let told = String::from_utf8_lossy(&told).into_owned();
            let selected = told.split_whitespace().find_map(|word| word.strip_prefix("db="));
            if let Some(selected) = selected.filter(|selected| *selected != database.to_string()) {
                let text = format!(
                    "database {selected} is selected on the given connection, and the configuration names database {database}"
                );
                return Err(Error::new(ErrorKind::InvalidArgument, text));
            }
        }
        Ok(())
    }

    /// Whether wake-ups that are sent over the one connection arrive on the other.
    async fn hears_itself(&self) -> Result<()> {
        let keys = &self.calls().keys;
        for (server, answer) in self.executor().command(&["PUBLISH", &keys.wake_channel(), ""]).await {
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
