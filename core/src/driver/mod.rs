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

#[macro_use]
mod setters;

mod backend;
mod capability;
mod counted;
mod doctor;
mod lifecycle;
mod lock;
mod queue;
mod queue_report;
mod queue_request;
mod quorum_node;
mod request;
mod rules;
mod tls;
mod url;
mod wake;

pub use crate::value::clock::LeaseInstant;
pub use crate::value::error::{one_line, reason};
pub use crate::value::limits::{Attempts, Delay, Lease, Payload};
pub use crate::value::ttl::Ttl;
pub use backend::Backend;
pub use capability::{
    Exclusion, Fencing, Introspection, KeyedConcurrency, LeaseRange, LockCapabilities, OwnerScope, Parking,
    QueueCapabilities, QueueWake, ReentrantCapabilities, Revocation, TtlRange, Waiting,
};
pub use counted::{CountedReentry, ProcessOwners};
pub use doctor::{Checkup, Concern, Doctor, Finding, Topic};
pub use lifecycle::{Fate, Lifecycle, POSTPONED};
pub use lock::{DistributedLock, ReentrantLock};
pub use queue::{DelayQueue, DelayQueueExt};
pub use queue_report::{
    Cancelled, DeadCause, DeadLetter, DeadPage, DeadPlace, DeadSelection, Flow, ListPlace, Listed, MessageInfo,
    MessagePage, PurgePlace, PurgeStep, Purged, QueuePage, QueueStats, Redriven, Rescheduled, Rest,
};
pub use queue_request::{
    Cause, Due, Exchanged, Extended, Extension, Healed, IfKnown, LockTurn, MessageState, NamedId, NewMessage, Next,
    Pushed, RawDelivery, Receipt, ReceiveRequest, Received, Settle, Settled, Settlement, TurnGiven,
};
pub use quorum_node::{Ballot, Electorate, QuorumNode, Raised, Vote};
pub use request::{
    AcquireRequest, Acquisition, Begun, Busy, Exited, ForceReleased, Grant, Handing, Hold, Holder, Inspection,
    Queueing, ReentrantEntry, ReentrantHold, Released, Renewed,
};
pub use rules::{CLOCKS_APART, CredibleFences, TokenBucket, Tombstones};
pub use tls::tls_fault;
pub use url::{BackendUrl, host_and_port};
pub use wake::{Handed, QueueRouter, Signal, WakeHandle, WakeRouter, Watch};

#[cfg(feature = "mock")]
pub use self::lock::MockDistributedLock;
#[cfg(feature = "mock")]
pub use self::queue::MockDelayQueue;
#[cfg(feature = "mock")]
pub use self::quorum_node::mock::MockQuorumNode;
#[cfg(feature = "mock")]
pub use lock::MockReentrantLock;
