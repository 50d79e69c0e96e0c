//! Semaphores, and what they have in common with read-write locks.

mod capacity;
mod change;
mod lease;
mod line;
mod operate;
mod repeat;
mod room;
pub(super) mod support;

pub(super) use capacity::CASES as CAPACITY;
pub(super) use change::CASES as CHANGE;
pub(super) use lease::CASES as LEASE;
pub(super) use line::CASES as LINE;
pub(super) use operate::CASES as OPERATE;
pub(super) use repeat::CASES as REPEAT;
pub(super) use room::CASES as ROOM;
