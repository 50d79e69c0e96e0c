//! The definition of a case.

use std::fmt;

use futures_util::future::LocalBoxFuture;

use super::{CaseResult, Context, Need};

/// The function that runs a case.
pub type CaseFn = for<'a> fn(&'a mut Context) -> LocalBoxFuture<'a, CaseResult>;

/// One requirement for a driver.
#[derive(Clone, Copy)]
pub struct Case {
    /// Its permanent name: `"lock/expired-holder-cannot-release"`.
    pub id: &'static str,
    /// The statement that it proves when it passes, in one sentence.
    pub proves: &'static str,
    /// The numbers of the [properties](super::properties) that it covers.
    pub properties: &'static [&'static str],
    /// The needs without which it cannot run.
    pub needs: &'static [Need],
    /// The case itself.
    pub run: CaseFn,
}

impl Case {
    /// Whether this is a refusal case: it runs where an ability is *not* declared.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        self.needs.iter().any(|need| need.is_refusal())
    }

    /// The theme: the part of the id before the slash.
    #[must_use]
    pub fn theme(&self) -> &'static str {
        self.id.split_once('/').map_or(self.id, |(theme, _)| theme)
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Writes a [`Case`]: id, sentence, properties, needs, function.
macro_rules! case {
    ($id:literal, $proves:literal, [$($property:literal),*], [$($need:expr),*], $run:path) => {
        $crate::case::Case {
            id: $id,
            proves: $proves,
            properties: &[$($property),*],
            needs: &[$($need),*],
            run: |context| Box::pin($run(context)),
        }
    };
}
pub(crate) use case;
