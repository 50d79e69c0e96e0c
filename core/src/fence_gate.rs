//! The resource's side of fencing.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::value::token::FencingToken;

/// Guards one resource: admits a fencing token unless a greater one was admitted before.
///
/// Ask it **before you read** what you are going to change, and again before you write. A check of the write alone loses
/// updates: Anna reads and is paused past her lease, Bert reads, Anna writes (nothing greater was seen: admitted), and
/// Bert writes what he computed from the value before hers.
///
/// ```
/// use tenure_core::{FenceGate, FencingToken};
///
/// let (gate, mut balance) = (FenceGate::new(), 100);
/// let (anna, bert) = (FencingToken::new(7).unwrap(), FencingToken::new(8).unwrap());
/// gate.admit(anna)?;
/// let _read_by_anna = balance; // and here she is paused past her lease
/// gate.admit(bert)?;
/// let read_by_bert = balance;
/// assert_eq!(gate.admit(anna).unwrap_err().seen, bert); // she cannot write any more
/// gate.admit(bert)?;
/// balance = read_by_bert + 5;
/// # assert_eq!(balance, 105);
/// # Ok::<(), tenure_core::StaleFence>(())
/// ```
///
/// What guards the resource itself, a mutex for example, must be held from the check to the end of the read or write.
///
/// This is the in-process form of a check that belongs where the data is. In SQL, with a column `fence bigint NOT NULL
/// DEFAULT 0` (see [`FencingToken`] for its type), the first statement claims the row and reads it, and the second writes; a statement
/// that finds no row says that somebody holds the lock after you:
///
/// ```sql
/// UPDATE account SET fence = $1 WHERE id = $2 AND fence <= $1 RETURNING balance;
/// UPDATE account SET balance = $3 WHERE id = $2 AND fence = $1;
/// ```
///
/// A blind write, which depends on nothing that was read, needs only one:
/// `UPDATE … SET …, fence = $1 WHERE id = $2 AND fence <= $1`.
#[derive(Debug, Default)]
pub struct FenceGate(AtomicU64);

impl FenceGate {
    /// A gate that has seen no token.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Admits `fence` and remembers it, or refuses it because a greater one was seen.
    ///
    /// # Errors
    ///
    /// [`StaleFence`], with the token that was seen.
    pub fn admit(&self, fence: FencingToken) -> Result<(), StaleFence> {
        let seen = self.0.fetch_max(fence.get(), Ordering::AcqRel);
        match FencingToken::new(seen) {
            Some(seen) if seen > fence => Err(StaleFence { offered: fence, seen }),
            _ => Ok(()),
        }
    }

    /// The greatest token admitted so far.
    #[must_use]
    pub fn seen(&self) -> Option<FencingToken> {
        FencingToken::new(self.0.load(Ordering::Acquire))
    }
}

/// A fencing token was smaller than one already seen: its holder has lost the lock to a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaleFence {
    /// The token that was refused.
    pub offered: FencingToken,
    /// The greatest token seen before it.
    pub seen: FencingToken,
}

impl fmt::Display for StaleFence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stale fencing token {}: {} was seen before", self.offered, self.seen)
    }
}

impl std::error::Error for StaleFence {}
