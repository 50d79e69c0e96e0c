//! What those have in common who handle messages.

use std::time::Duration;

use tokio::sync::watch;

use super::args::Run;
use super::children::Children;
use crate::speak::Voice;

/// What is asked of those who work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// Go on.
    Working,
    /// Finish what was begun.
    Finishing,
    /// End now.
    Ending,
}

/// What everybody who works needs.
pub(super) struct Workshop {
    pub(super) queue: Vec<u8>,
    pub(super) run: Run,
    pub(super) term_before: Duration,
    pub(super) voice: Voice,
    pub(super) children: Children,
    pub(super) phase: watch::Receiver<Phase>,
}
