//! The lock engine: everything that waits, renews, ends and cleans up, once for all drivers.
//!
//! * [`wait`] asks for a lock until it is granted or time runs out, and warns of a wait for a hold of the same client;
//! * [`ask`] is what is wanted, and shows the caller its place in line;
//! * [`attempt`] owns a token from before it is sent until it is a lease or is undone;
//! * [`lease`] is the client's view of one grant, and ends by itself;
//! * [`hold`] is a guard's part of a lease, how its loss is told, and how it goes from one client to another;
//! * [`local_handover`] lets the waiters of the client wait in one place, and passes a lease on among them;
//! * [`renewer`] is the one timer of a client: renewals in batches, deadlines;
//! * [`reaper`] undoes what was given up, until the backend has acknowledged it, and renews one lease by itself;
//! * [`shared`] is what all handles and guards of a client have in common.

pub(crate) mod ask;
pub(crate) mod attempt;
pub(crate) mod hold;
pub(crate) mod lease;
pub(crate) mod local_handover;
pub(crate) mod reaper;
pub(crate) mod renewer;
pub(crate) mod shared;
pub(crate) mod wait;
