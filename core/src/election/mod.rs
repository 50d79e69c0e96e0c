//! Elections: one leader among candidates, in numbered terms, and observers of who leads.
//!
//! | you want | take |
//! |---|---|
//! | to lead when it is your turn | [`Client::election`](crate::Client::election), [`Election::candidate`], [`Candidate::campaign`] |
//! | to know who leads, and of each change | [`Election::observe`] |
//! | to know who leads at this moment | [`Election::leader`] |
//!
//! An election is decided by the lock of the same name, on every driver: what an operator sees and
//! [forces](crate::Lock::force_release) is that lock, and who takes it without being a candidate keeps all candidates waiting. A
//! *term* is one hold of it, and its number is the fence of that hold: each term has a greater number than all before it. A leader
//! that was paused goes on as if it led, as every holder of a lease does; show the number of the term to whatever the leader
//! changes, and let it refuse smaller ones ([`FenceGate`](crate::FenceGate)).
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> tenure_core::Result<()> {
//! # let client = tenure_core::Client::new(tenure_memory::MemoryDriver::new());
//! use tenure_core::election::View;
//!
//! let election = client.election("scheduler");
//! let mut observer = election.observe()?;
//! assert!(matches!(observer.next().await, Some(View::Nobody)));
//!
//! let leadership = election.candidate("node-7:8080").campaign().await?; // waits for its turn
//! if let Some(View::Leader(leader)) = observer.next().await {
//!     println!("{:?} leads in term {}", leader.label, leader.term);
//! }
//! leadership.run(async { /* stops when the term is over */ }).await?;
//! leadership.resign().await?; // or drop it
//! # Ok(())
//! # }
//! ```

mod handle;
mod leadership;
mod observer;

pub use handle::{Candidate, Election};
pub use leadership::Leadership;
pub use observer::{Leader, Observer, View};
