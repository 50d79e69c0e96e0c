//! A maker whose drivers have one defect.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use tenure_core::driver::Backend;

use super::harness::twisted_harness;
use super::reduced::ReducedMaker;
use super::twist::{Twist, twisted};
use crate::harness::{BoxError, CaseContext, Declared, Harness, HarnessMaker, Missing};

/// A driver with one defect.
pub struct Mutant {
    /// Its name: `"release/anyones-lock"`.
    pub id: &'static str,
    /// The defect.
    pub wrong: &'static str,
    /// Cases that fail because of it.
    pub killed_by: &'static [&'static str],
    /// The driver that it wraps.
    pub base: Base,
    pub(super) make: fn() -> Arc<dyn Twist>,
}

impl fmt::Debug for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutant").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Mutant {
    /// An honest backend, broken in this way.
    #[must_use]
    pub fn over(&self, backend: Backend) -> Backend {
        twisted(backend, (self.make)())
    }
}

/// Writes a [`Mutant`]: its base, unless it is [`Base::Full`], id, its defect, how it is made, which cases kill it.
macro_rules! mutant {
    ($base:ident $id:literal, $wrong:literal, $make:expr, [$($case:literal),* $(,)?]) => {
        $crate::mutants::maker::Mutant {
            id: $id,
            wrong: $wrong,
            killed_by: &[$($case),*],
            base: $crate::mutants::Base::$base,
            make: || std::sync::Arc::new($make),
        }
    };
    ($($row:tt)*) => { mutant!(Full $($row)*) };
}
pub(super) use mutant;

/// The driver that a mutant wraps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Base {
    /// The honest driver, unchanged.
    Full,
    /// The honest driver, declared with as few abilities as a driver may have.
    Reduced,
    /// The honest driver, unchanged, with as few abilities declared as possible.
    Undeclared,
    /// The honest driver, unchanged, declared without operations on stored messages.
    AdminUndeclared,
}

/// Makes harnesses whose drivers are mutants of another maker's.
pub struct MutantMaker {
    inner: Arc<dyn HarnessMaker>,
    declared: Declared,
    mutant: &'static Mutant,
    id: String,
}

impl MutantMaker {
    /// The mutant over what `inner` makes; `inner` is honest and declares everything.
    #[must_use]
    pub fn new(inner: Arc<dyn HarnessMaker>, mutant: &'static Mutant) -> Self {
        let reduced: Arc<dyn HarnessMaker> = Arc::new(ReducedMaker::new(Arc::clone(&inner)));
        let (inner, declared) = match mutant.base {
            Base::Full => (Arc::clone(&inner), inner.declared()),
            Base::Reduced => (Arc::clone(&reduced), reduced.declared()),
            Base::Undeclared => (inner, reduced.declared()),
            Base::AdminUndeclared => (Arc::clone(&inner), inner.declared().without_queue_admin()),
        };
        let id = format!("{}+{}", inner.id(), mutant.id);
        Self { inner, declared, mutant, id }
    }
}

#[async_trait]
impl HarnessMaker for MutantMaker {
    fn id(&self) -> &str {
        &self.id
    }

    fn declared(&self) -> Declared {
        self.declared.clone()
    }

    fn configured(&self) -> Result<(), Missing> {
        self.inner.configured()
    }

    async fn make(&self, context: CaseContext) -> Result<Box<dyn Harness>, BoxError> {
        let inner = self.inner.make(context).await?;
        Ok(twisted_harness(inner, (self.mutant.make)(), Some(self.mutant.id)))
    }
}

impl fmt::Debug for MutantMaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MutantMaker").field("id", &self.id).finish_non_exhaustive()
    }
}
