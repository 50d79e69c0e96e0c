//! The lock engine: everything that waits, renews, ends and cleans up, once for all drivers.
//!
//! * [`wait`] asks for a lock until it is granted or time runs out, and warns of a wait for a hold of the same client;
//! * [`ask`] is a request, and shows the caller its position in line;
//! * [`attempt`] owns a token from before it is sent until it is a lease or is undone;
//! * [`lease`] is the client's view of one grant, and ends by itself;
//! * [`hold`] is a guard's part of a lease, with the report of its loss, and its detachment and adoption;
//! * [`local_handover`] lets the waiters of the client share one place, and hands a lease over among them;
//! * [`renewer`] is the one timer of a client: renewals in batches, deadlines;
//! * [`reaper`] undoes abandoned requests and releases, until the backend has acknowledged it, and renews one lease by
//!   itself;
//! * [`resize`] changes the weight of a hold of permits;
//! * [`shared`] is the common state of all handles and guards of a client.

pub(crate) mod ask;
pub(crate) mod attempt;
pub(crate) mod hold;
pub(crate) mod lease;
pub(crate) mod local_handover;
pub(crate) mod reaper;
pub(crate) mod renewer;
pub(crate) mod resize;
pub(crate) mod shared;
pub(crate) mod wait;
