//! Whole clients over delay queues in memory, on the same links as the locks: an outside observer keeps a ledger of what the
//! store did, and compares with it what clients were told and what they believe.

pub(crate) mod end;
pub(crate) mod ledger;
pub(crate) mod live;
pub(crate) mod plan;
pub(crate) mod play;
pub(crate) mod store;
