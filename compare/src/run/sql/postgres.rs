//! Locks in PostgreSQL, beside its session locks and a row that is updated under a condition.

use tenure_testkit::PostgresOptions;

use super::super::bench::{Bench, take};
use super::super::language::Language;
use super::super::locks::figures;
use super::super::report::{Sample, Section, sample};
use super::columns::{HANDOVER, PAIR};
use super::server::Postgres;
use crate::failure::Outcome;
use crate::job::Job;

/// With a session for each waiter.
fn roomy() -> PostgresOptions {
    PostgresOptions::new().setting("max_connections", "400")
}

fn pair_of(subject: &str, ports: &[u16], workers: usize, millis: u64) -> Job {
    Job {
        what: "pair".into(),
        subject: subject.into(),
        ports: ports.to_vec(),
        name: "compare/pair".into(),
        workers,
        millis,
        ..Job::default()
    }
}

fn measured(bench: &mut Bench, section: &mut Section, row: &str, job: Job, server: &Postgres) {
    match take(&Language::Rust, bench.pins.shared.as_deref(), &[job], &[server]) {
        Ok(taken) => section.add(row, taken.per_thing(&[])),
        Err(error) => bench.report.left_out(row, error),
    }
}

/// One task, everything on one processor, unlogged tables.
pub(super) fn pair(bench: &mut Bench) -> Outcome {
    let pin = bench.pins.shared.clone();
    bench.about("postgres", Postgres::version()?);
    let server = Postgres::start(pin.as_deref(), roomy(), false)?;
    let note = "Acquire and release; unlogged tables; data in memory; server and client on one processor. Only tenure's locks are \
                fenced and queue.";
    let mut section = Section::new("pg-pair", "PostgreSQL: uncontended pair, one task", note, PAIR);
    let pooler = server.pooler(pin.as_deref());
    let mut subjects = vec![
        ("bare conditional UPDATE", "bare-row", vec![server.port()]),
        ("pg_advisory_lock", "pg_advisory_lock", vec![server.port()]),
        ("sqlx PgAdvisoryLock", "sqlx-advisory", vec![server.port()]),
        ("tenure-postgres", "tenure-postgres", vec![server.port()]),
        ("tenure-postgres, statements not prepared", "tenure-postgres", vec![server.port(), server.port()]),
    ];
    match &pooler {
        Ok(pooler) => subjects.push((POOLED, "tenure-postgres", vec![pooler.port(), server.port()])),
        Err(error) => bench.report.left_out(POOLED, error),
    }
    let millis = bench.pick(500, 1_500);
    for _ in 0..bench.rounds() {
        for (row, subject, ports) in bench.shuffled(&subjects) {
            server.tidy()?;
            measured(bench, &mut section, row, pair_of(subject, &ports, 1, millis), &server);
        }
    }
    let report = &mut bench.report;
    report.ratio("pg_pair_vs_bare_update", section.ratio("tenure-postgres", "bare conditional UPDATE", "p50_us"));
    report.ratio("through_pgbouncer_vs_direct", section.ratio(POOLED, "tenure-postgres", "p50_us"));
    report.sections.push(section);
    Ok(())
}

const POOLED: &str = "tenure-postgres through PgBouncer";

/// One task, logged tables on a disk whose flushes are waited for.
pub(super) fn pair_on_disk(bench: &mut Bench) -> Outcome {
    let pin = bench.pins.shared.clone();
    let server = Postgres::start(pin.as_deref(), roomy().on_disk(), true)?;
    let note = "Logged tables: each step waits for a flush of the log.";
    let mut section = Section::new("pg-pair-disk", "PostgreSQL: uncontended pair on disk, logged", note, PAIR);
    let subjects = [("bare conditional UPDATE", "bare-row-logged"), ("tenure-postgres", "tenure-postgres")];
    let millis = bench.pick(700, 2_000);
    for _ in 0..bench.rounds() {
        for (row, subject) in bench.shuffled(&subjects) {
            server.tidy()?;
            measured(bench, &mut section, row, pair_of(subject, &[server.port()], 1, millis), &server);
        }
    }
    let ratio = section.ratio("tenure-postgres", "bare conditional UPDATE", "p50_us");
    bench.report.ratio("pg_pair_logged_vs_bare_logged", ratio);
    bench.report.sections.push(section);
    Ok(())
}

/// 64 tasks with names of their own.
pub(super) fn pairs(bench: &mut Bench) -> Outcome {
    let pin = bench.pins.shared.clone();
    let server = Postgres::start(pin.as_deref(), roomy(), false)?;
    let note = "Ours over four connections; the others over one for each task.";
    let mut section = Section::new("pg-pairs", "PostgreSQL: 64 tasks, names of their own", note, PAIR);
    let subjects = ["bare-row", "pg_advisory_lock", "tenure-postgres"];
    let millis = bench.pick(500, 1_000);
    for _ in 0..bench.rounds() {
        for subject in bench.shuffled(&subjects) {
            server.tidy()?;
            measured(bench, &mut section, subject, pair_of(subject, &[server.port()], 64, millis), &server);
        }
    }
    bench.report.sections.push(section);
    Ok(())
}

const WAITERS: usize = 16;
const PROCESSES: usize = 2;
const FLOOR: &str = "NOTIFY to its listener, the floor of a gap";
const POLLED: &str = "bare row, asked every 5 ms";
const EACH: &str = "tenure-postgres, each asks";

/// 16 waiters in two processes.
pub(super) fn handover(bench: &mut Bench) -> Outcome {
    let pin = bench.pins.shared.clone();
    let server = Postgres::start(pin.as_deref(), roomy(), false)?;
    let note = "Two processes of eight waiters, nothing done while holding; unlogged tables; one processor. A row *each asks* \
                passes no lease on within a process. Grants to the task that released last do not count.";
    let mut section = Section::new("pg-handover", "PostgreSQL: hand-over, 16 waiters in 2 processes", note, HANDOVER);
    let subjects = [
        (POLLED, "bare-row"),
        ("pg_advisory_lock, a session each", "pg_advisory_lock"),
        ("sqlx PgAdvisoryLock, a session each", "sqlx-advisory"),
        (EACH, "tenure-postgres-each-asks"),
        ("tenure-postgres", "tenure-postgres"),
    ];
    for _ in 0..bench.rounds() {
        section.add(FLOOR, floor(&server, pin.as_deref())?);
        for (row, subject) in bench.shuffled(&subjects) {
            server.tidy()?;
            let job = Job {
                what: "contend".into(),
                subject: subject.into(),
                ports: vec![server.port()],
                name: "compare/hot".into(),
                workers: WAITERS / PROCESSES,
                millis: bench.pick(1_000, 2_000),
                ..Job::default()
            };
            let taken = take(&Language::Rust, pin.as_deref(), &vec![job; PROCESSES], &[&server]);
            match taken.and_then(|taken| figures(row, &taken, WAITERS)) {
                Ok(figures) => section.add(row, figures),
                Err(error) => bench.report.left_out(row, error),
            }
        }
    }
    let report = &mut bench.report;
    report.ratio("pg_handovers_vs_polled_row_each_asks", section.ratio(EACH, POLLED, "per_s"));
    report.ratio("pg_handovers_vs_polled_row_passed_on", section.ratio("tenure-postgres", POLLED, "per_s"));
    report.ratio("pg_gap_vs_notify_floor", section.ratio(EACH, FLOOR, "gap_p50_us"));
    report.sections.push(section);
    Ok(())
}

fn floor(server: &Postgres, pin: Option<&str>) -> Outcome<Sample> {
    let job = Job {
        what: "notify".into(),
        subject: "postgres".into(),
        ports: vec![server.port()],
        millis: 300,
        ..Job::default()
    };
    let floor = sample(&take(&Language::Rust, pin, &[job], &[])?.answers[0]);
    let names = [("p50_us", "gap_p50_us"), ("p99_us", "gap_p99_us")];
    Ok(names.iter().filter_map(|(from, to)| Some(((*to).to_owned(), *floor.get(*from)?))).collect())
}
