//! A maker whose drivers have something wrong.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use tenure_core::driver::Backend;

use super::harness::twisted_harness;
use super::reduced::ReducedMaker;
use super::twist::{Twist, twisted};
use crate::harness::{BoxError, CaseContext, Declared, Harness, HarnessMaker, Missing};

/// A driver with one thing wrong.
pub struct Mutant {
    /// Its name: `"release/anyones-lock"`.
    pub id: &'static str,
    /// What is wrong.
    pub wrong: &'static str,
    /// Cases that fail because of it.
    pub killed_by: &'static [&'static str],
    /// What it is a wrapper over.
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

/// Writes a [`Mutant`]: id, what is wrong, how it is made, which cases kill it.
macro_rules! mutant {
    ($id:literal, $wrong:literal, $make:expr, [$($case:literal),* $(,)?]) => {
        $crate::mutants::maker::Mutant {
            id: $id,
            wrong: $wrong,
            killed_by: &[$($case),*],
            base: $crate::mutants::Base::Full,
            make: $make,
        }
    };
    (reduced $id:literal, $wrong:literal, $make:expr, [$($case:literal),* $(,)?]) => {
        $crate::mutants::maker::Mutant {
            base: $crate::mutants::Base::Reduced,
            ..mutant!($id, $wrong, $make, [$($case),*])
        }
    };
}
pub(super) use mutant;

/// What a mutant is a wrapper over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Base {
    /// The honest driver as it is.
    Full,
    /// The honest driver, declared to be able to do as little as a driver may.
    Reduced,
}

/// Makes harnesses whose drivers are mutants of another maker's.
pub struct MutantMaker {
    inner: Arc<dyn HarnessMaker>,
    mutant: &'static Mutant,
    id: String,
}

impl MutantMaker {
    /// The mutant over what `inner` makes; `inner` is honest and declares everything.
    #[must_use]
    pub fn new(inner: Arc<dyn HarnessMaker>, mutant: &'static Mutant) -> Self {
        let inner = match mutant.base {
            Base::Full => inner,
            Base::Reduced => Arc::new(ReducedMaker::new(inner)),
        };
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
        self.inner.declared()
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
