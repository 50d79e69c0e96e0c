//! The comparison of databases, locks and queues.

use super::queue::through;
use super::table::Database::{Files, MariaDb, Postgres, PostgresOnDisk};
use super::table::{Comparison, Kind, On, Row, Table, Way, Work, row, table, work};

pub(super) const SQL: Comparison = Comparison { name: "sql", tables: TABLES, curves: &[] };

const POSTGRES: On = On(Kind::Database(Postgres), Way::Direct);
const MARIADB: On = On(Kind::Database(MariaDb), Way::Direct);
const FILES: On = On(Kind::Database(Files), Way::Direct);

const PAIR: Work = work("pair").millis(500, 1_500);
/// 16 waiters in two processes; nothing is done while holding.
const SIXTEEN: Work = work("contend").workers(16).processes(2).millis(1_000, 2_000);

const fn ours(name: &'static str) -> Row {
    row(name, name)
}

const BARE: Row = row("bare conditional UPDATE", "bare-row");
const POLLED: &str = "bare row, asked every 5 ms";
const FLOOR: Row = row("NOTIFY to its listener, the floor of a gap", "postgres").does(work("notify").millis(300, 300));

const TABLES: &[Table] = &[
    table(
        "pg-pair",
        POSTGRES,
        PAIR,
        &[
            BARE,
            ours("pg_advisory_lock"),
            ours("tenure-postgres"),
            row("tenure-postgres, statements not prepared", "tenure-postgres")
                .on(On(Kind::Database(Postgres), Way::Unprepared)),
            row("tenure-postgres through PgBouncer", "tenure-postgres").on(On(Kind::Database(Postgres), Way::Pooled)),
        ],
    ),
    table(
        "pg-pair-disk",
        On(Kind::Database(PostgresOnDisk), Way::Direct),
        PAIR.millis(700, 2_000),
        &[row(BARE.name, "bare-row-logged"), ours("tenure-postgres")],
    ),
    table(
        "pg-pairs",
        POSTGRES,
        PAIR.workers(64).millis(500, 1_000),
        &[ours("bare-row"), ours("pg_advisory_lock"), ours("tenure-postgres")],
    ),
    table(
        "pg-handover",
        POSTGRES,
        SIXTEEN,
        &[
            FLOOR,
            row(POLLED, "bare-row"),
            row("pg_advisory_lock, a session each", "pg_advisory_lock"),
            row("tenure-postgres, each asks", "tenure-postgres-each-asks"),
            ours("tenure-postgres"),
        ],
    ),
    table(
        "pg-queue",
        POSTGRES,
        through(10, 4, 10_000),
        &[
            row("tenure-postgres, 1 × 4", "tenure-postgres").does(through(1, 4, 3_000)),
            row("tenure-postgres, 10 × 4", "tenure-postgres"),
            row("tenure-postgres, 100 × 4", "tenure-postgres").does(through(100, 4, 20_000)),
            row("river-like, 1 × 4", "river-like").does(through(1, 4, 3_000)),
            row("river-like, 10 × 4", "river-like"),
            row("river-like, 100 × 4", "river-like").does(through(100, 4, 20_000)),
            row("pgmq-like, 10 × 4", "pgmq-like"),
            row("pgmq-like, 100 × 4", "pgmq-like").does(through(100, 4, 20_000)),
            row("apalis-postgres, 10", "apalis-postgres").does(through(10, 1, 1_000)),
        ],
    ),
    table(
        "mysql-pair",
        MARIADB,
        PAIR,
        &[row(BARE.name, "bare-row-of-mysql"), row("GET_LOCK, a session each", "get_lock"), ours("tenure-mysql")],
    ),
    table(
        "mysql-handover",
        MARIADB,
        SIXTEEN,
        &[row(BARE.name, "bare-row-of-mysql"), row("GET_LOCK, a session each", "get_lock"), ours("tenure-mysql")],
    ),
    table(
        "sqlite-pair",
        FILES,
        PAIR,
        &[row(BARE.name, "bare-row-of-sqlite"), row("flock (fs4)", "flock"), ours("tenure-sqlite")],
    ),
    table(
        "sqlite-handover",
        FILES,
        SIXTEEN,
        &[
            row("flock (fs4), tried every 5 ms", "flock"),
            row(POLLED, "bare-row-of-sqlite"),
            row("tenure-sqlite, each asks", "tenure-sqlite-each-asks"),
            ours("tenure-sqlite"),
        ],
    ),
    table(
        "sqlite-queue",
        FILES,
        through(10, 4, 10_000),
        &[
            row("tenure-sqlite, 1 × 4", "tenure-sqlite").does(through(1, 4, 3_000)),
            row("tenure-sqlite, 10 × 4", "tenure-sqlite"),
            row("tenure-sqlite, 100 × 4", "tenure-sqlite").does(through(100, 4, 20_000)),
            row("apalis-sqlite, 10", "apalis-sqlite").does(through(10, 1, 1_000)),
        ],
    ),
];
