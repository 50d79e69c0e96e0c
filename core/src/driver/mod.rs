//! The driver's side: small object-safe traits, one round trip a method.
//!
//! Everything clever (waiting, renewal, deadlines, clean-up) stands once, in the portable types above
//! ([`Client`](crate::Client), [`Lock`](crate::Lock), [`Reentrant`](crate::Reentrant)). A driver translates requests to
//! its backend and answers honestly:
//!
//! * **One round trip a method.** No retry, no sleep, no spawned work of its own, no logging above debug. Where the
//!   backend leaves no choice, write down how many.
//! * **Contention is an answer**, not an error: [`Acquisition::Busy`].
//! * **Say what is known.** [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) promises that the request was not
//!   applied; anything else that failed on the way is [`ErrorKind::Indeterminate`](crate::ErrorKind::Indeterminate).
//! * **Every method may be called concurrently**, also for the same name.
//! * **Every future may be dropped half-way.** The request may then be applied or not; the caller cleans up with
//!   [`DistributedLock::abandon`].
//! * **Idempotent by token.** Asking again with the same [`OwnerToken`](crate::OwnerToken) changes neither fence, depth
//!   nor place in the queue.
//!
//! `docs/writing-a-driver.md` walks through a whole driver, and the crate `tenure-conformance` proves it.

mod backend;
mod bucket;
mod capability;
mod counted;
mod credible;
mod doctor;
mod lock;
mod queue;
mod queue_capability;
mod queue_report;
mod queue_request;
mod queue_router;
mod quorum_node;
mod reentrant;
mod request;
mod small_file;
mod tls;
mod tombstones;
mod url;
mod watch;

pub use crate::value::error::{one_line, reason};
pub use backend::Backend;
pub use bucket::TokenBucket;
pub use capability::{
    Exclusion, Fencing, Introspection, LockCapabilities, OwnerScope, ReentrantCapabilities, Revocation, TtlRange,
    Waiting,
};
pub use counted::{CountedReentry, ProcessOwners};
pub use credible::{CLOCKS_APART, CredibleFences};
pub use doctor::{Checkup, Concern, Doctor, Finding, Topic};
pub use lock::DistributedLock;
pub use queue::DelayQueue;
pub use queue_capability::{KeyedConcurrency, LeaseRange, Parking, QueueCapabilities, QueueWake};
pub use queue_report::{
    Cancelled, DeadCause, DeadLetter, DeadPage, DeadPlace, DeadSelection, Flow, ListPlace, Listed, MessageInfo,
    MessagePage, PurgePlace, PurgeStep, Purged, QueuePage, QueueStats, Redriven, Rescheduled, Rest,
};
pub use queue_request::{
    Cause, Due, Extended, Extension, Healed, IfKnown, LockTurn, MessageState, NamedId, NewMessage, Next, Pushed,
    RawDelivery, Receipt, ReceiveRequest, Received, Settle, Settled, Settlement, TurnGiven,
};
pub use queue_router::QueueRouter;
pub use quorum_node::{Ballot, Electorate, QuorumNode, Raised, Vote};
pub use reentrant::ReentrantLock;
pub use request::{
    AcquireRequest, Acquisition, Begun, Busy, Exited, ForceReleased, Grant, Handing, Hold, Holder, Inspection,
    Queueing, ReentrantHold, ReentrantRenewal, Released, Renewal, Renewed,
};
pub use tls::tls_fault;
pub use tombstones::Tombstones;
pub use url::{BackendUrl, host_and_port};
pub use watch::{Handed, Signal, WakeHandle, WakeRouter, Watch};

#[cfg(feature = "mock")]
pub use self::{
    lock::MockDistributedLock, queue::MockDelayQueue, quorum_node::mock::MockQuorumNode, reentrant::MockReentrantLock,
};
