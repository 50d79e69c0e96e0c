//! The context of a case: clients, names, time.

use std::fmt;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::driver::Backend;
use tenure_core::{Client, ClientBuilder, Confirmation, FenceFloor, LockName};
use tokio::time::Instant;

use super::{CaseResult, Failure};
use crate::harness::{BoxError, CaseContext, Declared, Fault, Harness, Healer, Inspector, Named, Passing, Time};
use crate::journal::Journal;
use crate::layer::FaultLayer;
use crate::rng::Rng;

/// The context that a case works with. Its waits are virtual on a virtual clock; otherwise a slow machine stretches
/// them.
pub struct Context {
    harness: Box<dyn Harness>,
    declared: Declared,
    case: CaseContext,
    rng: Rng,
    journal: Journal,
}

/// The result of one look at a condition.
pub trait Seen {
    /// Whether the condition holds.
    ///
    /// # Errors
    ///
    /// The look failed, in words.
    fn seen(self) -> Result<bool, String>;
}

impl Seen for bool {
    fn seen(self) -> Result<bool, String> {
        Ok(self)
    }
}

impl<E: Into<Failure>> Seen for Result<bool, E> {
    fn seen(self) -> Result<bool, String> {
        self.map_err(|error| error.into().to_string())
    }
}

impl Context {
    pub(crate) fn new(harness: Box<dyn Harness>, declared: Declared, case: CaseContext, journal: Journal) -> Self {
        let rng = Rng::new(case.seed);
        Self { harness, declared, case, rng, journal }
    }

    pub(crate) async fn teardown(self) -> Result<(), BoxError> {
        self.harness.teardown().await
    }

    /// The maker's declaration.
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

    /// A separate connection.
    ///
    /// # Errors
    ///
    /// The backend cannot be reached.
    pub async fn backend(&mut self) -> CaseResult<Backend> {
        Ok(self.journal.over(&self.harness.backend().await?))
    }

    /// A separate client, with the default settings.
    ///
    /// # Errors
    ///
    /// The backend cannot be reached.
    pub async fn client(&mut self) -> CaseResult<Client> {
        let backend = self.backend().await?;
        Ok(self.client_over(backend).build()?)
    }

    /// A separate client, whose fences have to be greater than this.
    ///
    /// # Errors
    ///
    /// The backend cannot be reached, or takes no floor.
    pub async fn client_beyond(&mut self, floor: FenceFloor) -> CaseResult<Client> {
        let backend = self.journal.over(&self.harness.backend_beyond(floor).await?);
        Ok(self.client_over(backend).build()?)
    }

    /// A separate connection, with a layer of faults over it.
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

    /// Like [`layered`](Self::layered), with custom settings.
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

    /// A client over a backend that the case made: on a slow machine it waits longer for answers. It takes over handed
    /// locks as on a runtime of several threads, though a case has one.
    pub fn client_over(&self, backend: Backend) -> ClientBuilder {
        let client = Client::builder(backend).op_timeout(self.ms(1_000)).confirmation(Confirmation::Behind);
        match self.declared.passing {
            Passing::On => client,
            Passing::Off => client.holders_per_grant(0),
        }
    }

    /// Injects a fault into the server.
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

    /// A raw look at the store, if the harness has one.
    #[must_use]
    pub fn inspector(&self) -> Option<Arc<dyn Inspector>> {
        self.harness.inspector().map(|inspector| Arc::new(Named(inspector)) as Arc<dyn Inspector>)
    }

    /// The command of a worker in another process.
    ///
    /// # Errors
    ///
    /// The harness declares several processes and gives no command.
    pub fn worker_command(&self) -> CaseResult<Command> {
        self.harness.worker_command().ok_or_else(|| Failure::new("the harness gives no worker command"))
    }

    /// This many milliseconds, stretched on a slow machine.
    #[must_use]
    pub fn ms(&self, millis: u64) -> Duration {
        let span = Duration::from_millis(millis);
        match self.declared.time {
            Time::Virtual => span,
            Time::Real => span.mul_f64(self.case.slack),
        }
    }

    /// A ttl of about this many milliseconds: stretched, and moved to a value that the backend keeps.
    #[must_use]
    pub fn ttl(&self, millis: u64) -> Duration {
        let range = &self.declared.locks.ttl;
        let grain = range.granularity.as_millis().max(1) as u64;
        let wanted = self.ms(millis).max(range.min).as_millis() as u64;
        Duration::from_millis(wanted.div_ceil(grain) * grain).min(range.max)
    }

    /// The time limit for an event that should happen at once; after it, the case fails.
    #[must_use]
    pub fn soon(&self) -> Duration {
        self.ms(5_000)
    }

    /// Lets time pass, where a length of time is the subject, not a condition.
    pub async fn pass(&self, span: Duration) {
        tokio::time::sleep(span).await;
    }

    /// Lets time pass with the thread blocked, so that no task can run (on a virtual clock, the effect is the same).
    pub async fn block(&self, span: Duration) {
        match self.declared.time {
            Time::Virtual => tokio::time::advance(span).await,
            Time::Real => std::thread::sleep(span),
        }
    }

    /// Waits until `condition` holds. A look that fails is repeated.
    ///
    /// # Errors
    ///
    /// It does not hold within the time; with the result of the last look, if that failed.
    #[track_caller]
    pub fn eventually<S: Seen>(
        &self,
        within: Duration,
        what: &str,
        mut condition: impl AsyncFnMut() -> S,
    ) -> impl Future<Output = CaseResult<Duration>> {
        let late = Failure::new(format!("not within {within:?}: {what}"));
        let step = Duration::from_millis(5);
        async move {
            let start = Instant::now();
            loop {
                let seen = condition().await.seen();
                match seen {
                    Ok(true) => return Ok(start.elapsed()),
                    Ok(false) if start.elapsed() >= within => return Err(late),
                    Err(why) if start.elapsed() >= within => return Err(late.because(&why)),
                    Ok(false) | Err(_) => tokio::time::sleep(step).await,
                }
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
