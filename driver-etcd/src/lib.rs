//! Locks and delay queues of [tenure](https://docs.rs/tenure) on etcd (3.4 or newer): leases, FIFO waiting, fences
//! out of revisions.
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
//! The server's own `Lock` call is not used. What stands in etcd, with prefix `shop` and the name `orders/42`:
//!
//! | key | what | on the lease of |
//! |---|---|---|
//! | `shop/orders%2F42/hold` | who holds the lock | the hold |
//! | `shop/orders%2F42/wait/<arrival>-<token>` | a place in the queue | the client's session |
//! | `shop/%/fences` | what is added to revisions to make fences of them | none: it stays |
//! | `shop/%/<lease>` | a session, which its client keeps alive while anybody waits | itself |
//!
//! * **Grant**: one transaction makes the key `hold` if it does not exist and nobody waits, or if no place is before the
//!   asker's. Its create revision makes the fence.
//! * **One lease for each hold**, never shared: a lease that dies takes one hold along.
//! * **Undoing is revoking.** A request that arrives after the lease that it names was revoked is refused by etcd, so
//!   whatever was on its way comes to nothing. A session carries the places of others too: there its key is written, and a
//!   request for a place that is still on its way finds another revision than it expects.
//! * **Wake-ups**: one watch on the prefix for each client that has somebody waiting, routed inside the process, so that a
//!   release wakes only the next in line.
//! * **Guarded writes**: [`EtcdDriver::txn_guard`] gives the comparison that makes a transaction on the same etcd
//!   succeed only while the lock is held.
//!
//! Delay queues keep their messages under `shop:queue/`, ordered by time; the clocks of the clients decide when one is
//! due, within an [error that is declared](EtcdConfig::clock_error), and transactions that it is delivered to one.
//!
//! Ttls are whole seconds, at least 2 (etcd keeps none that are shorter than one and a half election timeouts). How
//! many requests each operation costs, which rights are needed and what is guaranteed stands in the README.

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
mod link;
mod locks;
#[cfg(test)]
mod properties;
mod queue;
mod record;
mod reentrant;
mod renew;
#[cfg(test)]
mod scene;
mod session;
mod standing;
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
