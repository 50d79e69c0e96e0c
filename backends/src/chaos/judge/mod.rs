//! Judges the logs of the client processes. Every rule flags only certain violations; `docs/chaos.md` has the reasons.

mod end;
mod hold;
mod rules;
mod seen;
mod stall;
#[cfg(test)]
mod tests;

use super::jobs::{self, Remains};
pub(crate) use end::Ending;
pub(crate) use hold::{Hold, holds};
pub(crate) use seen::{Bounds, Rule, Seen, Violation};
pub(crate) use stall::{Stall, stalls};

/// All violations of a run, by their instants; `remains` are the messages found in the queue, if there was one.
pub(crate) fn judge(seen: &Seen<'_>, ending: &Ending, remains: Option<&Remains>) -> Vec<Violation> {
    let mut found = rules::check(seen);
    match remains {
        Some(remains) => found.extend(jobs::check(seen.events, remains)),
        None => found.extend(stall::check(seen)),
    }
    found.extend(end::check(seen, ending));
    found.sort_by_key(|violation| violation.span);
    found
}
