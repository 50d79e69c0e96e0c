//! A term, in the hands of its leader.

use std::time::Duration;

use crate::engine::hold::Loss;
use crate::lock::LockGuard;
use crate::value::error::{LockName, Result};
use crate::value::token::FencingToken;
use crate::value::ttl::{HoldState, LostReason};

/// A term of this candidate: it leads until it [resigns](Self::resign), is dropped, or the term is [lost](Self::lost). It is a
/// *lease*, as a [`LockGuard`] is.
///
/// **Dropping it resigns, but not at once**: the client's reaper calls the backend until it is acknowledged.
#[derive(Debug)]
#[must_use = "dropping the leadership resigns"]
pub struct Leadership {
    guard: LockGuard,
}

impl Leadership {
    pub(super) fn new(guard: LockGuard) -> Self {
        Self { guard }
    }

    /// The name of the election.
    #[must_use]
    pub fn name(&self) -> &LockName {
        self.guard.name()
    }

    /// The number of the term: the fence of its lock, greater than that of every earlier term, and what observers are told.
    /// Constant; no I/O. Show it to whatever the leader changes.
    #[must_use]
    pub fn term(&self) -> FencingToken {
        self.guard.fence()
    }

    /// How long the term surely lasts from now if no renewal succeeds any more; zero once it is over.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.guard.remaining()
    }

    /// What is known of the term now. Reads the clock; no I/O, no task needed.
    #[must_use]
    pub fn state(&self) -> HoldState {
        self.guard.state()
    }

    /// Whether the term lasts at this moment. Reads the clock; no I/O, no task needed.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.guard.is_held()
    }

    /// As [`is_leader`](Self::is_leader), for use with `?`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost), with the reason.
    pub fn check(&self) -> Result<()> {
        self.guard.check()
    }

    /// Resolves when the term is over without a resignation, no later than its deadline, and without an answer from anywhere:
    /// before any other candidate leads.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn lost(&self) -> LostReason {
        self.guard.lost().await
    }

    /// Tells the loss of the term to others: it can be cloned, sent to a task, and watched while the leader resigns.
    #[must_use]
    pub fn loss(&self) -> Loss {
        self.guard.loss()
    }

    /// Runs `work` for as long as the term lasts: when it is lost, the work is dropped where it stands, as by
    /// [`LockGuard::run`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) when the term was over before the work.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work. The leadership stays.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output> {
        self.guard.run(work).await
    }

    /// Ends the term and waits for the backend's word. The next candidate is woken.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost), with the reason, when the term had ended before, so that somebody else may
    /// have led since; nobody else's term was touched. Otherwise whatever the driver reports: the resignation goes on in the
    /// background with the same token until it is acknowledged, and the lease is no longer renewed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future is like dropping the leadership: the resignation goes on in the background.
    pub async fn resign(self) -> Result<()> {
        self.guard.release().await
    }
}
