//! The driver for a quorum of independent nodes. Feature `redlock`; the nodes come from `redis` or `fred`, or are any
//! [`QuorumNode`].

pub use tenure_core::driver::QuorumNode;
pub use tenure_redlock::{Elections, Redlock, RedlockBuilder, Restarts};
