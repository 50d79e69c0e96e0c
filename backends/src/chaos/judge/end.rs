//! The rules about the end: after the last fault each client gets the lock again, and nothing is left in the backend.

use std::time::Duration;

use super::{Rule, Seen, Violation};
use crate::chaos::event::{Event, Origin, What};

/// How a run came to its end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ending {
    /// The processes that lived when the faults ended, and the number of tasks of each.
    pub(crate) alive: Vec<(usize, u32)>,
    pub(crate) tasks: u32,
    /// The end of the faults, and the time of the last look.
    pub(crate) span: (Duration, Duration),
    /// What the servers still had.
    pub(crate) left: Vec<String>,
}

pub(super) fn check(seen: &Seen<'_>, ending: &Ending) -> Vec<Violation> {
    let mut found = Vec::new();
    for &(process, life) in &ending.alive {
        let of_process = |event: &&Event| (event.by.process, event.by.life) == (process, life);
        let events: Vec<&Event> = seen.events.iter().filter(of_process).collect();
        for task in 1..=ending.tasks {
            let mut own = events.iter().filter(|event| event.by.task == task);
            if !own.clone().any(|event| event.what == What::Finished) {
                found.push(hang(Origin { process, life, task, op: 0 }, own.next_back().copied(), ending));
            }
        }
        let closed = events.iter().find(|event| matches!(event.what, What::Closed { .. }));
        let is_clean = |event: &&&Event| {
            let What::Closed { outcome, holds, waiters, cleanups } = &event.what else { return false };
            outcome == "ok" && (*holds, *waiters, *cleanups) == (0, 0, 0)
        };
        if !closed.as_ref().is_some_and(is_clean) {
            let text = closed.map_or_else(|| "it was not closed in time".into(), |event| event.to_string());
            let by = vec![Origin { process, life, task: 0, op: 0 }];
            found.push(Violation { rule: Rule::NotClosed, name: "-".into(), by, span: ending.span, text });
        }
    }
    found.extend(ending.left.iter().map(|what| Violation {
        rule: Rule::Left,
        name: "-".into(),
        by: Vec::new(),
        span: ending.span,
        text: what.clone(),
    }));
    found
}

/// The last that is known of a task that did not end.
fn hang(by: Origin, last: Option<&Event>, ending: &Ending) -> Violation {
    let word = |last: &Event| last.to_string().split(' ').skip(6).collect::<Vec<_>>().join(" ");
    let text = last.map_or_else(|| "it never began".into(), |last| format!("its last word: {}", word(last)));
    let (name, by) = last.map_or(("-".into(), by), |last| (last.name.clone(), last.by));
    Violation { rule: Rule::Hang, name, by: vec![by], span: ending.span, text }
}
