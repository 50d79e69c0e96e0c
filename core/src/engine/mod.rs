//! The lock engine: everything that waits, renews, ends and cleans up, once for all drivers.
//!
//! * [`wait`] asks for a lock until it is granted or time runs out;
//! * [`attempt`] owns a token from before it is sent until it is a lease or is undone;
//! * [`entry`] says who a lease is for, and how it is kept;
//! * [`lease`] is the client's view of one grant, and ends by itself; [`lease_state`] is what it knows;
//! * [`loose`] is a hold on its way from one client to another;
//! * [`loss`] tells the end of a hold to those who have not the guard;
//! * [`own_hold`] warns of a wait that may be for the waiter's own hold;
//! * [`relay`] lets the waiters of the client wait in one place, and passes a lease on among them;
//! * [`keeper`] is the one timer of a client: renewals in batches, deadlines; its plan is the [`agenda`];
//! * [`renewing`] is a renewal on its way;
//! * [`reaper`] undoes what was given up, until the backend has acknowledged it;
//! * [`standing`] is a lease that outlasts its guard;
//! * [`gate`] bounds how many requests are on their way at once;
//! * [`shared`] is what all handles and guards of a client have in common.

pub(crate) mod agenda;
pub(crate) mod attempt;
pub(crate) mod confirmation;
pub(crate) mod entry;
pub(crate) mod gate;
pub(crate) mod hold;
pub(crate) mod keeper;
pub(crate) mod lease;
mod lease_state;
pub(crate) mod loose;
pub(crate) mod loss;
pub(crate) mod own_hold;
pub(crate) mod owners;
pub(crate) mod pause;
pub(crate) mod reaper;
pub(crate) mod relay;
mod renewing;
pub(crate) mod shared;
pub(crate) mod standing;
pub(crate) mod undoing;
pub(crate) mod wait;
