//! Locks within one process, for [tenure](https://docs.rs/tenure).
//!
//! The driver has three uses:
//!
//! * **Locks that never leave the process.** Leases that end by themselves, FIFO waiting, fencing tokens and re-entry
//!   by an explicit owner, among the tasks of one program. No server, no background task.
//! * **A replacement in tests.** The code under test takes a `Client`; give it one over a [`MemoryDriver`]. Time is
//!   tokio's alone, so under `#[tokio::test(start_paused = true)]` an hour passes at once and in the same way every
//!   time.
//! * **A rehearsal of failures.** [`Faults`] ends a lease early, takes a lock away, loses replies, delays, hangs,
//!   refuses: you can test how the application handles a loss. A test that never lost a lock has not tested one.
//!
//! # What it promises
//!
//! It keeps all promises of the contract: exclusion, strict fencing tokens (one counter for all names of a store, so a
//! forgotten name does not begin again), FIFO waiting with presence, re-entrant locks with up to 65,535 entries,
//! introspection, forced release. It is also the model for comparisons with other drivers. It cannot reach beyond its
//! process, or survive its end: [`Exclusion::Process`](tenure_core::driver::Exclusion::Process).
//!
//! | fact | value |
//! |---|---|
//! | ttl | 10 ms to 24 days, whole milliseconds |
//! | an abandoned attempt is remembered for | 60 s |
//! | a woken waiter may claim the free lock for | 2 s, or for the rest of its presence if that is shorter |
//! | waiters per name | 10,000 by default |
//! | memory for names that are free | none; expired leases are swept, two per call |
//!
//! # Several clients
//!
//! A clone of a driver is another connection to the same store:
//!
//! ```
//! use tenure_core::driver::Backend;
//! use tenure_memory::MemoryDriver;
//!
//! let driver = MemoryDriver::new();
//! let one = Backend::from(driver.clone());
//! // With its own link, which can be cut alone.
//! let other = Backend::from(driver.another_client());
//! # let _ = (one, other);
//! ```

mod ballots;
mod census;
mod delay;
mod driver;
mod faults;
mod link;
mod locks;
mod permits;
mod reentrant;
mod store;
mod sweep;
mod voting;

pub use driver::{MemoryDriver, MemoryDriverBuilder};
pub use faults::Faults;
pub use link::{Operation, Wakeups};
pub use store::Residue;
