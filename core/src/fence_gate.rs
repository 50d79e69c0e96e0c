//! The resource's side of fencing.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::token::FencingToken;

/// Guards one resource: admits a fencing token unless a greater one was admitted before.
///
/// This is the in-process form of a check that belongs where the data is: in SQL,
/// `UPDATE … SET …, fence = $1 WHERE id = $2 AND fence <= $1`.
///
/// ```
/// use tenure_core::{FenceGate, FencingToken};
///
/// let gate = FenceGate::new();
/// let (old, new) = (FencingToken::new(7).unwrap(), FencingToken::new(8).unwrap());
/// gate.admit(new)?;
/// gate.admit(new)?; // one holder may write many times
/// assert_eq!(gate.admit(old).unwrap_err().seen, new);
/// # Ok::<(), tenure_core::StaleFence>(())
/// ```
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
