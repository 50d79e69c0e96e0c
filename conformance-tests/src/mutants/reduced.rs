//! An honest driver with fewer abilities: refusal cases run against it, and none of our backends declares so little.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::driver::{
    AcquireRequest, Acquisition, Busy, CensusCapabilities, Family, ForceReleased, Inspection, Introspection,
    LockCapabilities, Parking, PermitCapabilities, PermitHold, PermitInspection, PermitRequest, QueueAdmin, Queueing,
    ReentrantCapabilities, Revocation, Ttl, TtlRange, Waiting, Watch,
};
use tenure_core::{Error, ErrorKind, FencingToken, LockName, OwnerId, OwnerToken, Result};

use super::delay_bend::{Bend, STRAIGHT};
use super::delay_bent::Bender;
use super::harness::twisted_harness;
use super::twist::{Inner, Twist};
use crate::harness::{Administration, BoxError, CaseContext, Declared, Harness, HarnessMaker, Missing, Processes};

/// The remaining abilities of a driver. The others are not declared, and are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// How it waits; no better than the driver does.
    pub waiting: Waiting,
    /// The largest number of fences of a grant.
    pub max_fences: u32,
    /// The shortest ttl, and the step between two.
    pub step: Duration,
    /// The information that it gives about a lock.
    pub introspection: Introspection,
    /// Whether it takes locks from their holders.
    pub revocation: Revocation,
    /// Whether it lists held locks.
    pub listing: Listing,
    /// Whether it has re-entrant locks.
    pub reentry: Reentry,
    /// Whether it has semaphores and read-write locks.
    pub permits: Permitting,
    /// The promise of its queues for parked messages; `None` for no queues.
    pub parking: Option<Parking>,
    /// Whether it has operations on stored messages.
    pub administration: Administration,
}

/// Whether there are re-entrant locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reentry {
    /// As the driver has them.
    Kept,
    /// None.
    Gone,
}

/// Whether there are semaphores and read-write locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permitting {
    /// As the driver has them, with the reduced ways to wait, to look and to revoke.
    Kept,
    /// None.
    Gone,
}

/// Whether there is a list of held locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listing {
    /// As the driver has it.
    Kept,
    /// None.
    Gone,
}

impl Abilities {
    /// As little as a driver may have.
    pub const LEAST: Self = Self {
        waiting: Waiting::Poll,
        max_fences: 1,
        step: Duration::from_millis(50),
        introspection: Introspection::None,
        revocation: Revocation::None,
        listing: Listing::Gone,
        reentry: Reentry::Gone,
        permits: Permitting::Gone,
        parking: None,
        administration: Administration::None,
    };

    fn locks(self, full: LockCapabilities) -> LockCapabilities {
        full.with_waiting(self.waiting)
            .with_introspection(self.introspection)
            .with_revocation(self.revocation)
            .with_max_waiters(full.max_waiters.filter(|_| self.waiting != Waiting::Poll))
            .with_renew_batch(1)
            .with_max_fences(self.max_fences)
            .with_ttl(self.ttl())
    }

    fn ttl(self) -> TtlRange {
        TtlRange { min: self.step.max(Ttl::MIN), max: Duration::from_secs(86_400), granularity: self.step }
    }

    fn permits(self, full: PermitCapabilities) -> Option<PermitCapabilities> {
        let kept = full
            .with_waiting(self.waiting)
            .with_introspection(self.introspection)
            .with_revocation(self.revocation)
            .with_max_waiters(full.max_waiters.filter(|_| self.waiting != Waiting::Poll))
            .with_renew_batch(1)
            .with_ttl(self.ttl());
        (self.permits == Permitting::Kept).then_some(kept)
    }

    /// The request to the driver below.
    fn asked(self, request: &AcquireRequest) -> AcquireRequest {
        let queue = if self.waiting == Waiting::Poll { Queueing::None } else { request.queue };
        request.clone().with_queue(queue).with_fences(request.fences.min(self.max_fences))
    }

    fn reported(self, answer: Acquisition) -> Acquisition {
        match answer {
            Acquisition::Busy(_) if self.waiting == Waiting::Poll => Acquisition::Busy(Busy::default()),
            // The position in line is left out where it is not known.
            Acquisition::Busy(busy) if self.waiting == Waiting::Notified => Acquisition::Busy(busy.with_position(None)),
            answer => answer,
        }
    }
}

/// Removes optional abilities from another maker's drivers, honestly.
///
/// The suite must be green over it; that shows that the cases accept a driver that refuses undeclared abilities.
pub struct ReducedMaker {
    inner: Arc<dyn HarnessMaker>,
    id: String,
    abilities: Abilities,
}

impl ReducedMaker {
    /// The drivers of `inner`, with [as few abilities as a driver may have](Abilities::LEAST).
    #[must_use]
    pub fn new(inner: Arc<dyn HarnessMaker>) -> Self {
        let id = format!("{}-reduced", inner.id());
        Self { inner, id, abilities: Abilities::LEAST }
    }

    /// The drivers of `inner`, with these abilities.
    #[must_use]
    pub fn with(inner: Arc<dyn HarnessMaker>, abilities: Abilities) -> Self {
        Self { id: format!("{} with {abilities:?}", inner.id()), inner, abilities }
    }
}

#[async_trait]
impl HarnessMaker for ReducedMaker {
    fn id(&self) -> &str {
        &self.id
    }

    fn declared(&self) -> Declared {
        let mut declared = self.inner.declared();
        declared.locks = self.abilities.locks(declared.locks);
        declared.reentrant = declared.reentrant.filter(|_| self.abilities.reentry == Reentry::Kept);
        declared.permits = declared.permits.and_then(|permits| self.abilities.permits(permits));
        declared.census = declared.census.filter(|_| self.abilities.listing == Listing::Kept);
        declared.queue = self.abilities.parking.and_then(|parking| {
            let mut queue = declared.queue?;
            queue.parking = parking;
            Some(queue)
        });
        if declared.queue.is_none() {
            declared.administration = Administration::None;
        } else {
            declared.administration = self.abilities.administration;
        }
        declared.processes = Processes::Single; // a worker would not be reduced
        declared
    }

    fn configured(&self) -> Result<(), Missing> {
        self.inner.configured()
    }

    async fn make(&self, context: CaseContext) -> Result<Box<dyn Harness>, BoxError> {
        Ok(twisted_harness(self.inner.make(context).await?, Arc::new(self.abilities), None))
    }

    fn server(&self) -> String {
        self.inner.server()
    }
}

impl fmt::Debug for ReducedMaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReducedMaker").field("id", &self.id).finish_non_exhaustive()
    }
}

fn unsupported<T>(what: &'static str) -> Result<T> {
    Err(Error::new(ErrorKind::Unsupported, what))
}

#[async_trait]
impl Twist for Abilities {
    fn capabilities(&self, inner: &Inner) -> LockCapabilities {
        self.locks(inner.locks().capabilities())
    }

    fn reentrant_capabilities(&self, inner: &Inner) -> Option<ReentrantCapabilities> {
        let kept = inner.reentrant().ok().filter(|_| self.reentry == Reentry::Kept)?;
        Some(kept.capabilities())
    }

    fn permit_capabilities(&self, inner: &Inner) -> Option<PermitCapabilities> {
        self.permits(inner.permits().ok()?.capabilities())
    }

    fn census_capabilities(&self, inner: &Inner) -> Option<CensusCapabilities> {
        let kept = inner.census().ok().filter(|_| self.listing == Listing::Kept)?;
        Some(kept.capabilities())
    }

    fn queue(&self, honest: Option<Arc<dyn QueueAdmin>>) -> Option<Arc<dyn QueueAdmin>> {
        match self.parking? {
            Parking::Attended => honest,
            _ => Bender::new(Bend { capabilities: |can| can.parking = Parking::BackOff, ..STRAIGHT }).queue(honest),
        }
    }

    fn administration(&self) -> Administration {
        self.administration
    }

    async fn acquire(&self, inner: &Inner, request: &AcquireRequest) -> Result<Acquisition> {
        inner.locks().acquire(&self.asked(request)).await.map(|answer| self.reported(answer))
    }

    async fn enter(&self, inner: &Inner, owner: &OwnerId, request: &AcquireRequest) -> Result<Acquisition> {
        inner.reentrant()?.enter(owner, &self.asked(request)).await.map(|answer| self.reported(answer))
    }

    async fn take_permits(&self, inner: &Inner, request: &PermitRequest) -> Result<Acquisition> {
        let asked = request.clone().with_lock(self.asked(&request.lock));
        inner.permits()?.acquire(&asked).await.map(|answer| self.reported(answer))
    }

    async fn watch_permits(&self, inner: &Inner, hold: &PermitHold) -> Result<Watch> {
        match self.waiting {
            Waiting::Poll => unsupported("this backend has no notifications; waiters poll"),
            _ => inner.permits()?.watch(hold).await,
        }
    }

    async fn inspect_permits(
        &self,
        inner: &Inner,
        family: Family,
        name: &LockName,
        most: usize,
    ) -> Result<PermitInspection> {
        match self.introspection {
            Introspection::None => unsupported("this driver does not support `inspect`"),
            _ => inner.permits()?.inspect(family, name, most).await,
        }
    }

    async fn evict(
        &self,
        inner: &Inner,
        family: Family,
        name: &LockName,
        fence: FencingToken,
    ) -> Result<ForceReleased> {
        match self.revocation {
            Revocation::Forced => inner.permits()?.evict(family, name, fence).await,
            _ => unsupported("this driver does not support `evict`"),
        }
    }

    async fn watch(&self, inner: &Inner, name: &LockName, token: &OwnerToken) -> Result<Watch> {
        match self.waiting {
            Waiting::Poll => unsupported("this backend has no notifications; waiters poll"),
            _ => inner.locks().watch(name, token).await,
        }
    }

    async fn inspect(&self, inner: &Inner, name: &LockName) -> Result<Inspection> {
        match self.introspection {
            Introspection::None => unsupported("this driver does not support `inspect`"),
            _ => inner.locks().inspect(name).await,
        }
    }

    async fn force_release(
        &self,
        inner: &Inner,
        name: &LockName,
        expected: Option<FencingToken>,
    ) -> Result<ForceReleased> {
        match self.revocation {
            Revocation::Forced => inner.locks().force_release(name, expected).await,
            _ => unsupported("this driver does not support `force_release`"),
        }
    }
}
