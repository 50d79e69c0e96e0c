//! Delay queues in databases: messages that are due at once are stored, received, settled.

use tenure_testkit::PostgresOptions;

use super::super::bench::{Bench, take};
use super::super::language::Language;
use super::super::queue::THROUGHPUT;
use super::super::report::Section;
use super::files::{folder, path};
use super::server::Postgres;
use crate::failure::Outcome;
use crate::job::Job;

/// A row of the table: its name, the subject, how many at a time, in how many tasks, and how many in all.
type Case = (&'static str, &'static str, usize, usize, usize);

fn job((_, subject, batch, workers, count): Case) -> Job {
    let (what, subject, name) = ("throughput".into(), subject.into(), "compare-throughput".into());
    Job { what, subject, name, batch, workers, count, ..Job::default() }
}

/// Four tasks; everything but the server's flushes on one processor.
pub(super) fn postgres(bench: &mut Bench) -> Outcome {
    let pin = bench.pins.shared.clone();
    let scale = bench.pick(1, 3);
    let cases: [Case; 9] = [
        ("tenure-postgres, 1 × 4", "tenure-postgres", 1, 4, 3_000 * scale),
        ("tenure-postgres, 10 × 4", "tenure-postgres", 10, 4, 10_000 * scale),
        ("tenure-postgres, 100 × 4", "tenure-postgres", 100, 4, 20_000 * scale),
        ("river-like, 1 × 4", "river-like", 1, 4, 3_000 * scale),
        ("river-like, 10 × 4", "river-like", 10, 4, 10_000 * scale),
        ("river-like, 100 × 4", "river-like", 100, 4, 20_000 * scale),
        ("pgmq-like, 10 × 4", "pgmq-like", 10, 4, 10_000 * scale),
        ("pgmq-like, 100 × 4", "pgmq-like", 100, 4, 20_000 * scale),
        ("apalis-postgres, 10", "apalis-postgres", 10, 1, 1_000 * scale),
    ];
    let note = "100 bytes each; \"10 × 4\" is ten in a request, four tasks; data in memory. The loops by hand have no fences, receipts, \
                keys or ids; the one like river keeps finished rows, the one like pgmq goes by ids and not by due times.";
    let mut section = Section::new("pg-queue", "PostgreSQL: push, receive, settle", note, THROUGHPUT);
    let server = Postgres::start(pin.as_deref(), PostgresOptions::new(), false)?;
    for _ in 0..bench.rounds() {
        for case in bench.shuffled(&cases) {
            server.tidy()?;
            let job = Job { ports: vec![server.port()], ..job(case) };
            match take(&Language::Rust, pin.as_deref(), &[job], &[&server]) {
                Ok(taken) => section.add(case.0, taken.per_thing(&[])),
                Err(error) => bench.report.left_out(case.0, error),
            }
        }
    }
    let report = &mut bench.report;
    let drained = section.ratio("tenure-postgres, 10 × 4", "river-like, 10 × 4", "drain_per_s");
    report.ratio("pg_queue_b10_vs_river_like", drained);
    report
        .ratio("pg_queue_vs_apalis_pg", section.ratio("tenure-postgres, 10 × 4", "apalis-postgres, 10", "total_per_s"));
    report.sections.push(section);
    Ok(())
}

/// One process on a file.
pub(super) fn sqlite(bench: &mut Bench) -> Outcome {
    let pin = bench.pins.shared.clone();
    let scale = bench.pick(1, 3);
    let cases: [Case; 4] = [
        ("tenure-sqlite, 1 × 4", "tenure-sqlite", 1, 4, 3_000 * scale),
        ("tenure-sqlite, 10 × 4", "tenure-sqlite", 10, 4, 10_000 * scale),
        ("tenure-sqlite, 100 × 4", "tenure-sqlite", 100, 4, 20_000 * scale),
        ("apalis-sqlite, 10", "apalis-sqlite", 10, 1, 1_000 * scale),
    ];
    let note = "100 bytes each; write-ahead log, `synchronous = NORMAL` for both.";
    let mut section = Section::new("sqlite-queue", "SQLite: push, receive, settle", note, THROUGHPUT);
    for _ in 0..bench.rounds() {
        for case in bench.shuffled(&cases) {
            let folder = folder()?;
            let job = Job { path: path(&folder), ..job(case) };
            match take(&Language::Rust, pin.as_deref(), &[job], &[]) {
                Ok(taken) => section.add(case.0, taken.per_thing(&[])),
                Err(error) => bench.report.left_out(case.0, error),
            }
        }
    }
    bench.report.sections.push(section);
    Ok(())
}
