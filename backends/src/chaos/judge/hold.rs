//! Holds, put together from the events of their operations.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::chaos::event::{Event, Origin, What};

/// One hold, as its task saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) by: Origin,
    pub(crate) name: String,
    pub(crate) fence: u64,
    /// Before it was asked for.
    pub(crate) asked: Duration,
    /// After the grant returned.
    pub(crate) returned: Duration,
    /// Until when, as far as is certain, the guard said or would have said that the lock is held.
    pub(crate) believed: Duration,
    /// When a loss was reported.
    pub(crate) reported: Option<Duration>,
    /// Whether the guard held anything when it was returned.
    pub(crate) is_alive: bool,
    /// What the guard last said of its end.
    until: Duration,
    /// The operation whose hold was entered once more.
    inside: Option<u64>,
}

impl Hold {
    fn follow(&mut self, event: &Event) {
        match event.what {
            What::Held { until } => (self.believed, self.until) = (event.at, until),
            // By its own clock it ended no earlier than it last said; any other loss may have come right after that.
            What::Lost { expired } => {
                self.reported = Some(event.at);
                if expired {
                    self.believed = self.believed.max(self.until.min(event.at));
                }
            }
            What::Leaving { held: true, .. } => self.believed = event.at,
            _ => {}
        }
    }
}

/// All holds, in the order in which they returned. A second entry is no hold of its own: what it saw counts for the
/// first one, which it shares the lease and the fence with.
pub(crate) fn holds(events: &[Event]) -> Vec<Hold> {
    let (mut asked, mut holds) = (BTreeMap::new(), BTreeMap::<Origin, Hold>::new());
    for event in events {
        match event.what {
            What::Asked { inside, .. } => {
                asked.insert(event.by, (event.at, inside));
            }
            What::Granted { fence, until } => {
                let (asked, inside) = asked.get(&event.by).copied().unwrap_or((event.at, None));
                let hold = Hold {
                    by: event.by,
                    name: event.name.clone(),
                    fence,
                    asked,
                    returned: event.at,
                    believed: event.at,
                    reported: None,
                    is_alive: until > event.at,
                    until,
                    inside,
                };
                holds.insert(event.by, hold);
            }
            _ => {
                if let Some(hold) = holds.get_mut(&event.by) {
                    hold.follow(event);
                }
            }
        }
    }
    let mut own = merged(holds);
    own.sort_by_key(|hold| hold.returned);
    own
}

fn merged(mut holds: BTreeMap<Origin, Hold>) -> Vec<Hold> {
    let entries: Vec<Origin> = holds.values().filter(|hold| hold.inside.is_some()).map(|hold| hold.by).collect();
    for entry in entries {
        let Some(inner) = holds.remove(&entry) else { continue };
        let outer = holds.get_mut(&Origin { op: inner.inside.unwrap_or_default(), ..entry });
        match outer.filter(|outer| outer.fence == inner.fence) {
            Some(outer) => outer.believed = outer.believed.max(inner.believed),
            None => drop(holds.insert(entry, inner)), // the first was lost, and this is a hold of its own
        }
    }
    holds.into_values().collect()
}
