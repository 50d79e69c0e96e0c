//! A client of one backend. The handles on locks, queues and elections that it gives out are made where they are.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::driver::{
    Backend, CensusCapabilities, Checkup, Concern, Finding, Hold, LockCapabilities, QueueCapabilities,
    ReentrantCapabilities, Topic,
};
use crate::engine::local_handover::LocalQueues;
use crate::engine::renewer::Confirmation;
use crate::engine::shared::{Config, Shared};
use crate::engine::wait::in_place_of_all;
use crate::meters::Only;
use crate::queue::Fetchers;
use crate::runtime::bounded;
use crate::value::error::{Error, ErrorKind, LockName, Result};
use crate::value::time::{DriftBound, Ttl};
use crate::value::token::OwnerToken;

// How a client is set up.

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
    metric_names: Only<usize>,
}

impl ClientBuilder {
    /// The most that [`holders_per_grant`](Self::holders_per_grant) may be.
    pub const MAX_HOLDERS_PER_GRANT: u32 = 64;
    /// The least and the most that [`op_timeout`](Self::op_timeout) may be: 1 ms and 60 s.
    pub const OP_TIMEOUT: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(60);
    /// The least and the most that [`presence`](Self::presence) may be: 30 ms and an hour.
    pub const PRESENCE: RangeInclusive<Duration> = Duration::from_millis(30)..=Duration::from_secs(3600);

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
            metric_names: Only::new(|| 0),
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

    /// How many names of locks, and as many of queues, become the label `name` of the metrics: those that are used first. Those
    /// that come later count together under `_other`. Default: 0, metrics say nothing about names.
    ///
    /// Each name is a dozen time series to whatever stores them, for as long as the program runs: keep it to names that the
    /// program knows beforehand.
    #[cfg(feature = "metrics")]
    #[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
    pub fn metric_names(mut self, most: usize) -> Self {
        self.metric_names = Only::new(|| most);
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
        within("op_timeout", self.op_timeout, &Self::OP_TIMEOUT)?;
        within("presence", self.presence, &Self::PRESENCE)?;
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
        let Self { max_holds, holders_per_grant, confirmation, metric_names, .. } = self;
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
            metric_names,
        };
        let shared = Arc::new(Shared::new(backend, config));
        Client { local_queues: Arc::new(LocalQueues::new(shared, in_place_of_all)), fetchers: Arc::default() }
    }
}

fn within(what: &str, value: Duration, range: &RangeInclusive<Duration>) -> Result<()> {
    if !range.contains(&value) {
        let text = format!("{what} of {value:?} is outside {:?} to {:?}", range.start(), range.end());
        return Err(Error::new(ErrorKind::InvalidArgument, text));
    }
    Ok(())
}

// The client itself.

/// A client of one backend. Clones are the same client; make one and share it.
///
/// A client owns one timer, which renews all its leases in batches, and one task that undoes what was given up. Both start
/// with the first acquisition, on the tokio runtime that it is awaited in, and go on on another one that uses the client when
/// that one ends: a client can be a `static` that many runtimes share, one after the other or at the same time. A
/// current-thread runtime runs them only inside `block_on`: in between nothing is renewed or undone, and leases end by their
/// deadlines.
#[derive(Clone, Debug)]
pub struct Client {
    pub(crate) local_queues: Arc<LocalQueues>,
    pub(crate) fetchers: Arc<Fetchers>,
}

/// How many times the timeout of one request an examination may take: each server is sent a few.
const EXAMINATION: u32 = 5;

/// An answer to something that changes nothing: without it, it does not matter whether the request was carried out.
fn unavailable_without_answer<T>(answer: Result<T>) -> Result<T> {
    answer.map_err(|error| match error.kind() {
        ErrorKind::Indeterminate => error.again().with_kind(ErrorKind::Unavailable),
        _ => error.again(),
    })
}

/// What a client has under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientStats {
    /// Guards that exist, lost ones included.
    pub holds: usize,
    /// Acquisitions that are waiting.
    pub waiters: usize,
    /// Releases and abandoned attempts that the backend has not acknowledged.
    pub cleanups: usize,
    /// Leases without a guard that are [left standing](crate::Lock::at_least).
    pub standing: usize,
}

impl Client {
    /// A client with the default settings. Does no I/O.
    #[must_use]
    pub fn new(backend: impl Into<Backend>) -> Self {
        Self::builder(backend).assemble(Ttl::DEFAULT)
    }

    /// A client with settings of its own.
    pub fn builder(backend: impl Into<Backend>) -> ClientBuilder {
        ClientBuilder::new(backend.into())
    }

    pub(crate) fn shared(&self) -> &Shared {
        self.local_queues.shared()
    }

    /// What the driver's delay queues promise; `None` if it has none.
    #[must_use]
    pub fn queue_capabilities(&self) -> Option<QueueCapabilities> {
        self.shared().backend.queue().map(|driver| driver.capabilities())
    }

    /// Asks the backend for something that changes nothing, to learn whether it answers: for health checks, on every driver.
    /// One request within the client's `op_timeout`; on a quorum one to each node, of which a majority has to answer; in a
    /// Redis Cluster to one of the primaries. A server that is out of memory, or may evict by now, answers too:
    /// [`doctor`](Self::doctor) tells that.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] when no answer came; [`ErrorKind::Closed`] when the client was closed; otherwise why the
    /// backend refused ([`ErrorKind::Misconfigured`], [`ErrorKind::Denied`], …).
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing is changed.
    pub async fn ping(&self) -> Result<()> {
        self.shared().ensure_open()?;
        let limit = self.shared().config.op_timeout;
        // Every driver has this, and a token that nobody has heard of holds nothing.
        let nothing = Hold { name: LockName::new("ping")?, token: OwnerToken::random() };
        unavailable_without_answer(bounded(limit, self.shared().backend.locks().release(&nothing)).await).map(drop)
    }

    /// Looks at the backend's servers (eviction, persistence, replicas, version, clocks, rights) and tells what they mean
    /// for locks: at the start of a program, or for an operator. A few requests to each server, within five times the client's
    /// `op_timeout`; changes nothing.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Closed`] when the client was closed; otherwise why the servers did not answer. What is wrong with one that
    /// does is a finding. A driver that knows of no servers answers whether it [can be reached](Self::ping).
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing is changed.
    pub async fn doctor(&self) -> Result<Checkup> {
        self.shared().ensure_open()?;
        if let Some(doctor) = self.shared().backend.doctor() {
            let limit = self.shared().config.op_timeout * EXAMINATION;
            return unavailable_without_answer(bounded(limit, doctor.examine()).await);
        }
        self.ping().await?;
        let reached = Finding {
            server: self.driver().to_owned(),
            topic: Topic::Reach,
            concern: Concern::Fine,
            seen: "it answers".into(),
            meaning: "locks are served; the driver knows of no server to look at".into(),
        };
        Ok([reached].into_iter().collect())
    }

    /// The driver's name.
    #[must_use]
    pub fn driver(&self) -> &'static str {
        self.shared().driver()
    }

    /// What the driver's locks promise.
    #[must_use]
    pub fn capabilities(&self) -> LockCapabilities {
        self.shared().backend.locks().capabilities()
    }

    /// What the driver's re-entrant locks promise; `None` if it has none.
    #[must_use]
    pub fn reentrant_capabilities(&self) -> Option<ReentrantCapabilities> {
        self.shared().backend.reentrant().map(|driver| driver.capabilities())
    }

    /// What the driver's list of held locks promises; `None` if it has none.
    #[must_use]
    pub fn census_capabilities(&self) -> Option<CensusCapabilities> {
        self.shared().backend.census().map(|driver| driver.capabilities())
    }

    /// What this client has under way.
    #[must_use]
    pub fn stats(&self) -> ClientStats {
        ClientStats {
            holds: self.shared().holds.load(Ordering::Acquire),
            waiters: self.shared().waiters.load(Ordering::Acquire),
            cleanups: self.shared().reaper.pending(),
            standing: self.shared().reaper.standing(),
        }
    }

    /// Closes the client, for all its clones: waits until everything given up is undone, at most `limit`. Closing the
    /// driver then takes no longer than the client's `op_timeout`.
    ///
    /// New acquisitions and those that wait fail with [`ErrorKind::Closed`]. Guards that still exist are told
    /// [`LostReason::Closed`](crate::LostReason::Closed), and their leases are given back; those of
    /// [`at_least`](crate::Lock::at_least) are left standing for the rest.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TimedOut`] when the backend had not acknowledged everything in time; what is left ends with its
    /// ttl. The client is closed all the same.
    ///
    /// # Cancel safety
    ///
    /// Once polled, the client is closed; dropping the future only ends the waiting.
    pub async fn close(&self, limit: Duration) -> Result<()> {
        self.shared().close(limit, self.fetchers.drained()).await
    }
}
