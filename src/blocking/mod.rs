//! The same locks and queues for programs without an async runtime.
//!
//! ```
//! # #[cfg(feature = "memory")]
//! # fn main() -> tenure::Result<()> {
//! use std::time::Duration;
//!
//! let client = tenure::blocking::connect("memory:")?; // or redis://127.0.0.1/ with the feature `redis`
//!
//! let guard = client.lock("orders/42").ttl(Duration::from_secs(30)).acquire()?; // waits its turn, renews itself
//! println!("write with fence {}", guard.fence()); // the store refuses smaller ones
//! guard.release()?; // or drop it
//!
//! let written = client.lock("report").with(|guard| format!("written with fence {}", guard.fence()))?;
//! # drop(written);
//! client.close(Duration::from_secs(5))
//! # }
//! # #[cfg(not(feature = "memory"))]
//! # fn main() {}
//! ```
//!
//! Everything is done by the engine of the async API, and everything that its documentation promises holds here: see
//! [`Lock`](crate::Lock), [`LockGuard`](crate::LockGuard), [`Queue`](crate::queue::Queue) and [`Delivery`](crate::queue::Delivery). What
//! has no blocking form is reached through `as_async` and [`block_on`].
//!
//! # The thread behind it
//!
//! The first call starts one background thread for the process, `tenure-blocking`. It carries connections, renewals and
//! clean-ups of all blocking clients, and stays until the process ends. So leases are renewed while the thread that holds the
//! lock computes or sleeps, and **dropping a guard or a delivery never blocks**: what it held is given back in the background.
//! A process that ends before that is done leaves the lock to its ttl: call [`Client::close`] at the end of `main`.
//!
//! # Work that cannot be dropped
//!
//! A lost lease cannot stop a thread. [`LockGuard::run`](crate::LockGuard::run) has no blocking form: ask
//! [`LockGuard::check`] between the steps of long work, which reads the clock and costs nothing, and give
//! [`LockGuard::fence`] to the resource.
//!
//! # Inside an async runtime
//!
//! Every call works on a thread of a tokio runtime as well, unless it needs that runtime: the connections of a client that was made
//! there ([`Client::from`] an async one) are served by its threads, and where the call blocks the only one it waits until it times
//! out. It blocks that thread, as any blocking call does: use
//! `spawn_blocking`, or the async API. Only on the background thread itself (a task that is spawned there, such as the handler of
//! a [`Worker`](crate::queue::Worker) that was started inside [`block_on`]) a blocking call would wait for itself: it fails with
//! [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument).

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

/// A client of the backend that a URL or a [`ClientConfig`] names, as [`tenure::connect`](crate::connect()) makes one.
///
/// # Errors
///
/// As [`tenure::connect`](crate::connect()).
pub fn connect(to: impl Into<ClientConfig>) -> Result<Client> {
    connect_builder(to)?.build().map(Client::from)
}

/// The builder of a client with the settings of a URL or a [`ClientConfig`], for more settings of your own.
///
/// [`Confirmation::Behind`] is set unless the configuration or the URL says otherwise: the thread that works with a lock is not
/// the one that confirms it.
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
/// let client = Client::from(blocking::connect_builder("memory:?ttl_ms=10000")?.holders_per_grant(1).build()?);
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "memory"))]
/// # fn main() {}
/// ```
pub fn connect_builder(to: impl Into<ClientConfig>) -> Result<ClientBuilder> {
    let defaults = ClientConfig { confirmation: Some(Confirmation::Behind), ..ClientConfig::default() };
    runtime::wait(Connectors::new().builder_over(to.into(), defaults))
}

/// Runs a future of the async API to its end on this thread; the background thread carries its timers, its connections and
/// what it spawns.
///
/// ```
/// # #[cfg(feature = "memory")]
/// # fn main() -> tenure::Result<()> {
/// use tenure::blocking;
///
/// let client = blocking::connect("memory:")?;
/// let lock = client.lock("orders/42").into_async();
/// blocking::block_on(async { lock.with(async |guard| println!("write with fence {}", guard.fence())).await })??;
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "memory"))]
/// # fn main() {}
/// ```
///
/// # Errors
///
/// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) on the background thread, and
/// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) when that cannot be started. The future was not polled.
pub fn block_on<F: Future>(work: F) -> Result<F::Output> {
    runtime::wait(async { Ok(work.await) })
}
