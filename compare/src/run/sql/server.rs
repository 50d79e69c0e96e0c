//! A PostgreSQL server of the comparison, and what it has used of the processors.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use tenure_postgres::{Install, install_sql};
use tenure_testkit::{PgBouncer, PostgresOptions, PostgresServer};

use super::super::counters::{Counted, Counters};
use crate::failure::Outcome;

/// Longer than the leases of every subject.
const LONGEST: Duration = Duration::from_secs(60);

/// Ticks of `/proc/PID/stat` per second, as Linux has them everywhere.
const TICKS: f64 = 100.0;

pub(super) struct Postgres {
    server: PostgresServer,
}

impl Postgres {
    /// With the schema, and with the tables of the peers.
    pub(super) fn start(pin: Option<&str>, options: PostgresOptions, logged: bool) -> Outcome<Self> {
        let server = PostgresServer::start(options.setting("shared_buffers", "256MB"))?;
        server.script("postgres", &install_sql(Install { logged, longest_ttl: LONGEST }))?;
        server.script("postgres", include_str!("peers.sql"))?;
        // Sessions inherit it.
        pin_process(server.pid(), pin)?;
        Ok(Self { server })
    }

    pub(super) fn port(&self) -> u16 {
        self.server.port()
    }

    pub(super) fn version() -> Outcome<String> {
        Ok(PostgresServer::version()?)
    }

    /// A pooler in transaction mode before it.
    pub(super) fn pooler(&self, pin: Option<&str>) -> Outcome<PgBouncer> {
        let pooler = PgBouncer::start(&self.server)?;
        pin_process(pooler.pid(), pin)?;
        Ok(pooler)
    }

    /// Empty tables, and nothing left to be cleaned up during a measurement.
    pub(super) fn tidy(&self) -> Outcome {
        let tables = "bare, bare_logged, river_like, pgmq_like, tenure.message, tenure.settled, tenure.lock, tenure.waiter, \
                      tenure.tombstone";
        self.server.sql("postgres", &format!("TRUNCATE {tables}"))?;
        self.server.sql("postgres", "VACUUM ANALYZE")?;
        self.server.sql("postgres", "CHECKPOINT")?;
        Ok(())
    }
}

pub(super) fn pin_process(pid: Option<u32>, pin: Option<&str>) -> Outcome {
    let (Some(cpus), Some(pid)) = (pin, pid) else { return Ok(()) };
    let mut command = Command::new("taskset");
    let status = command.args(["-acp", cpus, &pid.to_string()]).stdout(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(format!("cannot pin the server: {status}").into()) }
}

impl Counted for Postgres {
    /// Of all its processes, also of those that have ended.
    fn counters(&self) -> Outcome<Counters> {
        let server = self.server.pid().ok_or("the server has ended")?;
        let ended = stat(server).map_or(0.0, |stat| stat.used + stat.of_children);
        let pids = fs::read_dir("/proc")?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        let sessions = pids.filter_map(stat).filter(|stat| stat.parent == server);
        let ticks = ended + sessions.map(|stat| stat.used).sum::<f64>();
        Ok(Counters::of_cpu(ticks / TICKS * 1e6))
    }
}

/// Microseconds of a process that does everything itself.
pub(super) fn used(pid: u32) -> f64 {
    stat(pid).map_or(0.0, |stat| stat.used / TICKS * 1e6)
}

/// Ticks of a process, and of those of its children that have ended.
struct Stat {
    parent: u32,
    used: f64,
    of_children: f64,
}

fn stat(pid: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = text.rsplit(')').next()?.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<f64>().ok();
    let parent = fields.get(1)?.parse().ok()?;
    Some(Stat { parent, used: number(11)? + number(12)?, of_children: number(13)? + number(14)? })
}
