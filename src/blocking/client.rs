//! A client of one backend.

use std::time::Duration;

use super::runtime::wait;
use super::{Lock, LockAll, LockGuard, Queue, Reentrant};
use crate::doctor::Checkup;
use crate::queue::Codec;
use crate::{FencingToken, OwnerId, OwnerToken, Result};

/// A client of one backend: [`tenure::Client`](crate::Client) with calls that block. Clones are the same client; make one and
/// share it among threads.
///
/// Made by [`connect`](super::connect), or from an async client, with which it then shares connections, holds and
/// settings. Connections that another runtime opened are served by that runtime.
#[derive(Clone, Debug)]
pub struct Client {
    inner: crate::Client,
}

impl From<crate::Client> for Client {
    fn from(inner: crate::Client) -> Self {
        Self { inner }
    }
}

impl Client {
    /// Returns the same client for async code, and for methods without a blocking form.
    #[must_use]
    pub fn as_async(&self) -> &crate::Client {
        &self.inner
    }

    /// Returns a handle on the lock of this name: [`Client::lock`](crate::Client::lock). Cheap; does no I/O.
    pub fn lock(&self, name: impl AsRef<[u8]>) -> Lock {
        self.inner.lock(name).into()
    }

    /// Returns a handle on several locks, to be taken all or none: [`Client::lock_all`](crate::Client::lock_all).
    /// Cheap; does no I/O.
    pub fn lock_all<N: AsRef<[u8]>>(&self, names: impl IntoIterator<Item = N>) -> LockAll {
        self.inner.lock_all(names).into()
    }

    /// Continues a hold that was [detached](super::LockGuard::detach), as [`Lock::adopt`] does, with the client's ttl.
    ///
    /// # Errors
    ///
    /// As [`Client::adopt`](crate::Client::adopt).
    pub fn adopt(&self, name: impl AsRef<[u8]>, token: OwnerToken, fence: FencingToken) -> Result<LockGuard> {
        wait(self.inner.adopt(name, token, fence)).map(LockGuard::from)
    }

    /// Returns a handle on the lock of this name, to be entered and re-entered by `owner`, which is a value and not
    /// this thread: [`Client::reentrant`](crate::Client::reentrant). Cheap; does no I/O.
    pub fn reentrant(&self, name: impl AsRef<[u8]>, owner: &OwnerId) -> Reentrant {
        self.inner.reentrant(name, owner).into()
    }

    /// Returns a handle on the delay queue of this name, with messages in JSON. Cheap; does no I/O.
    ///
    /// # Errors
    ///
    /// As [`Client::queue`](crate::Client::queue).
    #[cfg(feature = "json")]
    #[cfg_attr(docsrs, doc(cfg(feature = "json")))]
    pub fn queue<T: 'static>(&self, name: impl AsRef<[u8]>) -> Result<Queue<T>>
    where
        crate::queue::Json: Codec<T>,
    {
        self.queue_with(name, crate::queue::Json)
    }

    /// Returns a handle on the delay queue of this name, with messages of bytes. Cheap; does no I/O.
    ///
    /// # Errors
    ///
    /// As [`Client::queue_with`](crate::Client::queue_with).
    pub fn queue_of_bytes(&self, name: impl AsRef<[u8]>) -> Result<Queue<Vec<u8>>> {
        self.inner.queue_of_bytes(name).map(Queue::from)
    }

    /// Returns a handle on the delay queue of this name, with messages in your own format. Cheap; does no I/O.
    ///
    /// # Errors
    ///
    /// As [`Client::queue_with`](crate::Client::queue_with).
    pub fn queue_with<T: 'static>(&self, name: impl AsRef<[u8]>, codec: impl Codec<T>) -> Result<Queue<T>> {
        self.inner.queue_with(name, codec).map(Queue::from)
    }

    /// Sends a read-only request to check that the backend answers: for health checks.
    ///
    /// # Errors
    ///
    /// As [`Client::ping`](crate::Client::ping).
    pub fn ping(&self) -> Result<()> {
        wait(self.inner.ping())
    }

    /// Checks the backend's servers and reports the consequences for locks.
    ///
    /// # Errors
    ///
    /// As [`Client::doctor`](crate::Client::doctor).
    pub fn doctor(&self) -> Result<Checkup> {
        wait(self.inner.doctor())
    }

    /// Closes the client, for all its clones: waits until all abandoned attempts and releases are finished, at most
    /// `limit`.
    ///
    /// # Errors
    ///
    /// As [`Client::close`](crate::Client::close).
    pub fn close(&self, limit: Duration) -> Result<()> {
        wait(self.inner.close(limit))
    }
}
