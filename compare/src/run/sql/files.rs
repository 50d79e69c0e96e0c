//! Locks between processes of one machine: SQLite, beside a bare row of it and `flock`.

use tempfile::TempDir;

use super::super::bench::{Bench, take};
use super::super::language::Language;
use super::super::locks::figures;
use super::super::report::Section;
use super::columns::{HANDOVER, PAIR};
use crate::failure::Outcome;
use crate::job::Job;

const WAITERS: usize = 16;
const PROCESSES: usize = 2;

/// A folder on a disk, where there is one beside memory.
pub(super) fn folder() -> Outcome<TempDir> {
    Ok(TempDir::new()?)
}

pub(super) fn path(folder: &TempDir) -> String {
    folder.path().display().to_string()
}

pub(super) fn pair(bench: &mut Bench) -> Outcome {
    let pin = bench.pins.shared.clone();
    let note = "Acquire and release. The bare row is written by the thread that asks; tenure's worker thread is asked by two hops. Only \
                tenure's locks are fenced and queue.";
    let mut section = Section::new("sqlite-pair", "SQLite: uncontended pair, one task", note, PAIR);
    let subjects = [
        ("bare conditional UPDATE", "bare-row-of-sqlite"),
        ("flock (fs4)", "flock"),
        ("tenure-sqlite", "tenure-sqlite"),
    ];
    let millis = bench.pick(500, 1_500);
    for _ in 0..bench.rounds() {
        for (row, subject) in bench.shuffled(&subjects) {
            let folder = folder()?;
            let job = Job {
                what: "pair".into(),
                subject: subject.into(),
                path: path(&folder),
                name: "compare/pair".into(),
                workers: 1,
                millis,
                ..Job::default()
            };
            match take(&Language::Rust, pin.as_deref(), &[job], &[]) {
                Ok(taken) => section.add(row, taken.per_thing(&[])),
                Err(error) => bench.report.left_out(row, error),
            }
        }
    }
    let ratio = section.ratio("tenure-sqlite", "bare conditional UPDATE", "p50_us");
    bench.report.ratio("sqlite_pair_vs_bare_update", ratio);
    bench.report.sections.push(section);
    Ok(())
}

const POLLED: &str = "flock (fs4), tried every 5 ms";

pub(super) fn handover(bench: &mut Bench) -> Outcome {
    let pin = bench.pins.shared.clone();
    let note = "Two processes of eight waiters, nothing done while holding; one processor.";
    let mut section = Section::new("sqlite-handover", "SQLite: hand-over, 16 waiters in 2 processes", note, HANDOVER);
    let subjects = [
        (POLLED, "flock"),
        ("bare row, asked every 5 ms", "bare-row-of-sqlite"),
        ("tenure-sqlite, each asks", "tenure-sqlite-each-asks"),
        ("tenure-sqlite", "tenure-sqlite"),
    ];
    for _ in 0..bench.rounds() {
        for (row, subject) in bench.shuffled(&subjects) {
            let folder = folder()?;
            let job = Job {
                what: "contend".into(),
                subject: subject.into(),
                path: path(&folder),
                name: "compare/hot".into(),
                workers: WAITERS / PROCESSES,
                millis: bench.pick(1_000, 2_000),
                ..Job::default()
            };
            let taken = take(&Language::Rust, pin.as_deref(), &vec![job; PROCESSES], &[]);
            match taken.and_then(|taken| figures(row, &taken, WAITERS)) {
                Ok(figures) => section.add(row, figures),
                Err(error) => bench.report.left_out(row, error),
            }
        }
    }
    let ratio = section.ratio("tenure-sqlite, each asks", POLLED, "per_s");
    bench.report.ratio("sqlite_handovers_vs_flock_polling", ratio);
    bench.report.sections.push(section);
    Ok(())
}
