//! The rules of the queue mode. Each flags only certain violations, whatever the delays in between.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_core::driver::DeadCause;

use super::ended::{Letter, Remains};
use super::plan::LEASE;
use super::plan::Plan;
use super::story::{Handling, Pushing, Story, stories};
use crate::chaos::event::{Event, Origin};
use crate::chaos::judge::{Rule, Violation};

/// How far a server's clock and the one that all processes share may drift apart within a few seconds.
const DRIFT: Duration = Duration::from_millis(5);

pub(crate) fn check(events: &[Event], remains: &Remains) -> Vec<Violation> {
    let stories = stories(events);
    let mut letters = BTreeMap::<&str, Vec<&Letter>>::new();
    for letter in &remains.letters {
        letters.entry(&letter.message).or_default().push(letter);
    }
    let error = remains.clock_error + DRIFT;
    let mut found = Vec::new();
    for (message, story) in &stories {
        let mut judge = Judge { message, story, error, found: &mut found };
        if remains.is_known {
            judge.end(letters.get(message).map_or(&[], Vec::as_slice));
        }
        judge.pushes();
        judge.deliveries();
    }
    fences(&stories, &mut found);
    keys(&stories, error, &mut found);
    names(&stories, error, &mut found);
    let unknown = letters.keys().filter(|message| !stories.contains_key(*message));
    found.extend(unknown.map(|message| {
        violation(Rule::WronglyDead, message, &[], (Duration::ZERO, Duration::ZERO), "no client pushed it")
    }));
    found
}

fn violation(
    rule: Rule,
    message: &str,
    by: &[Origin],
    span: (Duration, Duration),
    text: impl Into<String>,
) -> Violation {
    Violation { rule, name: message.into(), by: by.to_vec(), span, text: text.into() }
}

struct Judge<'a> {
    message: &'a str,
    story: &'a Story,
    error: Duration,
    found: &'a mut Vec<Violation>,
}

impl Judge<'_> {
    fn flag(&mut self, rule: Rule, text: impl Into<String>) {
        let handlings = &self.story.handlings;
        let pushed = self.story.pushing.as_ref().map(|pushing| (pushing.by, pushing.at));
        let by: Vec<Origin> = pushed.iter().map(|(by, _)| *by).chain(handlings.iter().map(|one| one.by)).collect();
        let times = || pushed.iter().map(|(_, at)| *at).chain(handlings.iter().map(|one| one.got));
        let span = (times().min().unwrap_or_default(), times().max().unwrap_or_default());
        self.found.push(violation(rule, self.message, &by, span, text));
    }

    /// What became of it in the end.
    fn end(&mut self, letters: &[&Letter]) {
        let Some(Pushing { plan, .. }) = self.story.pushing else {
            return self.flag(Rule::Unknown, "no client pushed it");
        };
        let handlings = &self.story.handlings;
        let is_stored = self.story.was("stored") || !handlings.is_empty();
        if is_stored && letters.is_empty() && !handlings.iter().any(Handling::may_be_acknowledged) {
            self.flag(
                Rule::LostMessage,
                format!("it is gone after {} deliveries, and no client acknowledged it", handlings.len()),
            );
        }
        match letters {
            [] => {}
            [letter] if plan.ends_dead() => {
                let (cause, attempt) = match plan {
                    Plan::Buried => (DeadCause::Rejected, letter.attempt),
                    _ => (DeadCause::Exhausted, plan.attempts()),
                };
                if (letter.cause, letter.attempt) != (cause, attempt) {
                    self.flag(Rule::WronglyDead, format!("{letter:?} of a message whose plan is {plan}"));
                }
            }
            _ => self.flag(Rule::WronglyDead, format!("{letters:?} of a message whose plan is {plan}")),
        }
        let ends: usize = handlings.iter().map(Handling::ends).sum();
        if ends > 1 {
            self.flag(Rule::SettledTwice, format!("{ends} settlements were the last"));
        }
        if handlings.iter().rev().skip(1).any(|one| one.ends() > 0) {
            self.flag(Rule::SettledTwice, "delivered again with a greater fence after its last settlement");
        }
    }

    fn pushes(&mut self) {
        for refused in ["duplicate", "Unavailable", "InvalidArgument"] {
            if self.story.was(refused) && !self.story.handlings.is_empty() {
                self.flag(Rule::Unknown, format!("delivered, though its push returned {refused}"));
            }
        }
    }

    /// Too early, and attempts that do not count.
    fn deliveries(&mut self) {
        let Some(Pushing { at, delay, plan, .. }) = self.story.pushing else { return };
        let handlings = &self.story.handlings;
        if let Some(one) = handlings.iter().find(|one| one.got + self.error < at + delay) {
            self.flag(
                Rule::Early,
                format!("due after {delay:?}, delivered {:?} after its push", one.got.saturating_sub(at)),
            );
        }
        if let Some(one) = handlings.iter().find(|one| one.attempt == 0 || one.attempt > plan.attempts()) {
            self.flag(Rule::Attempts, format!("attempt {} of {}", one.attempt, plan.attempts()));
        }
        for pair in handlings.windows(2) {
            let [before, next] = pair else { continue };
            let counted = u32::from(!before.is("return"));
            if next.attempt < before.attempt + counted {
                self.flag(Rule::Attempts, format!("attempt {} follows attempt {}", next.attempt, before.attempt));
            }
            let soonest = match &before.settling {
                Some((settling, how, after)) if how == "nack" && next.cause == "Retried" => *settling + *after,
                _ if next.cause == "LeaseExpired" => before.asked + LEASE,
                _ => continue,
            };
            if next.got + self.error < soonest {
                let early = soonest - next.got;
                self.flag(Rule::Early, format!("delivered again {early:?} too early, since it was {}", next.cause));
            }
        }
    }
}

/// Each fence once, and greater for messages that were received later.
fn fences(stories: &BTreeMap<&str, Story>, found: &mut Vec<Violation>) {
    let mut all: Vec<(&str, &Handling)> = Vec::new();
    for (message, story) in stories {
        all.extend(story.handlings.iter().map(|handling| (*message, handling)));
    }
    all.sort_by_key(|(_, handling)| handling.fence);
    // The soonest end of a receive among those with a greater fence.
    let mut soonest: Option<(&str, &Handling)> = None;
    for (index, (message, one)) in all.iter().enumerate().rev() {
        if let Some((other, next)) = all.get(index + 1).filter(|(_, next)| next.fence == one.fence) {
            let span = (one.got.min(next.got), one.got.max(next.got));
            let text = format!("fence {} is that of {other} as well", one.fence);
            found.push(violation(Rule::SameFence, message, &[one.by, next.by], span, text));
        }
        if let Some((other, later)) = soonest.filter(|(_, later)| later.got < one.asked && later.fence > one.fence) {
            let text = format!("fence {} was asked for after fence {} of {other} had come", one.fence, later.fence);
            found.push(violation(Rule::FenceOrder, message, &[one.by, later.by], (later.got, one.got), text));
        }
        if soonest.is_none_or(|(_, later)| one.got < later.got) {
            soonest = Some((message, one));
        }
    }
}

/// Of a concurrency key no two are handled at once: each from when it was received until it was settled, as long as its
/// lease lasts for certain.
fn keys(stories: &BTreeMap<&str, Story>, error: Duration, found: &mut Vec<Violation>) {
    let mut by_key = BTreeMap::<u64, Vec<(&str, &Handling, Duration)>>::new();
    for (message, story) in stories {
        let Some(key) = story.pushing.as_ref().and_then(|pushing| pushing.key) else { continue };
        for one in &story.handlings {
            // Without a word about its end its process was killed, maybe at once.
            let Some((settling, ..)) = one.settling else { continue };
            let until = settling.min((one.asked + LEASE).saturating_sub(error));
            by_key.entry(key).or_default().push((message, one, until));
        }
    }
    for (key, mut handlings) in by_key {
        handlings.sort_by_key(|(_, one, _)| one.got);
        let mut last: Option<(&str, &Handling, Duration)> = None;
        for (message, one, until) in handlings {
            if let Some((other, before, _)) = last.filter(|(other, _, end)| one.got < *end && *other != message) {
                let text = format!("of the key {key}, while {other} was handled");
                let span = (before.got, one.got);
                found.push(violation(Rule::KeyTwice, message, &[before.by, one.by], span, text));
            }
            if last.is_none_or(|(_, _, end)| end < until) {
                last = Some((message, one, until));
            }
        }
    }
}

/// A caller's name is free again when its message was acknowledged and the window has passed, and no sooner.
fn names(stories: &BTreeMap<&str, Story>, error: Duration, found: &mut Vec<Violation>) {
    let mut by_name = BTreeMap::<u64, Vec<(&str, &Story, &Pushing, Duration)>>::new();
    for (message, story) in stories.iter().filter(|(_, story)| story.was("stored")) {
        let Some(pushing) = &story.pushing else { continue };
        if let (Some(name), Some((stored, _))) = (pushing.name, &pushing.answer) {
            by_name.entry(name).or_default().push((message, story, pushing, *stored));
        }
    }
    for (name, mut stored) in by_name {
        stored.sort_by_key(|(_, _, pushing, _)| pushing.at);
        for pair in stored.windows(2) {
            let [(other, first, before, first_stored), (message, _, next, next_stored)] = pair else { continue };
            if next.at < *first_stored {
                continue; // at the same time: which one was first is not known
            }
            let acknowledged = first.handlings.iter().filter(|one| one.may_be_acknowledged());
            let soonest = acknowledged.filter_map(|one| one.settling.as_ref()).map(|(at, ..)| *at).min();
            let free = soonest.map(|at| at + before.window);
            if free.is_none_or(|free| *next_stored + error < free) {
                let text = format!("stored under the name {name}, which {other} had");
                let span = (before.at, *next_stored);
                found.push(violation(Rule::NameTwice, message, &[before.by, next.by], span, text));
            }
        }
    }
}
