//! What this client's waiters for one name know of their queue.

use std::collections::{HashMap, VecDeque};

use tenure_core::OwnerToken;
use tenure_core::driver::WakeHandle;
use tokio::time::Instant;

use crate::answer::Seen;
use crate::keys::Spot;

/// How many events of a name are remembered while answers are on their way.
pub(crate) const MOST_EVENTS: usize = 1024;

#[derive(Debug)]
pub(crate) struct Name {
    /// Waiters of this client that listen.
    pub(crate) local: HashMap<OwnerToken, Local>,
    pub(crate) held: bool,
    /// The revision that `held` is of.
    pub(crate) held_at: i64,
    /// When the lock was last taken or freed, or a place went.
    pub(crate) stirred: Instant,
    /// When a waiter of this client was last woken to see why nothing becomes of the name.
    pub(crate) nudged: Instant,
    /// Requests on their way.
    pub(crate) asking: usize,
    /// The places that came and went while answers are on their way.
    pub(crate) recent: VecDeque<Event>,
    /// What came and went up to this revision may be missing.
    pub(crate) forgotten: i64,
}

#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) handle: WakeHandle,
    pub(crate) place: Option<Known>,
}

/// A place in a queue, and what is before it.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) spot: Spot,
    pub(crate) ahead: u32,
    /// The revision of the answer that told of it: earlier events are counted in it.
    pub(crate) read_at: i64,
}

/// A place came or went.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) revision: i64,
    pub(crate) spot: Spot,
    pub(crate) came: bool,
}

impl Default for Name {
    /// Nothing is known; a lock counts as held until it is read.
    fn default() -> Self {
        let now = Instant::now();
        Self {
            local: HashMap::new(),
            held: true,
            held_at: 0,
            stirred: now,
            nudged: now,
            asking: 0,
            recent: VecDeque::new(),
            forgotten: 0,
        }
    }
}

impl Local {
    pub(crate) fn is_first(&self) -> bool {
        self.place.as_ref().is_some_and(|place| place.ahead == 0)
    }
}

impl Known {
    /// Counts an event that the answer did not know of.
    fn count(&mut self, event: &Event) {
        if event.revision <= self.read_at || event.spot >= self.spot {
            return;
        }
        self.ahead = if event.came { self.ahead.saturating_add(1) } else { self.ahead.saturating_sub(1) };
    }
}

impl Name {
    pub(crate) fn set_held(&mut self, held: bool, revision: i64) {
        (self.held, self.held_at, self.stirred) = (held, revision, Instant::now());
    }

    /// Where the asker is, and what has changed since its request was answered.
    pub(crate) fn learn(&mut self, asker: &OwnerToken, seen: &Seen) {
        let Some(local) = self.local.get_mut(asker) else { return };
        let Some(place) = &seen.place else { return local.place = None };
        let mut known = Known { spot: place.spot, ahead: seen.ahead, read_at: seen.revision };
        self.recent.iter().for_each(|event| known.count(event));
        let gone = |event: &Event| !event.came && event.spot == known.spot && event.revision > seen.revision;
        if seen.revision < self.forgotten || self.recent.iter().any(gone) {
            local.handle.wake(); // to ask again
            return;
        }
        let first = known.ahead == 0 && !self.held;
        local.place = Some(known);
        if first && !seen.is_next(asker) {
            local.handle.wake();
        }
    }

    pub(crate) fn happened(&mut self, event: Event) {
        if self.asking > 0 {
            if self.recent.len() == MOST_EVENTS {
                self.forgotten = self.recent.pop_front().map_or(0, |oldest| oldest.revision);
            }
            self.recent.push_back(event);
        }
        if !event.came {
            self.stirred = Instant::now();
        }
        for local in self.local.values_mut() {
            let Some(place) = &mut local.place else { continue };
            if !event.came && event.spot == place.spot {
                local.place = None;
                local.handle.wake(); // it lapsed, if its token still waits
                continue;
            }
            let before = place.ahead;
            place.count(&event);
            if before > 0 && place.ahead == 0 && !self.held {
                local.handle.wake();
            }
        }
    }

    /// Wakes the first in line if the lock is free and it is ours.
    pub(crate) fn wake_next(&self) {
        if !self.held {
            self.local.values().filter(|local| local.is_first()).for_each(|local| local.handle.wake());
        }
    }
}
