//! Pages of the documentation that are made from the code.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use tenure_conformance::{HarnessMaker, all_cases, properties};

use crate::defaults::{Defaults, defaults};
use crate::makers;

const NOTE: &str = "<!-- Made by `cargo xtask tidy --fix`; not to be edited. -->\n";

const ABOUT_DEFAULTS: &str = "\
This page lists the capabilities that each driver declares with its default settings. `DistributedLock::capabilities`,
`ReentrantLock::capabilities` and `DelayQueue::capabilities` return the same at run time, and their documentation explains each
word. Settings change the limit of waiters (`max_waiters`), the depth of re-entry (`max_depth`; memory, sqlite and etcd), the
longest ttl of a quorum (`max_ttl`), the clock error (`clock_error`, etcd) and the bounds of queues. The payload is in bytes, the
batch in messages.
";

const ABOUT_PROPERTIES: &str = "\
Each case proves one sentence about a driver. The last column of the tables says to which properties of the contract (P) it
belongs, and which mistakes of other lock libraries (R) it would find. [guarantees.md](guarantees.md) says under which
assumptions the properties hold. The numbers stay as they are, and have gaps.
";

const ABOUT_BACKENDS: &str = "\
## Backends of the conformance suite

The suite runs each driver on several arrangements of servers. It sets lower bounds than the defaults above, so that its cases
can reach them.
";

/// `docs/cases.md`: every case with the sentence that it proves.
#[must_use]
pub fn cases_page() -> String {
    let mut page = format!("{NOTE}\n# Cases of the conformance suite\n\n{ABOUT_PROPERTIES}");
    page.push_str(&legend('P', "property | what holds"));
    page.push_str(&legend('R', "mistake | what went wrong elsewhere"));
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

/// `docs/capabilities.md`: what the drivers promise by default, and what the suite's backends are.
#[must_use]
pub fn capabilities_page() -> String {
    let mut page = format!("{NOTE}\n# Capabilities of the drivers\n\n{ABOUT_DEFAULTS}\n## Locks\n\n");
    page.push_str(
        "| driver | exclusion | fencing | waiting | ttl | most waiters | most fences of a grant | re-entry |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for (driver, Defaults { locks, reentrant, .. }) in defaults() {
        let waiters = locks.max_waiters.map_or_else(|| String::from("no queue"), |most| most.to_string());
        let _ = writeln!(
            page,
            "| {driver} | {:?} | {:?} | {:?} | {:?} to {} in steps of {:?} | {waiters} | {} | {:?}, depth {} |",
            locks.exclusion,
            locks.fencing,
            locks.waiting,
            locks.ttl.min,
            span(locks.ttl.max),
            locks.ttl.granularity,
            locks.max_fences,
            reentrant.scope,
            reentrant.max_depth,
        );
    }
    page.push_str(
        "\n## Semaphores and read-write locks\n\n\
         | driver | exclusion | waiting | most holders of a name | most waiters |\n|---|---|---|---|---|\n",
    );
    for (driver, Defaults { permits, .. }) in defaults() {
        let _ = match permits {
            Some(permits) => {
                let waiters = permits.max_waiters.map_or_else(|| String::from("no queue"), |most| most.to_string());
                let (exclusion, waiting, holders) = (permits.exclusion, permits.waiting, permits.max_holders);
                writeln!(page, "| {driver} | {exclusion:?} | {waiting:?} | {holders} | {waiters} |")
            }
            None => writeln!(page, "| {driver} | there are none | | | |"),
        };
    }
    page.push_str(
        "\n## The list of held locks\n\n| driver | order of the names | waiters are counted | most locks of a page |\n\
         |---|---|---|---|\n",
    );
    for (driver, Defaults { census, .. }) in defaults() {
        let _ = match census {
            Some(census) => {
                writeln!(page, "| {driver} | {:?} | {:?} | {} |", census.order, census.waiters, census.max_page)
            }
            None => writeln!(page, "| {driver} | there is no list | | |"),
        };
    }
    page.push_str(
        "\n## Delay queues\n\n\
         | driver | could lose or repeat | fencing | clock error | woken | concurrency keys | parked messages | largest \
         payload | batch | most messages | most dead letters |\n|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for (driver, Defaults { queue, .. }) in defaults() {
        let Some(queue) = queue else { continue };
        let backlog = queue.backlog.map_or_else(|| String::from("no bound"), |most| most.to_string());
        let _ = writeln!(
            page,
            "| {driver} | {:?} | {:?} | {:?} | {:?} | {:?} | {:?} | {} | {} | {backlog} | {} |",
            queue.durability,
            queue.fencing,
            queue.clock_error,
            queue.wake,
            queue.keys,
            queue.parking,
            queue.payload,
            queue.batch,
            queue.dead_letters,
        );
    }
    let _ = write!(page, "\n{ABOUT_BACKENDS}\n| backend | faults that the harness makes |\n|---|---|\n");
    for maker in usual() {
        let faults: Vec<String> = maker.declared().faults.iter().map(|fault| format!("{fault:?}")).collect();
        let faults = if faults.is_empty() { String::from("none") } else { faults.join(", ") };
        let _ = writeln!(page, "| `{}` | {faults} |", maker.id());
    }
    page
}

/// Whole days, or a shorter span as it is.
fn span(span: Duration) -> String {
    match span.as_secs() / 86_400 {
        0 => format!("{span:?}"),
        days => format!("{days} days"),
    }
}

/// The table of the properties whose numbers begin with this letter.
fn legend(letter: char, columns: &str) -> String {
    let properties = properties().iter().filter(|property| property.number.starts_with(letter));
    properties.fold(format!("\n| {columns} |\n|---|---|\n"), |mut table, property| {
        let _ = writeln!(table, "| {} | {} |", property.number, property.holds);
        table
    })
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
