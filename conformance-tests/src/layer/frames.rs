//! What went through the layer, for cases that judge the traffic.

use tenure_core::{ErrorKind, FencingToken, LockName, OwnerToken};
use tokio::time::Instant;

use super::Op;

/// One request as the layer saw it.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Which method.
    pub op: Op,
    /// On which lock.
    pub name: LockName,
    /// For which acquisition or entry; renewals of re-entrant holds have none.
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
    /// None yet, or the engine stopped listening.
    None,
    /// A grant with this fence.
    Granted(FencingToken),
    /// Busy.
    Busy,
    /// It worked; nothing more to say.
    Done,
    /// The lease or entry is not there.
    NotHeld,
    /// A failure of this kind.
    Failed(ErrorKind),
}
