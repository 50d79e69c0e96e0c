//! The driver's side: small object-safe traits, one round trip a method.
//!
//! The portable types above it ([`Client`](crate::Client), [`Lock`](crate::Lock), [`Reentrant`](crate::Reentrant))
//! implement waiting, renewal, deadlines and clean-up once. A driver translates requests to its backend and answers
//! honestly:
//!
//! * **One round trip a method.** No retry, no sleep, no spawned work, no logging above debug. If the backend leaves no
//!   choice, document the number.
//! * **Contention is an answer**, not an error: [`Acquisition::Busy`].
//! * **Errors state the known facts.** [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) promises that the
//!   request was not applied; any other failure of the request is
//!   [`ErrorKind::Indeterminate`](crate::ErrorKind::Indeterminate).
//! * **Every method may be called concurrently**, also for the same name.
//! * **Every future may be dropped half-way.** The request may then be applied or not; the caller cleans up with
//!   [`DistributedLock::abandon`].
//! * **Idempotent by token.** Asking again with the same [`OwnerToken`](crate::OwnerToken) changes neither fence, depth
//!   nor place in the queue.
//!
//! `docs/writing-a-driver.md` walks through a whole driver, and the crate `tenure-conformance` tests it.

// How a request or an answer gets what its constructor does not take.

/// Methods that change one field each. A type that is made by its constructor and by these may get a further field
/// without breaking callers.
macro_rules! setters {
    ($type:ident { $($setter:ident => $field:ident: $of:ty,)+ }) => {
        impl $type {
            $(
                #[doc = concat!("The same, but with this [`", stringify!($field), "`](Self::", stringify!($field), ").")]
                #[must_use]
                pub fn $setter(mut self, $field: $of) -> Self {
                    self.$field = $field;
                    self
                }
            )+
        }
    };
    (const $type:ident { $($setter:ident => $field:ident: $of:ty,)+ }) => {
        impl $type {
            $(
                #[doc = concat!("The same, but with this [`", stringify!($field), "`](Self::", stringify!($field), ").")]
                #[must_use]
                pub const fn $setter(mut self, $field: $of) -> Self {
                    self.$field = $field;
                    self
                }
            )+
        }
    };
}

use std::sync::Arc;

use crate::value::error::{self, Error, Result};

mod capability;
mod counted;
mod lock;
mod on_runtime;
mod operator;
mod permits;
mod queue;
mod queue_admin;
mod queue_request;
mod quorum_node;
mod rules;
mod url;
mod wake;

pub use crate::meters::reconnected;
pub use crate::value::error::{ErrorExt, one_line, reason};
pub use crate::value::queue::{Attempts, Delay, Lease, Payload};
pub use crate::value::time::{LeaseInstant, Ttl};
pub use capability::{Exclusion, Fencing, KeyedConcurrency, LeaseRange, Parking, QueueCapabilities, QueueWake};
pub use counted::{CountedReentry, ProcessOwners};
pub use lock::{
    AcquireRequest, Acquisition, Begun, Busy, DistributedLock, Exited, ForceReleased, Grant, Handing, Hold, Holder,
    Inspection, Introspection, LockCapabilities, OwnerScope, Queueing, ReentrantCapabilities, ReentrantEntry,
    ReentrantHold, ReentrantLock, Released, Renewed, Revocation, TtlRange, Waiting,
};
pub use on_runtime::OnRuntime;
pub use operator::{
    Census, CensusCapabilities, CensusOrder, CensusPlace, Checkup, Concern, Doctor, Finding, HeldLock, HeldPage, Topic,
    WaitersCounted,
};
pub use permits::{
    Families, Family, PermitCapabilities, PermitChange, PermitHold, PermitHolder, PermitInspection, PermitRequest,
    Permits, Share,
};
pub use queue::{DelayQueue, DelayQueueExt};
pub use queue_admin::{
    Cancelled, DeadCause, DeadLetter, DeadPage, DeadPlace, DeadSelection, Flow, ListPlace, Listed, MessageInfo,
    MessagePage, PurgePlace, PurgeStep, Purged, QueueAdmin, QueuePage, QueueStats, Redriven, Rescheduled, Rest,
};
pub use queue_request::{
    Cause, Due, Exchanged, Extended, Extension, Healed, IfKnown, LockTurn, MessageState, NamedId, NewMessage, Next,
    Pushed, RawDelivery, Receipt, ReceiveRequest, Received, Settle, Settled, Settlement, TurnGiven,
};
pub use quorum_node::{Ballot, Electorate, QuorumNode, Raised, Vote};
pub use rules::{CLOCKS_APART, CredibleFences, Fate, Lifecycle, POSTPONED, TokenBucket, Tombstones};
pub use url::{BackendUrl, host_and_port, tls_fault};
pub use wake::{Handed, QueueRouter, Signal, WakeHandle, WakeRouter, Watch};

#[cfg(feature = "mock")]
pub use self::lock::MockDistributedLock;
#[cfg(feature = "mock")]
pub use self::queue::MockDelayQueue;
#[cfg(feature = "mock")]
pub use self::queue_admin::mock::MockQueueAdmin;
#[cfg(feature = "mock")]
pub use self::quorum_node::mock::MockQuorumNode;
#[cfg(feature = "mock")]
pub use lock::MockReentrantLock;
#[cfg(feature = "mock")]
pub use permits::MockPermits;

// What a client is built from: the traits that one backend implements.

/// One backend, as the traits that its driver implements.
///
/// A driver crate usually implements `From<ItsDriver> for Backend`, so that users write `Client::new(driver)`.
#[derive(Clone, Debug)]
pub struct Backend {
    pub(crate) locks: Arc<dyn DistributedLock>,
    pub(crate) reentrant: Option<Arc<dyn ReentrantLock>>,
    pub(crate) permits: Option<Arc<dyn Permits>>,
    pub(crate) queue: Option<Arc<dyn DelayQueue>>,
    pub(crate) queue_admin: Option<Arc<dyn QueueAdmin>>,
    pub(crate) doctor: Option<Arc<dyn Doctor>>,
    pub(crate) census: Option<Arc<dyn Census>>,
}

impl Backend {
    /// Makes a backend with plain locks.
    #[must_use]
    pub fn new(locks: Arc<dyn DistributedLock>) -> Self {
        Self { locks, reentrant: None, permits: None, queue: None, queue_admin: None, doctor: None, census: None }
    }

    /// Adds re-entrant locks. They have the same names: a name held one way is busy the other way.
    #[must_use]
    pub fn with_reentrant(mut self, reentrant: Arc<dyn ReentrantLock>) -> Self {
        self.reentrant = Some(reentrant);
        self
    }

    /// Adds semaphores and read-write locks.
    #[must_use]
    pub fn with_permits(mut self, permits: Arc<dyn Permits>) -> Self {
        self.permits = Some(permits);
        self
    }

    /// Adds delay queues.
    #[must_use]
    pub fn with_queue(mut self, queue: Arc<dyn DelayQueue>) -> Self {
        self.queue = Some(queue);
        self
    }

    /// Adds the operations on stored messages of the delay queues.
    #[must_use]
    pub fn with_queue_admin(mut self, admin: Arc<dyn QueueAdmin>) -> Self {
        self.queue_admin = Some(admin);
        self
    }

    /// Adds the driver's health check.
    #[must_use]
    pub fn with_doctor(mut self, doctor: Arc<dyn Doctor>) -> Self {
        self.doctor = Some(doctor);
        self
    }

    /// Adds the list of held locks.
    #[must_use]
    pub fn with_census(mut self, census: Arc<dyn Census>) -> Self {
        self.census = Some(census);
        self
    }

    /// Returns the plain locks.
    #[must_use]
    pub fn locks(&self) -> &Arc<dyn DistributedLock> {
        &self.locks
    }

    /// Returns the re-entrant locks, if the driver has them.
    #[must_use]
    pub fn reentrant(&self) -> Option<&Arc<dyn ReentrantLock>> {
        self.reentrant.as_ref()
    }

    /// Returns the semaphores and read-write locks, if the driver has them.
    #[must_use]
    pub fn permits(&self) -> Option<&Arc<dyn Permits>> {
        self.permits.as_ref()
    }

    pub(crate) fn required_reentrant(&self) -> Result<&Arc<dyn ReentrantLock>> {
        self.reentrant().ok_or_else(|| self.without("re-entrant locks"))
    }

    pub(crate) fn required_permits(&self) -> Result<&Arc<dyn Permits>> {
        self.permits().ok_or_else(|| self.without("semaphores and read-write locks"))
    }

    fn without(&self, what: &str) -> Error {
        Error::new(error::ErrorKind::Unsupported, format!("the driver \"{}\" has no {what}", self.locks.driver()))
    }

    /// Returns the delay queues, if the driver has them.
    #[must_use]
    pub fn queue(&self) -> Option<&Arc<dyn DelayQueue>> {
        self.queue.as_ref()
    }

    /// Returns the operations on stored messages, if the driver has them.
    #[must_use]
    pub fn queue_admin(&self) -> Option<&Arc<dyn QueueAdmin>> {
        self.queue_admin.as_ref()
    }

    /// Returns the health check, if the driver has one.
    #[must_use]
    pub fn doctor(&self) -> Option<&Arc<dyn Doctor>> {
        self.doctor.as_ref()
    }

    /// Returns the list of held locks, if the driver has one.
    #[must_use]
    pub fn census(&self) -> Option<&Arc<dyn Census>> {
        self.census.as_ref()
    }
}
