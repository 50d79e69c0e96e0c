//! The log of requests through the layer, for cases that judge the traffic.

use tenure_core::{ErrorKind, FencingToken, LockName, OwnerToken};
use tokio::time::Instant;

use super::Op;

/// One request as the layer saw it.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The method.
    pub op: Op,
    /// The lock.
    pub name: LockName,
    /// The acquisition or entry; renewals of re-entrant holds have none.
    pub token: Option<OwnerToken>,
    /// When the engine sent it.
    pub sent_at: Instant,
    /// When the engine had its answer.
    pub answered_at: Option<Instant>,
    /// The answer.
    pub answer: Answer,
}

/// The answer that the engine saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// None yet, or the engine no longer listens.
    None,
    /// A grant with this fence.
    Granted(FencingToken),
    /// Busy.
    Busy,
    /// Success, without a further value.
    Done,
    /// The lease or entry does not exist.
    NotHeld,
    /// A failure of this kind.
    Failed(ErrorKind),
}
