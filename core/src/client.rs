//! A client of one backend. Its handles on locks, queues and elections are made in their own files.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::driver::{
    Backend, CensusCapabilities, Checkup, Concern, ErrorExt as _, Finding, Hold, LockCapabilities, PermitCapabilities,
    QueueCapabilities, ReentrantCapabilities, Topic,
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
    /// The greatest value of [`holders_per_grant`](Self::holders_per_grant).
    pub const MAX_HOLDERS_PER_GRANT: u32 = 64;
    /// The least and the greatest value of [`op_timeout`](Self::op_timeout): 1 ms and 60 s.
    pub const OP_TIMEOUT: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(60);
    /// The least and the greatest value of [`presence`](Self::presence): 30 ms and an hour.
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

    /// Sets the ttl of locks that do not set their own. Default: 30 s.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Sets the maximum difference between the clocks of client and backend. Default: 1 % and 2 ms.
    pub fn drift(mut self, drift: DriftBound) -> Self {
        self.drift = drift;
        self
    }

    /// Sets the time limit of one request, counted from when it leaves; after that its outcome counts as unknown.
    /// Default: 1 s; 1 ms to 60 s. A request that takes a lock is also bounded by its ttl, a renewal by a quarter of
    /// it.
    pub fn op_timeout(mut self, limit: Duration) -> Self {
        self.op_timeout = limit;
        self
    }

    /// Sets the time that a silent waiter keeps its place in a queue, by the backend's clock. Default: 15 s; 30 ms to
    /// an hour.
    ///
    /// A waiter asks again every third of it, which also bounds the delay by a lost wake-up. With shorter values dead
    /// waiters are noticed sooner, and waiting costs more requests.
    pub fn presence(mut self, presence: Duration) -> Self {
        self.presence = presence;
        self
    }

    /// Sets the time that a lock stays reserved for a message that this client parked, after its turn comes and before
    /// a receiver picks it up: the lock has no other holder meanwhile. After that the lock goes to the next waiter.
    /// Default: 2 s; a ttl, rounded to the driver's range. Useful for workers that notice a due message late.
    pub fn parked_turn(mut self, most: Duration) -> Self {
        self.parked_turn = most;
        self
    }

    /// Sets the most holds, attempts and clean-ups that this client has at once; a further one fails with
    /// [`ErrorKind::LimitReached`]. Default: 1,000,000; at least 1.
    pub fn max_holds(mut self, most: usize) -> Self {
        self.max_holds = most;
        self
    }

    /// Sets the number of holders of this client that one grant may serve, one after the other, while several of its
    /// tasks wait for the same lock: each holder hands the lease over to the next without a request. 1: they share a
    /// place in the backend's queue, and the backend grants the lock to each holder. 0: each has its own place.
    /// Default: 8; at most [`MAX_HOLDERS_PER_GRANT`](Self::MAX_HOLDERS_PER_GRANT).
    ///
    /// Each holder has its own fence: the backend reserves that many with every grant to a waiter. Other clients wait
    /// for no more holders than these, and a lease is handed over only for the first 10 ms (or the first quarter of its
    /// ttl) after its grant. The setting applies to waiters of plain locks with the same ttl, label and `max_hold`.
    /// Waiters with the same fixed lease share a place as with 1, and so do all with a driver that cannot reserve
    /// fences ([`max_fences`](crate::driver::LockCapabilities::max_fences)).
    ///
    /// To the backend all these holders are one: it reports the fence of the first, and the time that all have held the
    /// lock.
    pub fn holders_per_grant(mut self, most: u32) -> Self {
        self.holders_per_grant = most;
        self
    }

    /// Sets the time at which a handed-over lease is extended to the full ttl: before `acquire` returns, or right
    /// after. Default: by the kind of the runtime.
    pub fn confirmation(mut self, when: Confirmation) -> Self {
        self.confirmation = when;
        self
    }

    /// Sets the number of lock names, and of queue names, that become the label `name` of the metrics: those that are
    /// used first. Later ones count together under `_other`. Default: 0, metrics have no names.
    ///
    /// Each name adds a dozen time series to the metrics' store, for as long as the program runs: use it for names that
    /// the program knows beforehand.
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
            let text = format!("a ttl of {:?} is shorter than the drift bound", self.ttl);
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        if self.max_holds == 0 {
            return Err(Error::new(ErrorKind::InvalidArgument, "max_holds must not be zero"));
        }
        if self.holders_per_grant > Self::MAX_HOLDERS_PER_GRANT {
            let text = format!("holders_per_grant of {} is above the maximum of 64", self.holders_per_grant);
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        Ok(self.assemble(ttl))
    }

    /// Makes the client with a valid ttl.
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
/// A client owns one timer, which renews all its leases in batches, and one task that undoes abandoned attempts. Both
/// start with the first acquisition, on the tokio runtime that it is awaited in. When that runtime ends, they continue
/// on another one that uses the client: a client can be a `static` that many runtimes share, one after the other or at
/// the same time. A current-thread runtime runs them only inside `block_on`: in between nothing is renewed or undone,
/// and leases end by their deadlines.
///
/// ```
/// # mod tenure {
/// #     pub use tenure_core::*;
/// #     pub use tenure_memory as memory;
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tenure::Result<()> {
/// use std::time::Duration;
/// use tenure::{Client, memory::MemoryDriver};
///
/// let ttl = Duration::from_secs(10);
/// let client = Client::builder(MemoryDriver::new()).ttl(ttl).build()?;
///
/// let guard = client.lock("orders/42").acquire().await?;
/// assert_eq!(client.stats().holds, 1);
/// drop(guard);
/// // At the end of `main`: waits until all locks are released.
/// client.close(Duration::from_secs(5)).await?;
/// assert_eq!(client.stats().cleanups, 0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Client {
    pub(crate) local_queues: Arc<LocalQueues>,
    pub(crate) fetchers: Arc<Fetchers>,
}

/// The time limit of a health check, in timeouts of one request: each server receives a few.
const EXAMINATION: u32 = 5;

/// Maps the answer of a read-only request: without an answer, it does not matter if the request was carried out.
fn unavailable_without_answer<T>(answer: Result<T>) -> Result<T> {
    answer.map_err(|error| match error.kind() {
        ErrorKind::Indeterminate => error.again().with_kind(ErrorKind::Unavailable),
        _ => error.again(),
    })
}

/// The current activity of a client, in counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientStats {
    /// Existing guards, lost ones included.
    pub holds: usize,
    /// Waiting acquisitions.
    pub waiters: usize,
    /// Releases and abandoned attempts that the backend has not acknowledged.
    pub cleanups: usize,
    /// Leases without a guard that are [kept](crate::Lock::at_least) for the rest of their span.
    pub standing: usize,
}

impl Client {
    /// Makes a client with the default settings. Does no I/O.
    #[must_use]
    pub fn new(backend: impl Into<Backend>) -> Self {
        Self::builder(backend).assemble(Ttl::DEFAULT)
    }

    /// Returns a builder for a client with other settings.
    pub fn builder(backend: impl Into<Backend>) -> ClientBuilder {
        ClientBuilder::new(backend.into())
    }

    pub(crate) fn shared(&self) -> &Shared {
        self.local_queues.shared()
    }

    /// Returns the capabilities of the driver's delay queues; `None` if it has none.
    #[must_use]
    pub fn queue_capabilities(&self) -> Option<QueueCapabilities> {
        self.shared().backend.queue().map(|driver| driver.capabilities())
    }

    /// Sends a read-only request to check that the backend answers: for health checks, on every driver. One request
    /// within the client's `op_timeout`; on a quorum one to each node, of which a majority has to answer; in a Redis
    /// Cluster to one of the primaries. A server that is out of memory, or may evict by now, answers too:
    /// [`doctor`](Self::doctor) reports that.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] when no answer came; [`ErrorKind::Closed`] when the client was closed; otherwise the
    /// reason for the backend's refusal ([`ErrorKind::Misconfigured`], [`ErrorKind::Denied`], …).
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

    /// Checks the backend's servers (eviction, persistence, replicas, version, clocks, rights) and reports the
    /// consequences for locks: at the start of a program, or for an operator. A few requests to each server, within
    /// five times the client's `op_timeout`; changes nothing.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Closed`] when the client was closed; otherwise the reason why the servers did not answer. A problem
    /// of a server that answers is a finding. A driver without a health check reports if it [can be
    /// reached](Self::ping).
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
            seen: "the backend answers".into(),
            meaning: "locks can be taken; the driver has no health check".into(),
        };
        Ok([reached].into_iter().collect())
    }

    /// Returns the driver's name.
    #[must_use]
    pub fn driver(&self) -> &'static str {
        self.shared().driver()
    }

    /// Returns the capabilities of the driver's locks.
    #[must_use]
    pub fn capabilities(&self) -> LockCapabilities {
        self.shared().backend.locks().capabilities()
    }

    /// Returns the capabilities of the driver's re-entrant locks; `None` if it has none.
    #[must_use]
    pub fn reentrant_capabilities(&self) -> Option<ReentrantCapabilities> {
        self.shared().backend.reentrant().map(|driver| driver.capabilities())
    }

    /// Returns the capabilities of the driver's semaphores and read-write locks; `None` if it has none.
    #[must_use]
    pub fn permit_capabilities(&self) -> Option<PermitCapabilities> {
        self.shared().backend.permits().map(|driver| driver.capabilities())
    }

    /// Returns the capabilities of the driver's list of held locks; `None` if it has none.
    #[must_use]
    pub fn census_capabilities(&self) -> Option<CensusCapabilities> {
        self.shared().backend.census().map(|driver| driver.capabilities())
    }

    /// Returns the current activity of this client, in counts.
    #[must_use]
    pub fn stats(&self) -> ClientStats {
        ClientStats {
            holds: self.shared().holds.load(Ordering::Acquire),
            waiters: self.shared().waiters.load(Ordering::Acquire),
            cleanups: self.shared().reaper.pending(),
            standing: self.shared().reaper.standing(),
        }
    }

    /// Closes the client, for all its clones: waits until all abandoned attempts and releases are finished, at most
    /// `limit`. Closing the driver then takes no longer than the client's `op_timeout`.
    ///
    /// New and waiting acquisitions fail with [`ErrorKind::Closed`]. Guards that still exist are lost with
    /// [`LostReason::Closed`](crate::LostReason::Closed), and their leases are released; those of
    /// [`at_least`](crate::Lock::at_least) are kept for the rest of their span.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TimedOut`] when the backend had not acknowledged everything in time; the rest ends with its ttl.
    /// The client is closed nevertheless.
    ///
    /// # Cancel safety
    ///
    /// Once polled, the client is closed; dropping the future only ends the waiting.
    pub async fn close(&self, limit: Duration) -> Result<()> {
        self.shared().close(limit, self.fetchers.drained()).await
    }
}
