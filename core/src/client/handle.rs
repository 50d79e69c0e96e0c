//! The client itself.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::ClientBuilder;
use crate::driver::{
    Backend, Checkup, Concern, Finding, Hold, LockCapabilities, QueueCapabilities, ReentrantCapabilities, Topic,
};
use crate::engine::shared::Shared;
use crate::lock::{Lock, LockAll, LockGuard};
use crate::queue::{Codec, Pumps, Queue, list_queues};
use crate::reentrant::Reentrant;
use crate::request::bounded;
use crate::value::error::{Error, ErrorKind, Result};
use crate::value::name::LockName;
use crate::value::queue_name::QueueName;
use crate::value::token::{FencingToken, OwnerId, OwnerToken};
use crate::value::ttl::Ttl;

/// A client of one backend. Clones are the same client; make one and share it.
///
/// A client owns one timer, which renews all its leases in batches, and one task that undoes what was given up. Both start
/// with the first acquisition, on the tokio runtime that it is awaited in, and go on on another one that uses the client when
/// that one ends: a client can be a `static` that many runtimes share, one after the other or at the same time. A
/// current-thread runtime runs them only inside `block_on`: in between nothing is renewed or undone, and leases end by their
/// deadlines.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
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
pub struct Stats {
    /// Guards that exist, lost ones included.
    pub holds: usize,
    /// Acquisitions that are waiting.
    pub waiters: usize,
    /// Releases and abandoned attempts that the backend has not acknowledged.
    pub cleanups: usize,
    /// Leases without a guard that are [left standing](Lock::at_least).
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

    pub(super) fn from_shared(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// A handle on the lock of this name. Cheap; does no I/O.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when the name is empty or too long.
    pub fn lock(&self, name: impl AsRef<[u8]>) -> Result<Lock> {
        Ok(Lock::new(Arc::clone(&self.shared), LockName::new(name)?))
    }

    /// Goes on with a hold that was [detached](crate::LockGuard::detach), as [`Lock::adopt`] does, with the client's ttl.
    ///
    /// # Errors
    ///
    /// As [`Client::lock`] and [`Lock::adopt`].
    ///
    /// # Cancel safety
    ///
    /// As for [`Lock::adopt`].
    pub async fn adopt(&self, name: impl AsRef<[u8]>, token: OwnerToken, fence: FencingToken) -> Result<LockGuard> {
        self.lock(name)?.adopt(token, fence).await
    }

    /// A handle on the lock of this name, to be entered and re-entered by `owner`. Cheap; does no I/O.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when the name is empty or too long; [`ErrorKind::Unsupported`] when the driver
    /// has no re-entrant locks.
    pub fn reentrant(&self, name: impl AsRef<[u8]>, owner: &OwnerId) -> Result<Reentrant> {
        if self.shared.backend.reentrant().is_none() {
            let text = format!("the driver \"{}\" has no re-entrant locks", self.driver());
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        Ok(Reentrant::new(Arc::clone(&self.shared), LockName::new(name)?, *owner))
    }

    /// A handle on several locks, to be taken all or none. Cheap; does no I/O.
    ///
    /// The names are sorted and repetitions removed, so that overlapping sets never wait for each other in a circle.
    /// [`LockAll::of`] takes locks of several clients.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when there is no name, more than [`LockAll::MAX_NAMES`], or a bad one.
    pub fn lock_all<N: AsRef<[u8]>>(&self, names: impl IntoIterator<Item = N>) -> Result<LockAll> {
        let locks: Result<Vec<Lock>> = names.into_iter().map(|name| self.lock(name)).collect();
        LockAll::of(locks?)
    }

    /// A handle on the delay queue of this name, with messages in JSON. Cheap; does no I/O.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when the name is empty or too long; [`ErrorKind::Unsupported`] when the driver
    /// has no delay queues.
    #[cfg(feature = "json")]
    pub fn queue<T>(&self, name: impl AsRef<[u8]>) -> Result<Queue<T>>
    where
        T: serde::Serialize + serde::de::DeserializeOwned + 'static,
    {
        self.queue_with(name, crate::queue::Json)
    }

    /// A handle on the delay queue of this name, with messages of bytes. Cheap; does no I/O.
    ///
    /// # Errors
    ///
    /// As [`Client::queue_with`].
    pub fn queue_of_bytes(&self, name: impl AsRef<[u8]>) -> Result<Queue<Vec<u8>>> {
        self.queue_with(name, crate::queue::Bytes)
    }

    /// A handle on the delay queue of this name, with messages in a form of your own. Cheap; does no I/O.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when the name is empty or too long; [`ErrorKind::Unsupported`] when the driver
    /// has no delay queues.
    pub fn queue_with<T: 'static>(&self, name: impl AsRef<[u8]>, codec: impl Codec<T>) -> Result<Queue<T>> {
        let pump = Pumps::get(&self.shared, QueueName::new(name)?)?;
        Ok(Queue::new(pump, Arc::new(codec)))
    }

    /// All delay queues that hold a message, dead ones included, or are paused or limited; in the order of their bytes.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] when the driver has no delay queues; whatever the driver reports.
    ///
    /// # Cancel safety
    ///
    /// Safe: nothing is changed.
    pub async fn list_queues(&self) -> Result<Vec<QueueName>> {
        list_queues(&self.shared).await
    }

    /// What the driver's delay queues promise; `None` if it has none.
    #[must_use]
    pub fn queue_capabilities(&self) -> Option<QueueCapabilities> {
        self.shared.backend.queue().map(|driver| driver.capabilities())
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
        self.shared.ensure_open()?;
        let limit = self.shared.config.op_timeout;
        // Every driver has this, and a token that nobody has heard of holds nothing.
        let nothing = Hold { name: LockName::new("ping")?, token: OwnerToken::random() };
        unavailable_without_answer(bounded(limit, self.shared.backend.locks().release(&nothing)).await).map(drop)
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
        self.shared.ensure_open()?;
        if let Some(doctor) = self.shared.backend.doctor() {
            let limit = self.shared.config.op_timeout * EXAMINATION;
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
        self.shared.driver()
    }

    /// What the driver's locks promise.
    #[must_use]
    pub fn capabilities(&self) -> LockCapabilities {
        self.shared.backend.locks().capabilities()
    }

    /// What the driver's re-entrant locks promise; `None` if it has none.
    #[must_use]
    pub fn reentrant_capabilities(&self) -> Option<ReentrantCapabilities> {
        self.shared.backend.reentrant().map(|driver| driver.capabilities())
    }

    /// What this client has under way.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats {
            holds: self.shared.holds.load(Ordering::Acquire),
            waiters: self.shared.waiters.load(Ordering::Acquire),
            cleanups: self.shared.reaper.pending(),
            standing: self.shared.reaper.standing(),
        }
    }

    /// Closes the client, for all its clones: waits until everything given up is undone, at most `limit`. Closing the
    /// driver then takes no longer than the client's `op_timeout`.
    ///
    /// New acquisitions and those that wait fail with [`ErrorKind::Closed`]. Guards that still exist are told
    /// [`LostReason::Closed`](crate::LostReason::Closed), and their leases are given back; those of
    /// [`at_least`](Lock::at_least) are left standing for the rest.
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
        self.shared.close(limit).await
    }
}
