//! Distributed locks and delay queues on a backend of your choice: fenced, cancel-safe, and tested by a conformance suite.
//!
//! ```
//! # #[cfg(feature = "memory")]
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! // Or redis://127.0.0.1/ with the feature `redis`.
//! let client = tenure::connect("memory:").await?;
//! let lock = client.lock("orders/42");
//!
//! // Waits for its turn, renews the lease during the work, releases.
//! lock.with(async |guard| {
//!     // The store refuses writes with a smaller fence.
//!     println!("write with fence {}", guard.fence());
//! })
//! .await?;
//!
//! // Contention is a value.
//! if let Some(guard) = lock.try_acquire().await? {
//!     // Stops the work when the lease is lost.
//!     guard.run(async { println!("work") }).await?;
//! }
//! # Ok::<(), tenure::Error>(())
//! # }).unwrap();
//! ```
//!
//! # Choose before you call
//!
//! ## What is the lock for?
//!
//! Every distributed lock is a *lease*: it ends by itself, so that a dead holder does not block others forever. And a
//! process that was paused for longer than its lease (a garbage collection, a suspended machine, a slow disk) continues
//! as if it held the lock, while another one holds it. No lock service can prevent that. So ask, as Martin Kleppmann
//! did in "How to do distributed locking" (2016):
//!
//! * **For efficiency?** Doing the work twice is a nuisance: an e-mail goes out again, a report is computed again. Then
//!   take a lock, and you are done.
//! * **For correctness?** A second writer corrupts data. Then the lock alone is not enough on *any* backend. Give
//!   [`guard.fence()`](LockGuard::fence) to the resource *before you read* what you will change, and again along with
//!   the write, and let it refuse a token that is smaller than the largest it has seen. [`FenceGate`] is that check
//!   within a process. In SQL the first statement claims the row and reads it:
//!   `UPDATE … SET fence = $1 WHERE id = $2 AND fence <= $1 RETURNING …`, and the second writes:
//!   `UPDATE … SET … WHERE id = $2 AND fence = $1`. A check of the write alone loses updates: a client that was
//!   paused between read and write may write just after the next holder has read.
//!
//! A resource that cannot check a fence (an e-mail gateway, a robot's arm) has only the protection of the lease: use
//! [`guard.run(work)`](LockGuard::run), which drops the work when the lease ends, and choose a ttl that is much longer
//! than any pause that you expect.
//!
//! ## Which lock?
//!
//! | you want | take |
//! |---|---|
//! | work under a lock, in one call | [`Lock::with`] |
//! | one at a time, in order of arrival | [`Client::lock`] and [`acquire`](Lock::acquire), or [`acquire_within`](Lock::acquire_within) |
//! | skip the work if another client does it | [`Client::lock`] and [`try_acquire`](Lock::try_acquire): contention is a value |
//! | to take it again further down the call stack | [`Client::reentrant`] with an [`OwnerId`] that you pass along |
//! | a task that several instances start at about the same time, done by one | [`Lock::at_least`], longer than the difference of their clocks, and `try_acquire` |
//! | up to n at a time | [`Client::semaphore`] and [`acquire`](Semaphore::acquire) |
//! | many readers, or one writer | [`Client::rw_lock`] with [`read`](RwLock::read) and [`write`](RwLock::write) |
//! | several names at once, without deadlock | [`Client::lock_all`] |
//! | to do the work later, or when the lock is free | [`Client::queue`], [`Lock::or_park`], [`Worker`](queue::Worker): see below |
//! | to serve each request of a web service under a lock | the module [`tower`](tower/index.html), with the feature `tower` |
//! | any of these without an async runtime | the module [`blocking`](blocking/index.html), with the feature `blocking` |
//! | one leader among many, in numbered terms | [`Client::election`], [`Candidate::campaign`](election::Candidate::campaign) |
//! | to follow the leader or the holder of a lock | [`Election::observe`](election::Election::observe) |
//! | at most N at a time: a semaphore | not available: take one of N names with [`try_acquire`](Lock::try_acquire), or limit a queue with [`Admin::limit`](queue::Admin::limit) |
//! | shared reads, exclusive writes: a read-write lock | not available: take [`Client::lock`] for both |
//!
//! ## Which lease?
//!
//! | lease | ends | for |
//! |---|---|---|
//! | [`ttl`](Lock::ttl) (default: 30 s) | when the guard is released or dropped, or at most `ttl` after its process died | work of unknown length |
//! | [`ttl`](Lock::ttl) and [`max_hold`](Lock::max_hold) | also after that time, even if the process is running | work that could hang |
//! | [`fixed_ttl`](Lock::fixed_ttl) | after exactly that time | work that must not run longer |
//!
//! With a short ttl, the lock of a dead process is free sooner, but a live process loses it sooner in an outage.
//!
//! ## Which backend?
//!
//! | Cargo feature | URL | for |
//! |---|---|---|
//! | [`memory`](mod@memory) (default) | `memory:` | tasks of one process; tests under virtual time, with faults on demand |
//! | [`postgres`](postgres/index.html) | `postgres://user@host/database` | processes that share that database |
//! | [`mysql`](mysql/index.html) | `mysql://user@host/database` | processes that share that MySQL or MariaDB database |
//! | [`sqlite`](sqlite/index.html) | `sqlite:PATH`, `sqlite:` | processes of one machine (Linux), in a file, without a server |
//! | [`redis`](redis/index.html) | `redis://`, `redis+unix://`, `redis+cluster://`, `redis+sentinel://` | processes that share Redis (6.2 or newer) |
//! | [`fred`](fred/index.html) | the same after `fred+` | the same locks, on the client library `fred` |
//! | [`etcd`](etcd/index.html) | `etcd://` | processes that share an etcd cluster (3.4 or newer): locks that outlive any minority of its members |
//! | [`redlock`](redlock/index.html) with `redis` or `fred` | `redlock+redis://a,b,c`, `redlock+fred+redis://a,b,c` | locks that outlive the loss of any minority of independent servers |
//! | [`tls`](#cargo-features) | `rediss://` …, `etcds://` | encrypted connections of any of these |
//!
//! Building the feature `etcd` needs `protoc`; no other feature does. [`Connectors`] adds third-party drivers; settings
//! come from the URL, the environment or a file: [`ClientConfig`].
//!
//! The code that takes locks is the same for all backends, and so are its tests: `tests/it/application.rs` in the
//! repository runs on memory, SQLite, PostgreSQL, MariaDB, Redis and etcd by an environment variable. The promises of a
//! backend are values as well: [`Client::capabilities`] returns the events that can break
//! [`Exclusion`](driver::Exclusion), the reliability of [fences](driver::Fencing), and the kind of
//! [waiting](driver::Waiting).
//!
//! [`Client::doctor`] checks the servers (eviction, persistence, replicas, clocks, rights) and reports the consequence
//! of each finding for locks: print it when a program starts, and act on each [`Danger`](doctor::Concern::Danger).
//! [`Client::ping`] checks that they answer, for health checks.
//!
//! # Delay queues
//!
//! A message is pushed with a delay, and delivered once it is due, to one receiver at a time, until a receiver settles
//! it. Deliveries are leases as well: at least once, each with a fence. The server's clock decides, so the clocks of
//! producers and consumers do not matter; on etcd, whose clock clients cannot read, they do, within a declared error.
//!
//! | you want | take |
//! |---|---|
//! | to store a message for later | [`Queue::push`](queue::Queue::push) with [`delay`](queue::Push::delay); with [`id`](queue::Push::id) it is idempotent |
//! | to empty an outbox | [`Queue::push_many`](queue::Queue::push_many) of [`Message`](queue::Message)s, each with its [`id`](queue::Message::id) |
//! | a nightly job on exactly one of many instances | [`Queue::recurring`](queue::Queue::recurring), [`ensured`](queue::Recurring::ensure) by each when it starts, and a worker |
//! | to handle messages continuously | [`Queue::worker`](queue::Queue::worker): extends leases, retries, shuts down gracefully |
//! | to handle them by hand | [`Queue::receive`](queue::Queue::receive), then [`Delivery::ack`](queue::Delivery::ack) or [`nack`](queue::Delivery::nack); many at once: [`Queue::receive_many`](queue::Queue::receive_many), [`ack_many`](queue::Queue::ack_many) |
//! | no two messages of one customer at once | [`Push::concurrency_key`](queue::Push::concurrency_key), or [`Push::lock`](queue::Push::lock) where other code takes that lock as well |
//! | to do a request later if its lock is taken | [`Lock::or_park`] and a worker |
//!
//! # When things go wrong
//!
//! * A lost lease notifies its holder and never comes back: [`lost()`](LockGuard::lost) resolves, also in other tasks
//!   ([`loss()`](LockGuard::loss)), [`check()`](LockGuard::check) fails, [`run`](LockGuard::run) drops the work. The local
//!   clock decides this, without any answer from the backend, and before the backend can grant the lock to another client.
//! * Every future may be dropped. The client undoes the request in the background with the same token, and releases a
//!   dropped guard in the same way. Call [`Client::close`] at the end of `main`: it waits for that.
//! * An outage is not contention: a request that failed with [`ErrorKind::Unavailable`] was not applied, one with
//!   [`ErrorKind::Indeterminate`] may have been, and is undone. A waiter that is in the queue survives outages.
//!
//! # Testing your own handling of loss
//!
//! The driver of the feature `memory` runs under `#[tokio::test(start_paused = true)]`, and its
//! [`Faults`](memory::Faults) expire leases, lose replies, and cut connections on demand.
//!
//! ```
//! # #[cfg(feature = "memory")]
//! # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
//! use tenure::memory::MemoryDriver;
//! use tenure::{Client, LostReason};
//!
//! let driver = MemoryDriver::new();
//! let client = Client::new(driver.clone());
//! let guard = client.lock("orders/42").acquire().await?;
//!
//! // From here on the backend answers no request.
//! driver.faults().outage();
//! // The paused clock makes it immediate.
//! assert_eq!(guard.lost().await, LostReason::Expired);
//! assert!(guard.check().is_err());
//! # Ok::<(), tenure::Error>(())
//! # }).unwrap();
//! ```
//!
#![doc = include_str!("../docs/features.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod builtin;
mod config;
mod connect;
mod scheme;

pub mod driver;

#[cfg(feature = "blocking")]
#[cfg_attr(docsrs, doc(cfg(feature = "blocking")))]
pub mod blocking;

#[cfg(feature = "memory")]
#[cfg_attr(docsrs, doc(cfg(feature = "memory")))]
pub mod memory;

#[cfg(feature = "mysql")]
#[cfg_attr(docsrs, doc(cfg(feature = "mysql")))]
pub mod mysql;
#[cfg(feature = "postgres")]
#[cfg_attr(docsrs, doc(cfg(feature = "postgres")))]
pub mod postgres;
#[cfg(feature = "sqlite")]
#[cfg_attr(docsrs, doc(cfg(feature = "sqlite")))]
pub mod sqlite;

#[cfg(feature = "redis")]
#[cfg_attr(docsrs, doc(cfg(feature = "redis")))]
pub mod redis;

#[cfg(feature = "fred")]
#[cfg_attr(docsrs, doc(cfg(feature = "fred")))]
pub mod fred;

#[cfg(feature = "etcd")]
#[cfg_attr(docsrs, doc(cfg(feature = "etcd")))]
pub mod etcd;

#[cfg(feature = "redlock")]
#[cfg_attr(docsrs, doc(cfg(feature = "redlock")))]
pub mod redlock;

#[cfg(feature = "tower")]
#[cfg_attr(docsrs, doc(cfg(feature = "tower")))]
pub mod tower;

pub use config::ClientConfig;
pub use connect::{Connectors, connect, connect_backend, connect_builder};
pub use tenure_core::{
    Client, ClientBuilder, ClientStats, Confirmation, Detached, DriftBound, Error, ErrorKind, FenceFloor, FenceGate,
    FencingToken, ForceReleased, HeldLock, HeldLocks, HoldState, Holder, Inspection, Label, Lock, LockAll,
    LockAllGuard, LockGuard, LockName, Loss, LostReason, NotUpgraded, OwnerId, OwnerToken, Permit, PermitHolder,
    PermitInspection, ReadGuard, Reentrant, ReentrantGuard, Result, RwLock, Semaphore, Share, StaleFence, TokenText,
    UpgradableGuard, WaitProgress, WriteGuard,
};
pub use tenure_core::{doctor, election, queue, telemetry};

#[cfg(all(doctest, feature = "memory", feature = "json"))]
#[doc = include_str!("../README.md")]
mod readme {}
