//! How long a lock was free, or its holder dead, while a client wanted it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Rule, Seen, Violation};
use crate::chaos::event::{Event, Origin, What};
use crate::chaos::fault::{Fault, Harmed};

/// For so long after its end a fault of a server or of connections still explains that nothing happens.
const RECOVERY: Duration = Duration::from_secs(2);

/// A span with a waiter and without a holder, ended by a grant, or because no client wanted the lock any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stall {
    pub(crate) span: Duration,
    pub(crate) from: Duration,
}

#[derive(Default)]
struct Lock {
    waiting: BTreeSet<Origin>,
    /// Processes, with their lives, that are stopped: they want nothing for now.
    stopped: BTreeSet<(usize, u32)>,
    holding: BTreeSet<Origin>,
    /// Since when it has been wanted and not held.
    since: Option<Duration>,
    stalls: Vec<Stall>,
}

impl Lock {
    fn follow(&mut self, event: &Event) {
        match event.what {
            What::Asked { inside: None, .. } => drop(self.waiting.insert(event.by)),
            What::Granted { .. } if self.waiting.remove(&event.by) => drop(self.holding.insert(event.by)),
            What::Busy | What::GaveUp | What::Failed { .. } => drop(self.waiting.remove(&event.by)),
            What::Lost { .. } | What::Leaving { .. } => drop(self.holding.remove(&event.by)),
            _ => {}
        }
        self.settle(event.at);
    }

    fn suffer(&mut self, change: &Change) {
        match *change {
            Change { what: Fate::Dies, process, .. } => {
                self.waiting.retain(|origin| (origin.process, origin.life) != process);
                self.holding.retain(|origin| (origin.process, origin.life) != process);
            }
            Change { what: Fate::Stops, process, .. } => drop(self.stopped.insert(process)),
            Change { what: Fate::GoesOn, process, .. } => drop(self.stopped.remove(&process)),
        }
        self.settle(change.at);
    }

    fn settle(&mut self, now: Duration) {
        let is_wanted = self.waiting.iter().any(|origin| !self.stopped.contains(&(origin.process, origin.life)));
        match (is_wanted && self.holding.is_empty(), self.since) {
            (true, None) => self.since = Some(now),
            (false, Some(from)) => {
                self.stalls.push(Stall { span: now.saturating_sub(from), from });
                self.since = None;
            }
            _ => {}
        }
    }
}

/// What a fault of a client changes, and when.
struct Change {
    at: Duration,
    process: (usize, u32),
    what: Fate,
}

enum Fate {
    Dies,
    Stops,
    GoesOn,
}

/// The changes in their order.
fn changes(faults: &[Fault]) -> Vec<Change> {
    let mut changes = Vec::new();
    for fault in faults {
        match fault.what {
            Harmed::ClientKilled { process, life } => {
                changes.push(Change { at: fault.at, process: (process, life), what: Fate::Dies });
            }
            Harmed::ClientStopped { process, life } => {
                let process = (process, life);
                changes.push(Change { at: fault.at, process, what: Fate::Stops });
                changes.extend(fault.end.map(|at| Change { at, process, what: Fate::GoesOn }));
            }
            _ => {}
        }
    }
    changes.sort_by_key(|change| change.at);
    changes
}

/// Those of one name, whose events these are.
pub(crate) fn stalls<'a>(events: impl Iterator<Item = &'a Event>, faults: &[Fault]) -> Vec<Stall> {
    let mut lock = Lock::default();
    let mut changes = changes(faults).into_iter().peekable();
    for event in events {
        while let Some(change) = changes.next_if(|change| change.at <= event.at) {
            lock.suffer(&change);
        }
        lock.follow(event);
    }
    lock.stalls
}

impl Stall {
    /// How much of it no fault of servers and connections explains. Faults are in the order in which they began.
    fn unexplained(self, faults: &[Fault]) -> Duration {
        let to = self.from + self.span;
        let (mut clear_from, mut unexplained) = (self.from, Duration::ZERO);
        for fault in faults.iter().filter(|fault| !fault.is_of_client()) {
            let end = fault.end.map_or(Duration::MAX, |end| end + RECOVERY);
            unexplained += fault.at.min(to).saturating_sub(clear_from);
            clear_from = clear_from.max(end);
        }
        unexplained + to.saturating_sub(clear_from)
    }
}

pub(super) fn check(seen: &Seen<'_>) -> Vec<Violation> {
    let mut by_name = BTreeMap::<&str, Vec<&Event>>::new();
    for event in seen.events {
        by_name.entry(&event.name).or_default().push(event);
    }
    let mut found = Vec::new();
    for (name, events) in by_name {
        for stall in stalls(events.into_iter(), seen.faults) {
            let unexplained = stall.unexplained(seen.faults);
            if unexplained > seen.bounds.stall {
                let text = format!("for {:?}, of which {unexplained:?} without a fault of a server", stall.span);
                let span = (stall.from, stall.from + stall.span);
                found.push(Violation { rule: Rule::Stall, name: name.into(), by: Vec::new(), span, text });
            }
        }
    }
    found
}
