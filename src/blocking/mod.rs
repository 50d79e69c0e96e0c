//! Locks and queues for programs without an async runtime.
//!
//! ```
//! # #[cfg(feature = "memory")]
//! # fn main() -> tenure::Result<()> {
//! use std::time::Duration;
//!
//! // Or redis://127.0.0.1/ with the feature `redis`.
//! let client = tenure::blocking::connect("memory:")?;
//! let lock = client.lock("orders/42");
//!
//! // Waits for its turn, renews the lease during the work, releases.
//! lock.with(|guard| println!("write with fence {}", guard.fence()))?;
//!
//! let guard = lock.acquire()?;
//! assert!(lock.try_acquire()?.is_none());
//! // Or drop it.
//! guard.release()?;
//! client.close(Duration::from_secs(5))
//! # }
//! # #[cfg(not(feature = "memory"))]
//! # fn main() {}
//! ```
//!
//! The engine of the async API does all the work, and all promises of its documentation apply here: see
//! [`Lock`](crate::Lock), [`LockGuard`](crate::LockGuard), [`Queue`](crate::queue::Queue) and
//! [`Delivery`](crate::queue::Delivery). Use `as_async` and [`block_on`] for methods without a blocking form.
//!
//! # The thread behind it
//!
//! The first call starts one background thread for the process, `tenure-blocking`. It drives connections, renewals and
//! clean-ups of all blocking clients, and runs until the process ends. So leases are renewed while the thread that
//! holds the lock computes or sleeps, and **dropping a guard or a delivery never blocks**: the background thread
//! releases it. A process that ends before that is done leaves the lock to its ttl: call [`Client::close`] at the end
//! of `main`.
//!
//! # Forks and threads that end
//!
//! **A forked child has no such thread.** Every blocking call in it fails at once with
//! [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument), with old clients and with new ones; its copies of
//! guards and deliveries report that they are lost, and the parent keeps its holds. Fork before the first call, as a
//! server does that makes its workers first, or start another program.
//!
//! A call in the destructor of a thread-local value is refused in the same way, if the thread has ended so far that it
//! cannot wait. Dropping a guard there releases its lock as anywhere.
//!
//! # Work that cannot be dropped
//!
//! A lost lease cannot stop a thread. [`LockGuard::run`](crate::LockGuard::run) has no blocking form: call
//! [`LockGuard::check`] between the steps of long work, which reads the clock and costs nothing, and pass
//! [`LockGuard::fence`] to the resource.
//!
//! # Inside an async runtime
//!
//! Every call works on a thread of a tokio runtime as well, unless it needs that runtime: the connections of a client
//! that was made there ([`Client::from`] an async one) are served by its threads, and if the call blocks the only one
//! it waits until it times out. It blocks that thread, as any blocking call does: use `spawn_blocking`, or the async
//! API. Only on the background thread itself (a task that is spawned there, such as the handler of a
//! [`Worker`](crate::queue::Worker) that was started inside [`block_on`]) a blocking call would wait for itself: it
//! fails with [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument).

mod all;
mod client;
mod delivery;
mod guard;
mod lock;
mod queue;
mod reentrant;
mod runtime;

use std::future::Future;

pub use all::LockAll;
pub use client::Client;
pub use delivery::Delivery;
pub use guard::{LockAllGuard, LockGuard, ReentrantGuard};
pub use lock::Lock;
pub use queue::Queue;
pub use reentrant::Reentrant;

use crate::{ClientBuilder, ClientConfig, Confirmation, Connectors, Result};

/// Makes a client of the backend that a URL or a [`ClientConfig`] names, as [`tenure::connect`](crate::connect()) does.
///
/// # Errors
///
/// As [`tenure::connect`](crate::connect()).
pub fn connect(to: impl Into<ClientConfig>) -> Result<Client> {
    connect_builder(to)?.build().map(Client::from)
}

/// Returns the builder of a client with the settings of a URL or a [`ClientConfig`], for further settings.
///
/// [`Confirmation::Behind`] is set unless the configuration or the URL sets another value: the thread that works under
/// a lock does not confirm it.
///
/// # Errors
///
/// As [`tenure::connect`](crate::connect()).
///
/// # Example
///
/// ```
/// # #[cfg(feature = "memory")]
/// # fn main() -> tenure::Result<()> {
/// use tenure::blocking::{self, Client};
///
/// let builder = blocking::connect_builder("memory:?ttl_ms=10000")?;
/// let client = Client::from(builder.holders_per_grant(1).build()?);
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "memory"))]
/// # fn main() {}
/// ```
pub fn connect_builder(to: impl Into<ClientConfig>) -> Result<ClientBuilder> {
    let defaults = ClientConfig { confirmation: Some(Confirmation::Behind), ..ClientConfig::default() };
    runtime::wait(Connectors::new().builder_over(to.into(), defaults))
}

/// Runs a future of the async API to its end on this thread; the background thread drives its timers, its connections
/// and its spawned tasks.
///
/// ```
/// # #[cfg(feature = "memory")]
/// # fn main() -> tenure::Result<()> {
/// use tenure::blocking;
///
/// let client = blocking::connect("memory:")?;
/// let lock = client.lock("orders/42").into_async();
/// let fence = lock.with(async |guard| guard.fence());
/// println!("written with fence {}", blocking::block_on(fence)??);
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "memory"))]
/// # fn main() {}
/// ```
///
/// # Errors
///
/// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) on the background thread, in a forked child and on a thread that is
/// ending, and [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) when that cannot be started. The future was not polled.
pub fn block_on<F: Future>(work: F) -> Result<F::Output> {
    runtime::wait(async { Ok(work.await) })
}
