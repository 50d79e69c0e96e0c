//! Read-write locks.

mod change;
mod shared;
mod turns;
mod upgrade;

pub(super) use change::CASES as CHANGE;
pub(super) use shared::CASES as SHARED;
pub(super) use turns::CASES as TURNS;
pub(super) use upgrade::CASES as UPGRADE;
