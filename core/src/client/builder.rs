//! How a client is set up.

use std::sync::Arc;
use std::time::Duration;

use super::Client;
use crate::driver::Backend;
use crate::engine::shared::{Config, Shared};
use crate::error::{Error, ErrorKind, Result};
use crate::ttl::{DriftBound, Ttl};

/// Settings of a [`Client`]; made by [`Client::builder`].
#[derive(Debug)]
#[must_use = "a builder does nothing until `build`"]
pub struct ClientBuilder {
    backend: Backend,
    ttl: Duration,
    drift: DriftBound,
    op_timeout: Duration,
    presence: Duration,
    max_holds: usize,
}

impl ClientBuilder {
    pub(super) fn new(backend: Backend) -> Self {
        Self {
            backend,
            ttl: Ttl::DEFAULT.get(),
            drift: DriftBound::DEFAULT,
            op_timeout: Duration::from_secs(1),
            presence: Duration::from_secs(15),
            max_holds: 1_000_000,
        }
    }

    /// The ttl of locks that are not given one of their own. Default: 30 s.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How far the clocks of client and backend may run apart. Default: 1 % and 2 ms.
    pub fn drift(mut self, drift: DriftBound) -> Self {
        self.drift = drift;
        self
    }

    /// How long one request may take before its outcome counts as unknown. Default: 1 s. A request that takes a lock
    /// is also bounded by its ttl, a renewal by a quarter of it.
    pub fn op_timeout(mut self, limit: Duration) -> Self {
        self.op_timeout = limit;
        self
    }

    /// How long a waiter that fell silent keeps its place in a queue, by the backend's clock. Default: 15 s.
    ///
    /// A waiter asks again every third of it, which also bounds how long a lost wake-up can delay it. Shorter values
    /// notice dead waiters sooner and cost more requests while waiting.
    pub fn presence(mut self, presence: Duration) -> Self {
        self.presence = presence;
        self
    }

    /// The most holds, attempts and clean-ups that this client has at once; one more is refused with
    /// [`ErrorKind::LimitReached`]. Default: 1,000,000.
    pub fn max_holds(mut self, most: usize) -> Self {
        self.max_holds = most;
        self
    }

    /// Checks the settings and makes the client. Does no I/O.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when a setting is outside its limits, or when the drift bound leaves nothing of
    /// the ttl.
    pub fn build(self) -> Result<Client> {
        let ttl = Ttl::new(self.ttl)?;
        self.backend.locks().capabilities().ttl.check(ttl)?;
        within("op_timeout", self.op_timeout, Duration::from_millis(1), Duration::from_secs(60))?;
        within("presence", self.presence, Duration::from_millis(30), Duration::from_secs(3600))?;
        if self.drift.believable(ttl.get()).is_none() {
            let text = format!("the drift bound leaves nothing of a ttl of {:?}", self.ttl);
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        if self.max_holds == 0 {
            return Err(Error::new(ErrorKind::InvalidArgument, "max_holds must not be zero"));
        }
        Ok(self.assemble(ttl))
    }

    /// Makes the client with a ttl that is known to be good.
    pub(super) fn assemble(self, ttl: Ttl) -> Client {
        let Self { backend, drift, op_timeout, presence, max_holds, .. } = self;
        Client::from_shared(Arc::new(Shared::new(backend, Config { ttl, drift, op_timeout, presence, max_holds })))
    }
}

fn within(what: &str, value: Duration, least: Duration, most: Duration) -> Result<()> {
    if value < least || value > most {
        let text = format!("{what} of {value:?} is outside {least:?} to {most:?}");
        return Err(Error::new(ErrorKind::InvalidArgument, text));
    }
    Ok(())
}
