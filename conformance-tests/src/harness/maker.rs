//! The two traits of a harness.

use std::fmt;
use std::process::Command;
use std::sync::Arc;

use async_trait::async_trait;
use tenure_core::FenceFloor;
use tenure_core::driver::Backend;

use super::BoxError;
use super::{Declared, Fault, Healer, Inspector};

/// Makes a harness for each case, and declares beforehand the promises of the backend.
#[async_trait]
pub trait HarnessMaker: Send + Sync + 'static {
    /// The backend's name in lists and reports: `"redis/single"`.
    fn id(&self) -> &str;

    /// The promises of the backend and the abilities of the harness. No I/O.
    fn declared(&self) -> Declared;

    /// Whether the backend is configured on this machine. No I/O.
    ///
    /// # Errors
    ///
    /// The missing part. Its cases are then listed as ignored with this reason, or fail if the backend is named in
    /// `TENURE_CONFORMANCE_REQUIRE`.
    fn configured(&self) -> Result<(), Missing> {
        Ok(())
    }

    /// A harness for one case. An error fails the case: configured but not reachable is never a skip.
    async fn make(&self, context: CaseContext) -> Result<Box<dyn Harness>, BoxError>;

    /// Name and version of the server for the report.
    fn server(&self) -> String {
        String::from("in this process")
    }

    /// Cases that are known to fail, each with its issue. They run, must fail, and turn the run red when they pass.
    fn expected_failures(&self) -> &[(&'static str, &'static str)] {
        &[]
    }
}

/// The environment of one case: clients of one backend.
#[async_trait]
pub trait Harness: Send {
    /// A new connection to the backend. Every call is another client; no two share a connection or client identity.
    async fn backend(&mut self) -> Result<Backend, BoxError>;

    /// Like [`backend`](Self::backend), but of a driver whose fences have to be greater than this, if that is declared.
    async fn backend_beyond(&mut self, floor: FenceFloor) -> Result<Backend, BoxError> {
        Err(format!("the harness cannot set a floor for fences, such as {floor}").into())
    }

    /// Injects a fault into the server. Called only with faults of a declared kind.
    async fn inject(&mut self, fault: Fault) -> Result<Healer, BoxError> {
        Err(format!("the harness cannot inject {fault:?}").into())
    }

    /// A raw look at the store, if that is declared.
    fn inspector(&self) -> Option<Arc<dyn Inspector>> {
        None
    }

    /// A command that runs [`worker::serve`](crate::worker::serve) against the same backend in another process, if
    /// that is declared.
    fn worker_command(&self) -> Option<Command> {
        None
    }

    /// Removes the remains of the case. Runs also after a case that failed or panicked.
    async fn teardown(self: Box<Self>) -> Result<(), BoxError> {
        Ok(())
    }
}

/// The information for a maker about the case of a harness.
#[derive(Clone, Debug)]
pub struct CaseContext {
    /// The case, for log lines.
    pub case: &'static str,
    /// Every name that the case uses begins with this.
    pub prefix: String,
    /// The seed of everything random in the case.
    pub seed: u64,
    /// Whether the case injects faults into the whole server.
    pub isolation: Isolation,
    /// The factor by which real waits are stretched on this machine; 1 on an idle one.
    pub slack: f64,
}

/// Whether a case may share its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Isolation {
    /// It uses only its own names: other cases may run on the same server meanwhile.
    Shared,
    /// It needs its own server.
    Exclusive,
}

/// The reason why a backend is not configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing(String);

impl Missing {
    /// Names the missing part: `"no redis-server on the PATH"`.
    #[must_use]
    pub fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
