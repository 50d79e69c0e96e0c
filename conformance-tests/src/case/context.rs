//! What a case works with: clients, names, time.

use std::fmt;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::driver::Backend;
use tenure_core::{Client, ClientBuilder, Confirmation, FenceFloor, LockName};
use tokio::time::Instant;

use super::{CaseResult, Failure};
use crate::harness::{BoxError, CaseContext, Declared, Fault, Harness, Healer, Inspector, Passing, Time};
use crate::layer::FaultLayer;
use crate::rng::Rng;

/// The hands of a case. Its waits are virtual on a virtual clock, and stretched on a slow machine otherwise.
pub struct Context {
    harness: Box<dyn Harness>,
    declared: Declared,
    case: CaseContext,
    rng: Rng,
}

impl Context {
    pub(crate) fn new(harness: Box<dyn Harness>, declared: Declared, case: CaseContext) -> Self {
        let rng = Rng::new(case.seed);
        Self { harness, declared, case, rng }
    }

    pub(crate) async fn teardown(self) -> Result<(), BoxError> {
        self.harness.teardown().await
    }

    /// What the maker declared.
    #[must_use]
    pub fn declared(&self) -> &Declared {
        &self.declared
    }

    /// The seed of the case.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.case.seed
    }

    /// The case's randomness.
    pub fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    /// A name that no other case uses.
    #[must_use]
    pub fn name(&self, suffix: impl AsRef<[u8]>) -> LockName {
        let mut bytes = self.case.prefix.clone().into_bytes();
        bytes.extend_from_slice(suffix.as_ref());
        LockName::new(bytes).expect("the prefix is not empty and the suffix is short")
    }

    /// A connection of its own.
    ///
    /// # Errors
    ///
    /// The backend cannot be reached.
    pub async fn backend(&mut self) -> CaseResult<Backend> {
        Ok(self.harness.backend().await?)
    }

    /// A client of its own, with the default settings.
    ///
    /// # Errors
    ///
    /// The backend cannot be reached.
    pub async fn client(&mut self) -> CaseResult<Client> {
        let backend = self.backend().await?;
        Ok(self.client_over(backend).build()?)
    }

    /// A client of its own, whose fences have to be greater than this.
    ///
    /// # Errors
    ///
    /// The backend cannot be reached, or takes no floor.
    pub async fn client_beyond(&mut self, floor: FenceFloor) -> CaseResult<Client> {
        let backend = self.harness.backend_beyond(floor).await?;
        Ok(self.client_over(backend).build()?)
    }

    /// A connection of its own, with a layer of faults over it.
    ///
    /// # Errors
    ///
    /// The backend cannot be reached.
    pub async fn layer(&mut self) -> CaseResult<FaultLayer> {
        Ok(FaultLayer::over(self.backend().await?))
    }

    /// A client whose every request goes through a layer of faults.
    ///
    /// # Errors
    ///
    /// The backend cannot be reached.
    pub async fn layered(&mut self) -> CaseResult<(Client, FaultLayer)> {
        let layer = self.layer().await?;
        Ok((self.client_over(layer.backend()).build()?, layer))
    }

    /// Like [`layered`](Self::layered), with settings of the case's own.
    ///
    /// # Errors
    ///
    /// The backend cannot be reached, or the settings are refused.
    pub async fn layered_with(
        &mut self,
        set: impl FnOnce(ClientBuilder) -> ClientBuilder,
    ) -> CaseResult<(Client, FaultLayer)> {
        let layer = self.layer().await?;
        Ok((set(self.client_over(layer.backend())).build()?, layer))
    }

    /// A client over a backend of the case's own making: on a slow machine it waits longer for answers. It takes over the
    /// locks that it is handed as on a runtime of several threads, though a case has one.
    pub fn client_over(&self, backend: Backend) -> ClientBuilder {
        let client = Client::builder(backend).op_timeout(self.ms(1_000)).confirmation(Confirmation::Behind);
        match self.declared.passing {
            Passing::On => client,
            Passing::Off => client.holders_per_grant(0),
        }
    }

    /// Does something bad to the server.
    ///
    /// # Errors
    ///
    /// The harness could not.
    pub async fn inject(&mut self, fault: Fault) -> CaseResult<Healer> {
        if !self.declared.faults.contains(&fault.kind()) {
            return Err(Failure::new(format!("{:?} was injected without being declared", fault.kind())));
        }
        Ok(self.harness.inject(fault).await?)
    }

    /// A raw look at the store, where there is one.
    #[must_use]
    pub fn inspector(&self) -> Option<Arc<dyn Inspector>> {
        self.harness.inspector()
    }

    /// The command of a worker in another process.
    ///
    /// # Errors
    ///
    /// The harness declares several processes and gives no command.
    pub fn worker_command(&self) -> CaseResult<Command> {
        self.harness.worker_command().ok_or_else(|| Failure::new("the harness gives no worker command"))
    }

    /// So many milliseconds, stretched on a slow machine.
    #[must_use]
    pub fn ms(&self, millis: u64) -> Duration {
        let span = Duration::from_millis(millis);
        match self.declared.time {
            Time::Virtual => span,
            Time::Real => span.mul_f64(self.case.slack),
        }
    }

    /// A ttl of about so many milliseconds: stretched, and moved to what the backend keeps.
    #[must_use]
    pub fn ttl(&self, millis: u64) -> Duration {
        let range = &self.declared.locks.ttl;
        let grain = range.granularity.as_millis().max(1) as u64;
        let wanted = self.ms(millis).max(range.min).as_millis() as u64;
        Duration::from_millis(wanted.div_ceil(grain) * grain).min(range.max)
    }

    /// How long something that should happen at once may take before the case fails.
    #[must_use]
    pub fn soon(&self) -> Duration {
        self.ms(5_000)
    }

    /// Lets time pass: a length of time is the subject, not a condition.
    pub async fn pass(&self, span: Duration) {
        tokio::time::sleep(span).await;
    }

    /// Lets time pass with the thread blocked, so that no task can run (on a virtual clock: as good as).
    pub async fn block(&self, span: Duration) {
        match self.declared.time {
            Time::Virtual => tokio::time::advance(span).await,
            Time::Real => std::thread::sleep(span),
        }
    }

    /// Waits until `condition` holds.
    ///
    /// # Errors
    ///
    /// It does not hold within the time.
    #[track_caller]
    pub fn eventually(
        &self,
        within: Duration,
        what: &str,
        mut condition: impl AsyncFnMut() -> bool,
    ) -> impl Future<Output = CaseResult<Duration>> {
        let late = Failure::new(format!("not within {within:?}: {what}"));
        let step = Duration::from_millis(5);
        async move {
            let start = Instant::now();
            loop {
                if condition().await {
                    return Ok(start.elapsed());
                }
                if start.elapsed() >= within {
                    return Err(late);
                }
                tokio::time::sleep(step).await;
            }
        }
    }

    /// Awaits `future`, which must end within the time.
    ///
    /// # Errors
    ///
    /// It does not.
    #[track_caller]
    pub fn within<F: Future>(
        &self,
        span: Duration,
        what: &str,
        future: F,
    ) -> impl Future<Output = CaseResult<F::Output>> {
        let late = Failure::new(format!("not within {span:?}: {what}"));
        async move { tokio::time::timeout(span, future).await.map_err(|_| late) }
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("case", &self.case).finish_non_exhaustive()
    }
}
