//! A maker whose drivers have something wrong.

use std::fmt;
use std::process::Command;
use std::sync::Arc;

use async_trait::async_trait;
use tenure_core::driver::Backend;

use super::twist::{Twist, twisted};
use crate::harness::{BoxError, CaseContext, Declared, Fault, Harness, HarnessMaker, Healer, Inspector, Missing};

/// A driver with one thing wrong.
pub struct Mutant {
    /// Its name: `"release/anyones-lock"`.
    pub id: &'static str,
    /// What is wrong.
    pub wrong: &'static str,
    /// Cases that fail because of it.
    pub killed_by: &'static [&'static str],
    /// What the driver below declares, turned into what the maker says of the mutant.
    pub(super) declare: fn(Declared) -> Declared,
    pub(super) make: fn() -> Arc<dyn Twist>,
}

impl fmt::Debug for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutant").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Makes harnesses whose drivers are mutants of another maker's.
pub struct MutantMaker {
    inner: Arc<dyn HarnessMaker>,
    mutant: &'static Mutant,
    id: String,
}

impl MutantMaker {
    /// The mutant over what `inner` makes.
    #[must_use]
    pub fn new(inner: Arc<dyn HarnessMaker>, mutant: &'static Mutant) -> Self {
        let id = format!("{}+{}", inner.id(), mutant.id);
        Self { inner, mutant, id }
    }
}

#[async_trait]
impl HarnessMaker for MutantMaker {
    fn id(&self) -> &str {
        &self.id
    }

    fn declared(&self) -> Declared {
        (self.mutant.declare)(self.inner.declared())
    }

    fn configured(&self) -> Result<(), Missing> {
        self.inner.configured()
    }

    async fn make(&self, context: CaseContext) -> Result<Box<dyn Harness>, BoxError> {
        let inner = self.inner.make(context).await?;
        Ok(Box::new(MutantHarness { inner, twist: (self.mutant.make)() }))
    }
}

struct MutantHarness {
    inner: Box<dyn Harness>,
    twist: Arc<dyn Twist>,
}

#[async_trait]
impl Harness for MutantHarness {
    async fn backend(&mut self) -> Result<Backend, BoxError> {
        Ok(twisted(self.inner.backend().await?, Arc::clone(&self.twist)))
    }

    async fn inject(&mut self, fault: Fault) -> Result<Healer, BoxError> {
        self.inner.inject(fault).await
    }

    fn inspector(&self) -> Option<Arc<dyn Inspector>> {
        self.inner.inspector()
    }

    fn worker_command(&self) -> Option<Command> {
        self.inner.worker_command()
    }

    async fn teardown(self: Box<Self>) -> Result<(), BoxError> {
        self.inner.teardown().await
    }
}

impl fmt::Debug for MutantMaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MutantMaker").field("id", &self.id).finish_non_exhaustive()
    }
}
