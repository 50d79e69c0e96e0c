//! How a client is set up.

use std::sync::Arc;
use std::time::Duration;

use super::Client;
use crate::driver::Backend;
use crate::engine::confirmation::Confirmation;
use crate::engine::shared::{Config, Shared};
use crate::value::error::{Error, ErrorKind, Result};
use crate::value::ttl::{DriftBound, Ttl};

/// Settings of a [`Client`]; made by [`Client::builder`].
#[derive(Debug)]
#[must_use = "a builder does nothing until `build`"]
pub struct ClientBuilder {
    backend: Backend,
    ttl: Duration,
    drift: DriftBound,
    op_timeout: Duration,
    presence: Duration,
    parked_turn: Duration,
    max_holds: usize,
    holders_per_grant: u32,
    confirmation: Confirmation,
}

impl ClientBuilder {
    /// The most that [`holders_per_grant`](Self::holders_per_grant) may be.
    pub const MAX_HOLDERS_PER_GRANT: u32 = 64;

    pub(super) fn new(backend: Backend) -> Self {
        Self {
            backend,
            ttl: Ttl::DEFAULT.get(),
            drift: DriftBound::DEFAULT,
            op_timeout: Duration::from_secs(1),
            presence: Duration::from_secs(15),
            parked_turn: Duration::from_secs(2),
            max_holds: 1_000_000,
            holders_per_grant: 8,
            confirmation: Confirmation::default(),
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

    /// How long one request may take before its outcome counts as unknown, counted from when it leaves. Default: 1 s;
    /// 1 ms to 60 s. A request that takes a lock
    /// is also bounded by its ttl, a renewal by a quarter of it.
    pub fn op_timeout(mut self, limit: Duration) -> Self {
        self.op_timeout = limit;
        self
    }

    /// How long a waiter that fell silent keeps its place in a queue, by the backend's clock. Default: 15 s; 30 ms to an hour.
    ///
    /// A waiter asks again every third of it, which also bounds how long a lost wake-up can delay it. Shorter values
    /// notice dead waiters sooner and cost more requests while waiting.
    pub fn presence(mut self, presence: Duration) -> Self {
        self.presence = presence;
        self
    }

    /// For how long a lock is kept for a message that this client parked behind it, once its turn has come, until a receiver
    /// takes it up: nobody has the lock meanwhile. It is given to the next in line when that is over. Default: 2 s; a ttl, moved
    /// to what the driver keeps. Makes sense for workers that take long to notice that a message is due.
    pub fn parked_turn(mut self, most: Duration) -> Self {
        self.parked_turn = most;
        self
    }

    /// The most holds, attempts and clean-ups that this client has at once; one more is refused with
    /// [`ErrorKind::LimitReached`]. Default: 1,000,000; at least 1.
    pub fn max_holds(mut self, most: usize) -> Self {
        self.max_holds = most;
        self
    }

    /// How many holders of this client one grant may serve, one after the other, while several of its tasks wait for the
    /// same lock: all but the first are given the lease by the one before them, without a request. 1: they share a place
    /// in the backend's queue, and each holder is granted the lock by the backend. 0: each has a place of its own.
    /// Default: 8; at most [`MAX_HOLDERS_PER_GRANT`](Self::MAX_HOLDERS_PER_GRANT).
    ///
    /// Each holder has a fence of its own: the backend reserves that many with every grant to a waiter. Other clients
    /// wait for no more holders than these, and a lease is passed on only for the first 10 ms (or the first quarter of
    /// its ttl) after its grant. It concerns waiters of plain locks that want the same ttl, label and `max_hold`. Waiters
    /// that want the same fixed lease share a place as with 1, and so do all with a driver that cannot reserve fences
    /// ([`max_fences`](crate::driver::LockCapabilities::max_fences)).
    ///
    /// To the backend all these holders are one: it tells the first one's fence, and for how long all have held it.
    pub fn holders_per_grant(mut self, most: u32) -> Self {
        self.holders_per_grant = most;
        self
    }

    /// When a lock that was handed to a waiter is made to last for its whole ttl. Default: by the kind of the runtime.
    pub fn confirmation(mut self, when: Confirmation) -> Self {
        self.confirmation = when;
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
        Ttl::new(self.parked_turn)?;
        if self.drift.believable(ttl.get()).is_none() {
            let text = format!("the drift bound leaves nothing of a ttl of {:?}", self.ttl);
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        if self.max_holds == 0 {
            return Err(Error::new(ErrorKind::InvalidArgument, "max_holds must not be zero"));
        }
        if self.holders_per_grant > Self::MAX_HOLDERS_PER_GRANT {
            let text = format!("holders_per_grant of {} is above the most, 64", self.holders_per_grant);
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        Ok(self.assemble(ttl))
    }

    /// Makes the client with a ttl that is known to be good.
    pub(super) fn assemble(self, ttl: Ttl) -> Client {
        let Self { backend, drift, op_timeout, presence, parked_turn, .. } = self;
        let Self { max_holds, holders_per_grant, confirmation, .. } = self;
        let parked_turn = backend.locks().capabilities().ttl.at_most(parked_turn);
        let shares = holders_per_grant > 0;
        let config = Config {
            ttl,
            drift,
            op_timeout,
            presence,
            parked_turn,
            max_holds,
            holders_per_grant,
            shares,
            confirmation,
        };
        Client::from_shared(Arc::new(Shared::new(backend, config)))
    }
}

fn within(what: &str, value: Duration, least: Duration, most: Duration) -> Result<()> {
    if value < least || value > most {
        let text = format!("{what} of {value:?} is outside {least:?} to {most:?}");
        return Err(Error::new(ErrorKind::InvalidArgument, text));
    }
    Ok(())
}
