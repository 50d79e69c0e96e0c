//! Locks in MariaDB, beside its named locks and a row that is updated under a condition.

use tenure_mysql::install_sql;
use tenure_testkit::{MariaDbOptions, MariaDbServer};

use super::super::bench::{Bench, take};
use super::super::counters::{Counted, Counters};
use super::super::language::Language;
use super::super::locks::figures;
use super::super::report::Section;
use super::columns::{HANDOVER, PAIR};
use super::server::{pin_process, used};
use crate::failure::Outcome;
use crate::job::Job;

const DATABASE: &str = "compare";

struct MariaDb(MariaDbServer);

impl MariaDb {
    /// With the schema, and with the table of the row.
    fn start(pin: Option<&str>) -> Outcome<Self> {
        let server = MariaDbServer::start(MariaDbOptions::new())?;
        server.create_database(DATABASE)?;
        server.script(DATABASE, &install_sql())?;
        let row =
            "CREATE TABLE bare (name VARBINARY(512) PRIMARY KEY, token VARBINARY(32), until DATETIME(6) NOT NULL)";
        server.sql(DATABASE, row)?;
        pin_process(server.pid(), pin)?;
        Ok(Self(server))
    }

    fn tidy(&self) -> Outcome {
        for table in ["bare", "tenure_lock", "tenure_tombstone"] {
            self.0.sql(DATABASE, &format!("TRUNCATE TABLE {table}"))?;
        }
        Ok(())
    }
}

impl Counted for MariaDb {
    fn counters(&self) -> Outcome<Counters> {
        Ok(Counters::of_cpu(used(self.0.pid().ok_or("the server has ended")?)))
    }
}

const BARE: &str = "bare conditional UPDATE";
const ROWS: &[(&str, &str)] =
    &[(BARE, "bare-row-of-mysql"), ("GET_LOCK, a session each", "get_lock"), ("tenure-mysql", "tenure-mysql")];

/// One task, everything on one processor.
pub(super) fn pair(bench: &mut Bench) -> Outcome {
    let pin = bench.pins.shared.clone();
    bench.about("mariadb", MariaDbServer::version()?);
    let server = MariaDb::start(pin.as_deref())?;
    let note = "Acquire and release; data in memory, and flushed as the server's defaults say; server and client on one processor. \
                Only tenure's locks are fenced.";
    let mut section = Section::new("mysql-pair", "MariaDB: uncontended pair, one task", note, PAIR);
    let job = Job {
        what: "pair".into(),
        ports: vec![server.0.port()],
        name: "compare/pair".into(),
        workers: 1,
        millis: bench.pick(500, 1_500),
        ..Job::default()
    };
    for _ in 0..bench.rounds() {
        for (row, subject) in bench.shuffled(ROWS) {
            server.tidy()?;
            let job = Job { subject: subject.into(), ..job.clone() };
            match take(&Language::Rust, pin.as_deref(), &[job], &[&server]) {
                Ok(taken) => section.add(row, taken.per_thing(&[])),
                Err(error) => bench.report.left_out(row, error),
            }
        }
    }
    bench.report.ratio("mysql_pair_vs_bare_updates", section.ratio("tenure-mysql", BARE, "p50_us"));
    bench.report.sections.push(section);
    Ok(())
}

const WAITERS: usize = 16;
const PROCESSES: usize = 2;

/// 16 waiters in two processes.
pub(super) fn handover(bench: &mut Bench) -> Outcome {
    let pin = bench.pins.shared.clone();
    let server = MariaDb::start(pin.as_deref())?;
    let note = "Two processes of eight waiters, nothing done while holding; one processor. All waiters ask, at intervals that grow: MySQL \
                sends no wake-ups. Grants to the task that released last do not count.";
    let mut section = Section::new("mysql-handover", "MariaDB: hand-over, 16 waiters in 2 processes", note, HANDOVER);
    let job = Job {
        what: "contend".into(),
        ports: vec![server.0.port()],
        name: "compare/hot".into(),
        workers: WAITERS / PROCESSES,
        millis: bench.pick(1_000, 2_000),
        ..Job::default()
    };
    for _ in 0..bench.rounds() {
        for (row, subject) in bench.shuffled(ROWS) {
            server.tidy()?;
            let job = Job { subject: subject.into(), ..job.clone() };
            let taken = take(&Language::Rust, pin.as_deref(), &vec![job; PROCESSES], &[&server]);
            match taken.and_then(|taken| figures(row, &taken, WAITERS)) {
                Ok(figures) => section.add(row, figures),
                Err(error) => bench.report.left_out(row, error),
            }
        }
    }
    bench.report.sections.push(section);
    Ok(())
}
