//! An honest driver that can do as little as a driver may: what refusal cases run against.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::driver::{
    AcquireRequest, Acquisition, Busy, DelayQueue, ForceReleased, Inspection, Introspection, LockCapabilities,
    Queueing, ReentrantCapabilities, Revocation, TtlRange, Waiting, Watch,
};
use tenure_core::{Error, ErrorKind, LockName, OwnerToken, Result};

use super::maker::twisted_harness;
use super::twist::{Inner, Twist};
use crate::harness::{BoxError, CaseContext, Declared, Harness, HarnessMaker, Missing, Processes};

/// Takes every optional ability from another maker's drivers, honestly: it is not declared, and it is refused.
///
/// The suite must be green over it; that shows that the refusal cases accept who refuses.
pub struct ReducedMaker {
    inner: Arc<dyn HarnessMaker>,
    id: String,
}

impl ReducedMaker {
    /// The reduced form of what `inner` makes.
    #[must_use]
    pub fn new(inner: Arc<dyn HarnessMaker>) -> Self {
        let id = format!("{}-reduced", inner.id());
        Self { inner, id }
    }
}

#[async_trait]
impl HarnessMaker for ReducedMaker {
    fn id(&self) -> &str {
        &self.id
    }

    fn declared(&self) -> Declared {
        let mut declared = self.inner.declared();
        declared.locks = reduced(declared.locks);
        declared.reentrant = None;
        declared.queue = None;
        declared.processes = Processes::Single; // a worker would not be reduced
        declared
    }

    fn configured(&self) -> Result<(), Missing> {
        self.inner.configured()
    }

    async fn make(&self, context: CaseContext) -> Result<Box<dyn Harness>, BoxError> {
        Ok(twisted_harness(self.inner.make(context).await?, Arc::new(Reduced), None))
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

fn reduced(locks: LockCapabilities) -> LockCapabilities {
    let ms = Duration::from_millis;
    LockCapabilities {
        waiting: Waiting::Poll,
        introspection: Introspection::None,
        revocation: Revocation::None,
        max_waiters: None,
        renew_batch: 1,
        max_fences: 1,
        ttl: TtlRange { min: ms(50), max: Duration::from_secs(86_400), granularity: ms(50) },
        ..locks
    }
}

struct Reduced;

fn unsupported<T>(what: &'static str) -> Result<T> {
    Err(Error::new(ErrorKind::Unsupported, what))
}

#[async_trait]
impl Twist for Reduced {
    fn capabilities(&self, inner: &Inner) -> LockCapabilities {
        reduced(inner.locks().capabilities())
    }

    fn reentrant_capabilities(&self, _inner: &Inner) -> Option<ReentrantCapabilities> {
        None
    }

    fn queue(&self, _honest: Option<Arc<dyn DelayQueue>>) -> Option<Arc<dyn DelayQueue>> {
        None
    }

    async fn acquire(&self, inner: &Inner, request: &AcquireRequest) -> Result<Acquisition> {
        let request = AcquireRequest { queue: Queueing::None, fences: 1, ..request.clone() };
        Ok(match inner.locks().acquire(&request).await? {
            Acquisition::Busy(_) => Acquisition::Busy(Busy::default()),
            granted => granted,
        })
    }

    async fn watch(&self, _inner: &Inner, _name: &LockName, _token: &OwnerToken) -> Result<Watch> {
        unsupported("this driver wakes nobody")
    }

    async fn inspect(&self, _inner: &Inner, _name: &LockName) -> Result<Inspection> {
        unsupported("this driver cannot look at locks")
    }

    async fn force_release(&self, _inner: &Inner, _name: &LockName) -> Result<ForceReleased> {
        unsupported("this driver cannot force locks")
    }
}
