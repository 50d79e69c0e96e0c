//! What the sections of growing cost have in common: where everything runs, and points of curves.

use super::super::bench::{Bench, take};
use super::super::counters::Counted;
use super::super::language::Language;
use super::super::report::{Sample, Section};
use crate::failure::Outcome;
use crate::job::Job;

/// Servers are on one processor and all clients on another, if there are two.
pub(super) struct Places {
    servers: Option<String>,
    clients: Option<String>,
}

impl Places {
    pub(super) fn of(bench: &Bench) -> Self {
        match &bench.pins.other {
            Some(other) => Self { servers: Some(other.clone()), clients: bench.pins.shared.clone() },
            None => Self { servers: None, clients: None },
        }
    }

    pub(super) fn servers(&self) -> Option<&str> {
        self.servers.as_deref()
    }

    pub(super) fn clients(&self) -> Option<&str> {
        self.clients.as_deref()
    }

    /// What came of one job of one process.
    pub(super) fn measure(&self, job: Job, server: &dyn Counted) -> Outcome<Sample> {
        Ok(take(&Language::Rust, self.clients(), &[job], &[server])?.per_thing(&[]))
    }
}

/// How often everything is measured that takes a second.
pub(super) fn rounds(bench: &Bench) -> usize {
    bench.pick(1, 3)
}

pub(super) fn job(what: &str, subject: &str, port: u16) -> Job {
    let name = format!("growth/{what}");
    Job { what: what.into(), subject: subject.into(), ports: vec![port], name, ..Job::default() }
}

/// One point of all curves of a section.
pub(super) struct Point {
    x: f64,
    pub(super) figures: Sample,
}

impl Point {
    pub(super) fn new(x: f64) -> Self {
        Self { x, figures: Sample::from([("x".to_owned(), x)]) }
    }

    /// Keeps these figures under names of this curve. An error is noted, and the curve has a gap.
    pub(super) fn keep(&mut self, bench: &mut Bench, curve: &str, measured: Outcome<Sample>, metrics: &[&str]) {
        match measured {
            Ok(figures) => {
                let kept = metrics.iter().filter_map(|name| Some((format!("{curve}_{name}"), *figures.get(*name)?)));
                self.figures.extend(kept);
            }
            Err(error) => bench.report.left_out(format!("{curve} at {}", label(self.x)), error),
        }
    }

    pub(super) fn add_to(self, section: &mut Section) {
        section.add(&label(self.x), self.figures);
    }
}

/// A number as rows are called by it: with commas between thousands.
pub(super) fn label(x: f64) -> String {
    if x.fract() != 0.0 {
        return x.to_string();
    }
    let digits = format!("{x:.0}");
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|group| std::str::from_utf8(group).ok()).collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_called_by_their_number() {
        assert_eq!([1.0, 0.5, 100.0, 1_000.0, 1_000_000.0].map(label), ["1", "0.5", "100", "1,000", "1,000,000"]);
    }
}
