//! What a run came to, for people.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::event::{Event, Origin, What};
use super::fault::{Data, Fault};
use super::jobs::tally;
use super::judge::{Ending, Stall, Violation, stalls};
use super::options::{Options, Subject};

/// The most lines around a violation, the most violations that are shown with theirs, and the most that are named.
const LINES: usize = 60;
const SHOWN: usize = 5;
const NAMED: usize = 30;
/// How much before and after it.
const AROUND: Duration = Duration::from_millis(300);

/// A run and what the judge found.
#[derive(Debug)]
pub struct Report {
    pub(super) options: Options,
    pub(super) began: Duration,
    pub(super) events: Vec<Event>,
    pub(super) faults: Vec<Fault>,
    pub(super) ending: Ending,
    pub(super) counters: String,
    pub(super) violations: Vec<Violation>,
}

/// A row of the table.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    asked: usize,
    grants: usize,
    timed_out: usize,
    failed: usize,
    lost: usize,
    stall: Stall,
}

impl Row {
    fn of(events: &[&Event], faults: &[Fault]) -> Self {
        let count = |what: fn(&What) -> bool| events.iter().filter(|event| what(&event.what)).count();
        let timed_out = count(|what| matches!(what, What::Failed { kind, .. } if kind == "TimedOut"));
        Self {
            asked: count(|what| matches!(what, What::Asked { .. })),
            grants: count(|what| matches!(what, What::Granted { .. })),
            timed_out,
            failed: count(|what| matches!(what, What::Failed { .. })) - timed_out,
            lost: count(|what| matches!(what, What::Lost { .. })),
            stall: stalls(events.iter().copied(), faults).into_iter().max().unwrap_or_default(),
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            asked: self.asked + other.asked,
            grants: self.grants + other.grants,
            timed_out: self.timed_out + other.timed_out,
            failed: self.failed + other.failed,
            lost: self.lost + other.lost,
            stall: self.stall.max(other.stall),
        }
    }
}

impl Report {
    /// Whether the judge found nothing.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty()
    }

    /// The rules that are broken, in words, each once.
    #[must_use]
    pub fn broken_rules(&self) -> Vec<String> {
        let rules: std::collections::BTreeSet<_> = self.violations.iter().map(|violation| violation.rule).collect();
        rules.iter().map(ToString::to_string).collect()
    }

    /// How many faults of clients and of servers there were.
    #[must_use]
    pub fn faults(&self) -> (usize, usize) {
        let of = |word: &str| self.faults.iter().filter(|fault| fault.to_string().starts_with(word)).count();
        (of("client"), of("server"))
    }

    /// How many grants there were.
    #[must_use]
    pub fn grants(&self) -> usize {
        self.total().grants
    }

    /// How many deliveries of messages there were.
    #[must_use]
    pub fn deliveries(&self) -> usize {
        tally(&self.events).deliveries
    }

    /// How many holds were lost.
    #[must_use]
    pub fn lost(&self) -> usize {
        self.total().lost
    }

    /// What a quorum counted: grants, and those that took one round.
    #[must_use]
    pub fn elections(&self) -> (u64, u64) {
        self.events.iter().fold((0, 0), |(all, one), event| match event.what {
            What::Elections { won, in_one_round } => (all + won, one + in_one_round),
            _ => (all, one),
        })
    }

    fn rows(&self) -> BTreeMap<String, Row> {
        let mut by_name = BTreeMap::<&str, Vec<&Event>>::new();
        for event in self.events.iter().filter(|event| event.name != "-") {
            by_name.entry(&event.name).or_default().push(event);
        }
        let mut rows = BTreeMap::new();
        for (name, events) in by_name {
            let title = if name.starts_with("steady") { "steady-*" } else { name };
            let row: &mut Row = rows.entry(title.to_owned()).or_default();
            *row = row.plus(Row::of(&events, &self.faults));
        }
        rows
    }

    fn total(&self) -> Row {
        self.rows().into_values().fold(Row::default(), Row::plus)
    }

    /// The run in one line.
    #[must_use]
    pub fn line(&self) -> String {
        let Options { profile, seed, span, subject, .. } = &self.options;
        let (clients, servers) = self.faults();
        let (subject, figures) = match subject {
            Subject::Locks => ("", self.figures_of_locks()),
            Subject::Guards => (" guards", self.figures_of_locks()),
            Subject::Queue => (" queue", self.figures_of_queue()),
        };
        format!(
            "chaos {:<15}{subject} seed {seed}, {} s: {figures}; {clients} faults of clients, {servers} of servers, {} of \
             connections, settled in {:.1} s, {} violations",
            profile.id,
            span.as_secs(),
            self.faults.len() - clients - servers,
            (self.ending.span.1.saturating_sub(self.ending.span.0)).as_secs_f64(),
            self.violations.len(),
        )
    }

    fn figures_of_locks(&self) -> String {
        let Row { grants, lost, stall, .. } = self.total();
        format!("{grants} grants, {lost} lost, longest stall {:.1} s", stall.span.as_secs_f64())
    }

    fn figures_of_queue(&self) -> String {
        let tally = tally(&self.events);
        format!(
            "{} messages pushed ({} duplicates, {} unanswered), {} deliveries ({} after a lease had ended), {} \
             acknowledged, {} dead, {} stale, the latest {:.1} s late",
            tally.pushed,
            tally.duplicates,
            tally.unanswered,
            tally.deliveries,
            tally.expired,
            tally.acknowledged,
            tally.dead,
            tally.stale,
            tally.latest.as_secs_f64(),
        )
    }

    fn seconds(&self, at: Duration) -> f64 {
        at.saturating_sub(self.began).as_secs_f64()
    }

    fn write_table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "  {:<10}{:>8}{:>8}{:>11}{:>8}{:>7}  longest stall",
            "name", "asked", "grants", "timed out", "failed", "lost"
        )?;
        for (name, row) in self.rows() {
            let Row { asked, grants, timed_out, failed, lost, stall } = row;
            write!(f, "  {name:<10}{asked:>8}{grants:>8}{timed_out:>11}{failed:>8}{lost:>7}")?;
            writeln!(f, "  {:.2} s from {:.2}", stall.span.as_secs_f64(), self.seconds(stall.from))?;
        }
        Ok(())
    }

    fn write_counts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut faults = BTreeMap::<String, usize>::new();
        self.faults.iter().for_each(|fault| *faults.entry(fault.kind()).or_default() += 1);
        let faults: Vec<_> = faults.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        writeln!(f, "  faults: {}", faults.join(", "))?;
        let mut errors = BTreeMap::<&str, usize>::new();
        for event in &self.events {
            if let What::Failed { kind, .. } = &event.what {
                *errors.entry(kind).or_default() += 1;
            }
        }
        let errors: Vec<_> = errors.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        writeln!(f, "  errors that clients saw: {}", errors.join(", "))?;
        if let (won @ 1.., in_one) = self.elections() {
            let share = in_one as f64 * 100.0 / won as f64;
            writeln!(
                f,
                "  elections: {won} won, {in_one} in one round ({share:.1} %), of processes that were not killed"
            )?;
        }
        self.counters.lines().try_for_each(|line| writeln!(f, "  {line}"))
    }

    /// The lines around a violation, by their instants.
    fn around(&self, violation: &Violation) -> Vec<(Duration, String)> {
        let (from, to) = violation.span;
        let (from, to) = (from.saturating_sub(AROUND), to + AROUND);
        let within = |event: &&Event| (from..=to).contains(&event.at);
        let mut ends = BTreeMap::new();
        let mut lines = Vec::new();
        for event in self.events.iter().filter(within) {
            let own = violation.by.contains(&event.by);
            let is_shown = match event.what {
                // Only news from a guard: a renewal.
                What::Held { until } => {
                    let before = ends.insert(event.by, until).unwrap_or_default();
                    own && until > before + Duration::from_millis(5)
                }
                What::Granted { until, .. } => ends.insert(event.by, until).is_none() && event.name == violation.name,
                _ => own || (event.name == violation.name && event.name != "-"),
            };
            lines.extend(is_shown.then(|| (event.at, self.shown(event))));
        }
        let is_near = |fault: &&Fault| fault.at <= to && fault.end.is_none_or(|end| end >= from);
        lines.extend(self.faults.iter().filter(is_near).map(|fault| {
            let end = fault.end.map_or_else(String::new, |end| format!(", until {:.6}", self.seconds(end)));
            (fault.at, format!("-- {fault}{end}"))
        }));
        lines.sort();
        lines
    }

    /// An event without its instant, and other instants as seconds of the run.
    fn shown(&self, event: &Event) -> String {
        let Origin { process, life, task, op } = event.by;
        let by = format!("{process}.{life} task {task} op {op} {}", event.name);
        match &event.what {
            What::Granted { fence, until } => format!("{by} granted {fence}, until {:.6}", self.seconds(*until)),
            What::Held { until } => format!("{by} held, until {:.6}", self.seconds(*until)),
            What::Lost { expired } => {
                format!("{by} lost, {}", if *expired { "by the clock" } else { "reported by the backend" })
            }
            _ => format!("{by} {}", event.to_string().splitn(7, ' ').last().unwrap_or_default()),
        }
    }

    fn write_violation(&self, f: &mut fmt::Formatter<'_>, violation: &Violation) -> fmt::Result {
        let lines = self.around(violation);
        let skipped = lines.len().saturating_sub(LINES);
        if skipped > 0 {
            writeln!(f, "    … {skipped} lines before")?;
        }
        lines[skipped..].iter().try_for_each(|(at, line)| writeln!(f, "    {:>11.6} {line}", self.seconds(*at)))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Options { processes, tasks, names, steady, data, .. } = &self.options;
        writeln!(f, "{}", self.line())?;
        if self.options.brief && self.is_clean() {
            return Ok(());
        }
        let data = if *data == Data::Kept { "kept" } else { "lost" };
        if self.options.subject != Subject::Queue {
            writeln!(
                f,
                "  {processes} processes: {tasks} tasks each on {names} hot names, {} on {steady} of their own and as many \
                 of another process; servers that are killed have their data {data}",
                2 * steady
            )?;
        }
        self.write_counts(f)?;
        if self.options.subject != Subject::Queue {
            self.write_table(f)?;
        }
        for (number, violation) in self.violations.iter().enumerate().take(NAMED) {
            let (from, to) = violation.span;
            let span = format!("{:.6} to {:.6}", self.seconds(from), self.seconds(to));
            writeln!(f, "\n  {}, {}, {span}: {}", violation.rule, violation.name, violation.text)?;
            if number < SHOWN {
                self.write_violation(f, violation)?;
            }
        }
        if !self.is_clean() {
            let (count, rules) = (self.violations.len(), self.broken_rules().join(", "));
            writeln!(f, "\n  {count} violations, of which {} are named: {rules}", count.min(NAMED))?;
            writeln!(
                f,
                "  a line is: seconds, process and life, task, operation, lock or message, what happened; -- begins a fault"
            )?;
        }
        Ok(())
    }
}
