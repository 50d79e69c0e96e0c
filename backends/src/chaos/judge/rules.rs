//! The rules about the events of the run.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_conformance::history::{self, Assumption, Grant};

use super::{Hold, Rule, Seen, Violation, holds};
use crate::chaos::event::What;

/// What faults explain.
const EXPLAINED: &[&str] = &["TimedOut", "Lost", "NotHeld", "Unavailable", "Indeterminate"];

pub(super) fn check(seen: &Seen<'_>) -> Vec<Violation> {
    let mut by_name = BTreeMap::<String, Vec<Hold>>::new();
    for hold in holds(seen.events) {
        by_name.entry(hold.name.clone()).or_default().push(hold);
    }
    let mut found = unexpected_errors(seen);
    for holds in by_name.values() {
        found.extend(histories(holds, seen.assumption));
        if seen.assumption == Assumption::Timed {
            found.extend(reported_late(holds, seen));
        }
    }
    found
}

/// Fences, and holds that overlap. `history` knows these rules; here its grants are the certain parts of the holds.
fn histories(holds: &[Hold], assumption: Assumption) -> Vec<Violation> {
    let grant = |(number, hold): (usize, &Hold)| Grant {
        client: number,
        fence: hold.fence,
        asked_at: hold.asked,
        granted_at: hold.returned,
        valid_until: hold.believed,
        ended_at: hold.believed,
    };
    let all: Vec<Grant> = holds.iter().enumerate().map(grant).collect();
    // A process that was stopped between the grant and its return may get a guard whose lease has ended. It holds nothing.
    let alive: Vec<Grant> = all.iter().copied().filter(|grant| holds[grant.client].is_alive).collect();
    let fences = history::check(&all, None, Assumption::Asynchronous);
    let windows = if assumption == Assumption::Timed { history::check(&alive, None, assumption) } else { Vec::new() };
    let fences = fences.into_iter().filter_map(|violation| match violation {
        history::Violation::SameFence(a, b) => Some((Rule::SameFence, a, b)),
        history::Violation::FenceInversion(a, b) => Some((Rule::FenceOrder, a, b)),
        _ => None,
    });
    let windows = windows.into_iter().filter_map(|violation| match violation {
        history::Violation::Overlap(a, b) => Some((Rule::Overlap, a, b)),
        history::Violation::HoldOrder(a, b) => Some((Rule::HoldOrder, a, b)),
        _ => None,
    });
    fences.chain(windows).map(|(rule, a, b)| pair(rule, &holds[a.client], &holds[b.client])).collect()
}

fn pair(rule: Rule, a: &Hold, b: &Hold) -> Violation {
    let text = match rule {
        Rule::Overlap => format!(
            "fence {} was granted while the holder of fence {} believed to hold the lock, for {:?} more at least",
            b.fence,
            a.fence,
            a.believed.saturating_sub(b.returned)
        ),
        Rule::ReportedLate => {
            let late = a.reported.unwrap_or_default().saturating_sub(b.returned);
            format!("the holder of fence {} learned of its loss {late:?} after fence {} was granted", a.fence, b.fence)
        }
        _ => format!("fence {}, and then fence {}", a.fence, b.fence),
    };
    let span = (a.returned.min(b.returned), a.believed.max(b.returned).max(a.reported.unwrap_or_default()));
    Violation { rule, name: a.name.clone(), by: vec![a.by, b.by], span, text }
}

/// The next grant returned, and the loss was reported only later, though the process was not stopped.
fn reported_late(holds: &[Hold], seen: &Seen<'_>) -> Vec<Violation> {
    let late = |a: &Hold| {
        let reported = a.reported?;
        let next = holds.iter().filter(|b| b.fence > a.fence).min_by_key(|b| b.returned)?;
        let excused = seen.faults.iter().any(|fault| fault.stops(a.by, a.believed, reported));
        (next.returned + seen.bounds.reported_late < reported && !excused).then(|| pair(Rule::ReportedLate, a, next))
    };
    holds.iter().filter_map(late).collect()
}

fn unexpected_errors(seen: &Seen<'_>) -> Vec<Violation> {
    let unexpected = seen.events.iter().filter_map(|event| match &event.what {
        What::Failed { kind, text } if !EXPLAINED.contains(&kind.as_str()) => Some((event, text)),
        _ => None,
    });
    let around = Duration::from_millis(500);
    unexpected
        .map(|(event, text)| Violation {
            rule: Rule::UnexpectedError,
            name: event.name.clone(),
            by: vec![event.by],
            span: (event.at.saturating_sub(around), event.at),
            text: text.clone(),
        })
        .collect()
}
