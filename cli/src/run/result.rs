//! What came of a run, for programs.

use std::time::Duration;

use serde::Serialize;

use crate::child::ChildEnd;
use crate::name::NameView;

/// One object, printed at the end.
#[derive(Debug, Serialize)]
pub(super) struct RunResult {
    #[serde(flatten)]
    pub(super) name: NameView,
    pub(super) outcome: Outcome,
    /// What this program ends with.
    pub(super) exit: u8,
    pub(super) fence: Option<u64>,
    pub(super) waited_ms: u128,
    pub(super) held_ms: Option<u128>,
    /// The place in line that a wait had reached, from one, when it ended without the lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) place: Option<u64>,
    /// How the program ended; none where nothing was run.
    pub(super) child: Option<Child>,
    /// Why nothing was run, or what went wrong, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
}

/// In a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Outcome {
    /// The program ran, under the lock all the time.
    Ran,
    /// Another client had the lock: nothing was run.
    Busy,
    /// A signal came before the program began: nothing was run.
    Interrupted,
    /// The lock was lost while the program ran, or before it began.
    Lost,
    /// The program is not there, or cannot be run.
    NotRunnable,
    /// The backend, or its URL: nothing was run.
    Failed,
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Child {
    Exit(i32),
    Signal(i32),
}

impl From<ChildEnd> for Child {
    fn from(end: ChildEnd) -> Self {
        match end {
            ChildEnd::Exited(code) => Self::Exit(code),
            ChildEnd::Signaled(signal) => Self::Signal(signal),
        }
    }
}

impl RunResult {
    /// Nothing was run.
    pub(super) fn nothing(name: &[u8], outcome: Outcome, exit: u8, waited: Duration, reason: Option<String>) -> Self {
        let name = NameView::of(name);
        let (waited_ms, fence, held_ms, place, child) = (waited.as_millis(), None, None, None, None);
        Self { name, outcome, exit, fence, waited_ms, held_ms, place, child, reason }
    }
}
