//! What happened to each message, out of the logs of all processes.

use std::collections::BTreeMap;
use std::time::Duration;

use super::entries::Entry;
use super::plan::Plan;
use crate::chaos::event::{Event, Origin, What};

/// A push, as far as it is known.
#[derive(Clone, Debug)]
pub(super) struct Pushing {
    pub(super) by: Origin,
    pub(super) at: Duration,
    pub(super) plan: Plan,
    pub(super) delay: Duration,
    pub(super) key: Option<u64>,
    pub(super) name: Option<u64>,
    pub(super) window: Duration,
    /// The answer, and its time.
    pub(super) answer: Option<(Duration, String)>,
}

/// One delivery.
#[derive(Clone, Debug)]
pub(super) struct Handling {
    pub(super) by: Origin,
    pub(super) asked: Duration,
    pub(super) got: Duration,
    pub(super) fence: u64,
    pub(super) attempt: u32,
    pub(super) cause: String,
    /// How it was to be settled, from when on, and how much later it may come again.
    pub(super) settling: Option<(Duration, String, Duration)>,
    /// The answers, in order.
    pub(super) settled: Vec<String>,
}

/// All of one message.
#[derive(Clone, Debug, Default)]
pub(super) struct Story {
    pub(super) pushing: Option<Pushing>,
    /// In the order of their fences.
    pub(super) handlings: Vec<Handling>,
}

impl Handling {
    pub(super) fn is(&self, how: &str) -> bool {
        self.settling.as_ref().is_some_and(|(_, settling, _)| settling == how)
    }

    /// How often it was answered that this delivery was the last one.
    pub(super) fn ends(&self) -> usize {
        let last = |answer: &&String| *answer == "Dead" || (*answer == "Done" && self.is("ack"));
        self.settled.iter().filter(last).count()
    }

    /// Whether an acknowledgement left that may have been carried out.
    pub(super) fn may_be_acknowledged(&self) -> bool {
        self.is("ack") && !self.settled.iter().any(|answer| answer == "Stale")
    }
}

impl Story {
    pub(super) fn was(&self, answer: &str) -> bool {
        let answered = self.pushing.as_ref().and_then(|pushing| pushing.answer.as_ref());
        answered.is_some_and(|(_, answered)| answered == answer)
    }
}

/// By message.
pub(super) fn stories(events: &[Event]) -> BTreeMap<&str, Story> {
    let mut stories = BTreeMap::<&str, Story>::new();
    for Event { at, by, name, what } in events {
        let What::Job(entry) = what else { continue };
        let story = stories.entry(name).or_default();
        match entry {
            Entry::Pushing { plan, delay, key, name, window } => {
                let (plan, delay, key, name, window) = (*plan, *delay, *key, *name, *window);
                story.pushing = Some(Pushing { by: *by, at: *at, plan, delay, key, name, window, answer: None });
            }
            Entry::Pushed { answer } => {
                if let Some(pushing) = &mut story.pushing {
                    pushing.answer = Some((*at, answer.clone()));
                }
            }
            Entry::Got { asked, fence, attempt, cause } => story.handlings.push(Handling {
                by: *by,
                asked: *asked,
                got: *at,
                fence: *fence,
                attempt: *attempt,
                cause: cause.clone(),
                settling: None,
                settled: Vec::new(),
            }),
            Entry::Settling { fence, how, after } => {
                if let Some(handling) = story.handlings.iter_mut().find(|handling| handling.fence == *fence) {
                    handling.settling = Some((*at, how.clone(), *after));
                }
            }
            Entry::Settled { fence, answer } => {
                if let Some(handling) = story.handlings.iter_mut().find(|handling| handling.fence == *fence) {
                    handling.settled.push(answer.clone());
                }
            }
        }
    }
    stories.values_mut().for_each(|story| story.handlings.sort_by_key(|handling| handling.fence));
    stories
}

/// Figures of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) pushed: usize,
    pub(crate) duplicates: usize,
    pub(crate) unanswered: usize,
    pub(crate) deliveries: usize,
    pub(crate) acknowledged: usize,
    pub(crate) dead: usize,
    pub(crate) stale: usize,
    /// Deliveries because a lease had ended.
    pub(crate) expired: usize,
    /// From when a message was due at the latest to its first delivery.
    pub(crate) latest: Duration,
}

pub(crate) fn tally(events: &[Event]) -> Tally {
    let mut tally = Tally::default();
    for story in stories(events).values() {
        match story.pushing.as_ref().and_then(|pushing| pushing.answer.as_ref()) {
            Some((_, answer)) if answer == "stored" => tally.pushed += 1,
            Some((_, answer)) if answer == "duplicate" => tally.duplicates += 1,
            _ => tally.unanswered += 1,
        }
        for handling in &story.handlings {
            tally.deliveries += 1;
            tally.expired += usize::from(handling.cause == "LeaseExpired");
            for answer in &handling.settled {
                tally.acknowledged += usize::from(answer == "Done" && handling.is("ack"));
                tally.dead += usize::from(answer == "Dead");
                tally.stale += usize::from(answer == "Stale");
            }
        }
        let first = story.handlings.iter().map(|handling| handling.got).min();
        if let (Some(first), Some(Pushing { delay, answer: Some((stored, _)), .. })) = (first, &story.pushing) {
            tally.latest = tally.latest.max(first.saturating_sub(*stored + *delay));
        }
    }
    tally
}
