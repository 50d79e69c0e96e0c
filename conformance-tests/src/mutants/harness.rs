//! A harness whose drivers have one defect, in this process and in its workers.

use std::process::Command;
use std::sync::Arc;

use async_trait::async_trait;
use tenure_core::FenceFloor;
use tenure_core::driver::Backend;

use super::twist::{Twist, twisted};
use crate::harness::{BoxError, Fault, Harness, Healer, Inspector};

/// The variable that names the mutant for a worker in another process.
pub(super) const MUTANT: &str = "TENURE_MUTANT";

/// A harness whose backends are twisted.
pub(super) fn twisted_harness(
    inner: Box<dyn Harness>,
    twist: Arc<dyn Twist>,
    mutant: Option<&'static str>,
) -> Box<dyn Harness> {
    Box::new(MutantHarness { inner, twist, mutant })
}

struct MutantHarness {
    inner: Box<dyn Harness>,
    twist: Arc<dyn Twist>,
    mutant: Option<&'static str>,
}

#[async_trait]
impl Harness for MutantHarness {
    async fn backend(&mut self) -> Result<Backend, BoxError> {
        Ok(twisted(self.inner.backend().await?, Arc::clone(&self.twist)))
    }

    async fn backend_beyond(&mut self, floor: FenceFloor) -> Result<Backend, BoxError> {
        Ok(twisted(self.inner.backend_beyond(floor).await?, Arc::clone(&self.twist)))
    }

    async fn inject(&mut self, fault: Fault) -> Result<Healer, BoxError> {
        self.twist.injected(&fault);
        self.inner.inject(fault).await
    }

    fn inspector(&self) -> Option<Arc<dyn Inspector>> {
        self.inner.inspector()
    }

    fn worker_command(&self) -> Option<Command> {
        let mut command = self.inner.worker_command()?;
        if let Some(mutant) = self.mutant {
            command.env(MUTANT, mutant);
        }
        Some(command)
    }

    async fn teardown(self: Box<Self>) -> Result<(), BoxError> {
        self.inner.teardown().await
    }
}
