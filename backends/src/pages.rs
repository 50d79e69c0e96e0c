//! Pages of the documentation that are made from the code.

use std::fmt::Write as _;
use std::sync::Arc;

use tenure_conformance::{HarnessMaker, all_cases};

use crate::makers;

const NOTE: &str = "<!-- Made by `cargo xtask tidy --fix`; not to be edited. -->\n";

/// `docs/cases.md`: every case with the sentence that it proves.
#[must_use]
pub fn cases_page() -> String {
    let mut page = format!("{NOTE}\n# Cases of the conformance suite\n");
    let mut cases: Vec<_> = all_cases().collect();
    cases.sort_by_key(|case| case.id);
    let mut theme = "";
    for case in &cases {
        let (this, _) = case.id.split_once('/').unwrap_or((case.id, ""));
        if this != theme {
            theme = this;
            let _ = write!(page, "\n## {theme}\n\n| case | proves | properties |\n|---|---|---|\n");
        }
        let _ = writeln!(page, "| `{}` | {} | {} |", case.id, case.proves, case.properties.join(" "));
    }
    let _ = write!(page, "\n{} cases.\n", cases.len());
    page
}

/// `docs/capabilities.md`: what each backend declares.
#[must_use]
pub fn capabilities_page() -> String {
    let mut page = format!("{NOTE}\n# Capabilities of the backends\n\n");
    page.push_str(
        "| backend | exclusion | fencing | waiting | ttl | most waiters | most fences of a grant | re-entry | faults that the harness makes |\n",
    );
    page.push_str("|---|---|---|---|---|---|---|---|---|\n");
    for maker in usual() {
        let declared = maker.declared();
        let locks = declared.locks;
        let waiters = locks.max_waiters.map_or_else(|| String::from("no queue"), |most| most.to_string());
        let reentrant = declared.reentrant.map_or_else(
            || String::from("none"),
            |reentrant| format!("{:?}, depth {}", reentrant.scope, reentrant.max_depth),
        );
        let faults: Vec<String> = declared.faults.iter().map(|fault| format!("{fault:?}")).collect();
        let _ = writeln!(
            page,
            "| `{}` | {:?} | {:?} | {:?} | {:?} to {:?} in steps of {:?} | {waiters} | {} | {reentrant} | {} |",
            maker.id(),
            locks.exclusion,
            locks.fencing,
            locks.waiting,
            locks.ttl.min,
            locks.ttl.max,
            locks.ttl.granularity,
            locks.max_fences,
            faults.join(", "),
        );
    }
    page.push_str("\n## Delay queues\n\n");
    page.push_str(
        "| backend | could lose or repeat | fencing | clock error | woken | concurrency keys | parked messages | largest payload | batch |\n",
    );
    page.push_str("|---|---|---|---|---|---|---|---|---|\n");
    for maker in usual() {
        let Some(queue) = maker.declared().queue else { continue };
        let _ = writeln!(
            page,
            "| `{}` | {:?} | {:?} | {:?} | {:?} | {:?} | {:?} | {} | {} |",
            maker.id(),
            queue.durability,
            queue.fencing,
            queue.clock_error,
            queue.wake,
            queue.keys,
            queue.parking,
            queue.payload,
            queue.batch,
        );
    }
    page
}

/// All backends but those on servers of other versions, which declare the same.
fn usual() -> impl Iterator<Item = Arc<dyn HarnessMaker>> {
    makers().into_iter().filter(|maker| !maker.id().contains('@'))
}

/// The ids of all cases, one a line: what `docs/guarantees.md` may refer to.
#[must_use]
pub fn ids() -> String {
    all_cases().fold(String::new(), |mut all, case| {
        let _ = writeln!(all, "{}", case.id);
        all
    })
}
