//! Locks, semaphores, read-write locks and delay queues of [tenure](https://docs.rs/tenure) on etcd (3.4 or newer):
//! leases, FIFO waiting, and fences computed from revisions.
//!
//! ```no_run
//! use tenure_core::Client;
//! use tenure_etcd::EtcdDriver;
//!
//! # async fn example() -> tenure_core::Result<()> {
//! let client = Client::new(EtcdDriver::new("etcd://127.0.0.1:2379/?prefix=shop".parse()?));
//! let guard = client.lock("orders/42").acquire().await?;
//! // ... guard.fence() grows with the revision in which etcd granted the lock ...
//! guard.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! The driver does not use the server's own `Lock` call. These are its keys in etcd, with prefix `shop` and the name
//! `orders/42`:
//!
//! | key | what | on the lease of |
//! |---|---|---|
//! | `shop/orders%2F42/hold` | the holder of the lock | the hold |
//! | `shop/orders%2F42/wait/<arrival>-<token>` | a place in the queue | the client's session |
//! | `shop/%/fences` | the base that is added to revisions to compute fences | none: it stays |
//! | `shop/%/<lease>` | a session, which its client keeps alive while it has waiters | itself |
//!
//! * **Grant**: one transaction creates the key `hold` if it does not exist and there are no waiters, or if no place is
//!   before the caller's. Its create revision determines the fence.
//! * **One lease for each hold**, never shared: a lease that ends takes one hold along.
//! * **Undoing is revoking.** etcd refuses a request that arrives after the lease that it names was revoked, so a
//!   request on its way has no effect. A session carries the places of other waiters too. There the driver writes the
//!   session's key, and a request for a place that is still on its way finds another revision than it expects.
//! * **Wake-ups**: each client with waiters has one watch on the prefix, routed inside the process, so that a release
//!   wakes only the next in line.
//! * **Guarded writes**: [`EtcdDriver::txn_guard`] returns the comparison that makes a transaction on the same etcd
//!   succeed only while the lock is held.
//!
//! Semaphores and read-write locks keep a key for each hold and for each place under `shop:permit/`, on the same kinds of
//! leases. A grant is conditional on no key of the name having been written since it was read.
//!
//! Delay queues keep their messages under `shop:queue/`, ordered by time. The clients' clocks decide when a message is
//! due, within a [declared error](EtcdConfig::clock_error). Transactions ensure that it is delivered to one client.
//!
//! Ttls are whole seconds, at least 2 (etcd keeps none that are shorter than one and a half election timeouts). The
//! README lists the requests that each operation costs, the rights that are needed and the guarantees.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod abandon;
mod answer;
mod ask;
mod census;
mod config;
mod doctor;
mod driver;
mod error;
mod fences;
mod grants;
mod idle;
mod inner;
mod keys;
mod lasting_watch;
mod link;
mod locks;
mod permits;
#[cfg(test)]
mod properties;
mod queue;
mod record;
mod reentrant;
mod renew;
mod session;
#[cfg(test)]
mod test_support;
mod turn;
mod txn;
mod url;
mod view;
mod waiters;
mod watcher;

mod tickets;

pub use config::EtcdConfig;
#[cfg(feature = "tls")]
pub use config::EtcdTls;
pub use driver::EtcdDriver;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
