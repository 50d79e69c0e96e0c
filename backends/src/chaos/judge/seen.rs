//! The input of the judge, and its findings.

use std::fmt;
use std::time::Duration;

use tenure_conformance::history::Assumption;

use crate::chaos::event::{Event, Origin};
use crate::chaos::fault::Fault;

/// What may take some time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// How much later than the next grant a loss may be reported: timers and tasks are late on a busy machine. A guard's view
    /// by its clock may not be late at all, and is judged as an overlap.
    pub(crate) reported_late: Duration,
    /// How long a lock may be wanted and not held, while servers and connections work.
    pub(crate) stall: Duration,
}

/// The record of a run.
#[derive(Debug)]
pub(crate) struct Seen<'a> {
    /// Of all processes, in the order of their instants.
    pub(crate) events: &'a [Event],
    pub(crate) faults: &'a [Fault],
    pub(crate) assumption: Assumption,
    pub(crate) bounds: Bounds,
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) rule: Rule,
    /// Of which lock; "-" if it concerns all.
    pub(crate) name: String,
    /// The operations that show it.
    pub(crate) by: Vec<Origin>,
    /// From when to when the lines around it are worth reading.
    pub(crate) span: (Duration, Duration),
    pub(crate) text: String,
}

/// Which promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Rule {
    SameFence,
    FenceOrder,
    Overlap,
    HoldOrder,
    ReportedLate,
    UnexpectedError,
    Stall,
    Hang,
    NotClosed,
    Left,
    LostMessage,
    SettledTwice,
    Unknown,
    Early,
    Attempts,
    WronglyDead,
    KeyTwice,
    NameTwice,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SameFence => "two grants with one fence",
            Self::FenceOrder => "a later grant with a smaller fence",
            Self::Overlap => "two holders at once",
            Self::HoldOrder => "holds out of the order of their fences",
            Self::ReportedLate => "a loss that was reported after the next grant",
            Self::UnexpectedError => "an error that no fault explains",
            Self::Stall => "a wanted lock that no task got",
            Self::Hang => "a task that did not come to an end",
            Self::NotClosed => "a client that did not close with nothing under way",
            Self::Left => "something was left behind",
            Self::LostMessage => "a message that was lost",
            Self::SettledTwice => "a message that was settled twice",
            Self::Unknown => "a message that should not be there",
            Self::Early => "a delivery that came too early",
            Self::Attempts => "attempts that were not counted",
            Self::WronglyDead => "a wrong dead letter",
            Self::KeyTwice => "two messages of a concurrency key at once",
            Self::NameTwice => "two messages under one name",
        })
    }
}
