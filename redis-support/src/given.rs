//! Commands on a connection that somebody else opened.

use tenure_core::{Error, ErrorKind, Result};

use crate::config::{Protocol, RedisConfig, Topology};
use crate::dial::Dialer;
use crate::executor::{RedisExecutor as _, Reply};
use crate::lock::RedisLocks;
use crate::remote::Remote;

impl<D: Dialer> RedisLocks<Remote<D>> {
    /// As [`connect`](Self::connect), with a dialer whose sockets without a [`Listen`](crate::Listen) are a connection that it
    /// was given. Those that listen it opens itself, by the configuration.
    ///
    /// Beside what `connect` checks: that a message which is published on the given connection reaches the one that
    /// listens.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when the configuration is not of a single server;
    /// [`ErrorKind::Misconfigured`] when the two connections lead to different servers; otherwise those of
    /// [`connect`](Self::connect).
    ///
    /// # Cancel safety
    ///
    /// As [`connect`](Self::connect).
    pub async fn connect_given(dialer: D, config: &RedisConfig) -> Result<Self> {
        if !matches!(config.topology, Topology::Single(_)) {
            let text =
                "a connection that is given leads to one server, and the configuration names a cluster or sentinels";
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        // Two connections, as with the older protocol. The given one keeps its name.
        let config = RedisConfig { protocol: Protocol::Resp2, name: None, ..config.clone() };
        let locks = Self::connect(dialer, &config).await?;
        locks.hears_itself().await?;
        Ok(locks)
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
