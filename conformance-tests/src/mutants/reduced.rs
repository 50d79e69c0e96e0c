//! An honest driver that can do as little as a driver may: what refusal cases run against.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tenure_core::driver::{
    AcquireRequest, Acquisition, Busy, DelayQueue, ForceReleased, Inspection, Introspection, LockCapabilities,
    Queueing, ReentrantCapabilities, Revocation, TtlRange, Waiting, Watch,
};
use tenure_core::{Error, ErrorKind, FencingToken, LockName, OwnerToken, Result};

use super::maker::twisted_harness;
use super::twist::{Inner, Twist};
use crate::harness::{BoxError, CaseContext, Declared, Harness, HarnessMaker, Missing, Processes};

/// Takes every optional ability from another maker's drivers, honestly: it is not declared, and it is refused.
///
/// The suite must be green over it; that shows that the refusal cases accept who refuses.
pub struct ReducedMaker {
    inner: Arc<dyn HarnessMaker>,
    id: String,
    reduced: Reduced,
}

impl ReducedMaker {
    /// The reduced form of what `inner` makes.
    #[must_use]
    pub fn new(inner: Arc<dyn HarnessMaker>) -> Self {
        let id = format!("{}-reduced", inner.id());
        Self { inner, id, reduced: Reduced { max_fences: 1 } }
    }

    /// The same, but a grant carries as many fences as the honest driver's. A driver that polls is never asked for more
    /// than one by a client, and is right to carry more.
    #[must_use]
    pub fn with_fences(inner: Arc<dyn HarnessMaker>) -> Self {
        let (id, max_fences) = (format!("{}-polling-with-fences", inner.id()), inner.declared().locks.max_fences);
        Self { inner, id, reduced: Reduced { max_fences } }
    }
}

#[async_trait]
impl HarnessMaker for ReducedMaker {
    fn id(&self) -> &str {
        &self.id
    }

    fn declared(&self) -> Declared {
        let mut declared = self.inner.declared();
        declared.locks = self.reduced.locks(declared.locks);
        declared.reentrant = None;
        declared.queue = None;
        declared.processes = Processes::Single; // a worker would not be reduced
        declared
    }

    fn configured(&self) -> Result<(), Missing> {
        self.inner.configured()
    }

    async fn make(&self, context: CaseContext) -> Result<Box<dyn Harness>, BoxError> {
        Ok(twisted_harness(self.inner.make(context).await?, Arc::new(self.reduced), None))
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

#[derive(Clone, Copy)]
struct Reduced {
    max_fences: u32,
}

impl Reduced {
    fn locks(self, full: LockCapabilities) -> LockCapabilities {
        let ms = Duration::from_millis;
        LockCapabilities {
            waiting: Waiting::Poll,
            introspection: Introspection::None,
            revocation: Revocation::None,
            max_waiters: None,
            renew_batch: 1,
            max_fences: self.max_fences,
            ttl: TtlRange { min: ms(50), max: Duration::from_secs(86_400), granularity: ms(50) },
            ..full
        }
    }
}

fn unsupported<T>(what: &'static str) -> Result<T> {
    Err(Error::new(ErrorKind::Unsupported, what))
}

#[async_trait]
impl Twist for Reduced {
    fn capabilities(&self, inner: &Inner) -> LockCapabilities {
        self.locks(inner.locks().capabilities())
    }

    fn reentrant_capabilities(&self, _inner: &Inner) -> Option<ReentrantCapabilities> {
        None
    }

    fn queue(&self, _honest: Option<Arc<dyn DelayQueue>>) -> Option<Arc<dyn DelayQueue>> {
        None
    }

    async fn acquire(&self, inner: &Inner, request: &AcquireRequest) -> Result<Acquisition> {
        let request =
            AcquireRequest { queue: Queueing::None, fences: request.fences.min(self.max_fences), ..request.clone() };
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

    async fn force_release(&self, _: &Inner, _: &LockName, _: Option<FencingToken>) -> Result<ForceReleased> {
        unsupported("this driver cannot force locks")
    }
}
