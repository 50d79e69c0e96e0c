//! What a comparison consists of: tables whose rows say who is measured, on which servers and with what work, and curves, whose
//! rows are points. Their texts are in `sections.txt`, and what
//! the project wants to reach is in `aims.txt`.

/// One comparison: its tables and curves, in their order.
pub(super) struct Comparison {
    pub(super) name: &'static str,
    pub(super) tables: &'static [Table],
    pub(super) curves: &'static [Curves],
}

/// Rows that are measured in the same rounds, each round in another order.
pub(super) struct Table {
    /// Its texts are in `sections.txt`.
    pub(super) id: &'static str,
    pub(super) rounds: Extents<usize>,
    pub(super) clients: Clients,
    /// Where the rows run and what they do, unless they say otherwise.
    pub(super) on: On,
    pub(super) work: Work,
    pub(super) rows: &'static [Row],
    /// This metric is noted in round trips too, as `in_rtt`: in those of the row `TRIP` in the same round.
    pub(super) in_trips: Option<&'static str>,
}

/// With clients that are pinned, and the usual rounds.
pub(super) const fn table(id: &'static str, on: On, work: Work, rows: &'static [Row]) -> Table {
    Table { id, rounds: Extents(5, 7), clients: Clients::Pinned, on, work, rows, in_trips: None }
}

impl Table {
    pub(super) const fn rounds(self, rounds: usize) -> Self {
        Self { rounds: Extents(rounds, rounds), ..self }
    }

    pub(super) const fn anywhere(self) -> Self {
        Self { clients: Clients::Anywhere, ..self }
    }

    pub(super) const fn in_trips(self, metric: &'static str) -> Self {
        Self { in_trips: Some(metric), ..self }
    }
}

/// The row that measures a round trip.
pub(super) const TRIP: &str = "round trip";

/// Where workers run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Clients {
    /// On the processor that most servers share with them.
    Pinned,
    Anywhere,
}

/// One subject: as the table calls it and as the worker does.
#[derive(Clone, Copy)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) subject: &'static str,
    pub(super) by: Language,
    /// Which of the commands in the server's statistics its clients send: the others are calls inside scripts.
    pub(super) sends: &'static [&'static str],
    pub(super) on: Option<On>,
    pub(super) work: Option<Work>,
}

pub(super) const SCRIPTS: &[&str] = &["eval", "evalsha", "ping"];
pub(super) const SET_AND_SCRIPTS: &[&str] = &["set", "eval", "evalsha", "ping"];

pub(super) const fn row(name: &'static str, subject: &'static str) -> Row {
    Row { name, subject, by: Language::Rust, sends: SCRIPTS, on: None, work: None }
}

impl Row {
    pub(super) const fn by(self, by: Language) -> Self {
        Self { by, ..self }
    }

    pub(super) const fn sends(self, sends: &'static [&'static str]) -> Self {
        Self { sends, ..self }
    }

    pub(super) const fn on(self, on: On) -> Self {
        Self { on: Some(on), ..self }
    }

    pub(super) const fn does(self, work: Work) -> Self {
        Self { work: Some(work), ..self }
    }
}

/// What a subject is written in; with the module that it needs.
#[derive(Clone, Copy)]
pub(super) enum Language {
    Rust,
    Python(&'static str),
    Node(&'static str),
    Go,
}

/// Servers, and the way to them.
#[derive(Clone, Copy)]
pub(super) struct On(pub(super) Kind, pub(super) Way);

/// What is started for a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Everything is in the worker's process.
    Nothing,
    /// One Redis, on the processor of the clients.
    Redis,
    /// One Redis, on another processor.
    RedisApart,
    /// One Redis that is not pinned.
    RedisAnywhere,
    /// Five of them, on the processor of the clients.
    Five,
    /// One Redis whose queue `BACKLOG` has so many messages that are not due.
    Backlog(usize),
    /// One member of etcd, not pinned.
    Etcd,
    Beanstalkd,
    #[cfg(feature = "sql")]
    Database(Database),
}

#[cfg(feature = "sql")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Database {
    /// Unlogged tables, data in memory.
    Postgres,
    /// Logged tables on a disk whose flushes are waited for.
    PostgresOnDisk,
    MariaDb,
    /// A folder for files.
    Files,
}

/// The queue of a server that has a backlog.
pub(super) const BACKLOG: &str = "compare-backlog";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Direct,
    /// Through a proxy that holds every byte back for so many microseconds, both ways.
    Far(u32),
    /// The same, and one of the servers is killed once the workers are prepared.
    OneDead(u32),
    /// With statements that are not prepared.
    #[cfg(feature = "sql")]
    Unprepared,
    /// Through a pooler in transaction mode.
    #[cfg(feature = "sql")]
    Pooled,
}

/// An amount for `--quick`, and one without.
#[derive(Clone, Copy)]
pub(super) struct Extents<T>(pub(super) T, pub(super) T);

/// The work of a row; see `job::Job` for the fields.
#[derive(Clone, Copy)]
pub(super) struct Work {
    pub(super) what: &'static str,
    /// Tasks in all processes.
    pub(super) workers: usize,
    pub(super) processes: usize,
    pub(super) threads: usize,
    pub(super) batch: usize,
    pub(super) bytes: usize,
    pub(super) count: Extents<usize>,
    pub(super) millis: Extents<u64>,
    /// The name of the queue, if it is not a fresh one.
    pub(super) queue: Option<&'static str>,
    /// Work of the same subject in another process before the measured part begins, whose figures are noted as well.
    pub(super) beside: Option<&'static Work>,
}

pub(super) const fn work(what: &'static str) -> Work {
    let (count, millis) = (Extents(0, 0), Extents(0, 0));
    Work { what, workers: 1, processes: 1, threads: 0, batch: 1, bytes: 0, count, millis, queue: None, beside: None }
}

impl Work {
    pub(super) const fn workers(self, workers: usize) -> Self {
        Self { workers, ..self }
    }

    pub(super) const fn processes(self, processes: usize) -> Self {
        Self { processes, ..self }
    }

    pub(super) const fn threads(self, threads: usize) -> Self {
        Self { threads, ..self }
    }

    pub(super) const fn batch(self, batch: usize) -> Self {
        Self { batch, ..self }
    }

    pub(super) const fn count(self, quick: usize, full: usize) -> Self {
        Self { count: Extents(quick, full), ..self }
    }

    pub(super) const fn millis(self, quick: u64, full: u64) -> Self {
        Self { millis: Extents(quick, full), ..self }
    }
}

/// The same work over a growing amount `x`: each row is a point of all curves.
pub(super) struct Curves {
    pub(super) id: &'static str,
    pub(super) rounds: Extents<usize>,
    pub(super) points: Extents<&'static [f64]>,
    pub(super) curves: &'static [Curve],
}

/// Its figures are noted under names that begin with its own.
pub(super) struct Curve {
    pub(super) name: &'static str,
    pub(super) subject: &'static str,
    /// Servers and work at a point; nothing where the curve has a gap.
    pub(super) at: fn(f64) -> Option<(On, Work)>,
}
