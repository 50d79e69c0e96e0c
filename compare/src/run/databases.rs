//! The databases of a comparison, and what they have used of the processors.

use std::cell::RefCell;
use std::fs;
use std::rc::Rc;
use std::time::Duration;

use tempfile::TempDir;
use tenure_testkit::{MariaDbOptions, MariaDbServer, PgBouncer, PostgresOptions, PostgresServer};

use super::machine::pin_process;
use super::server::{Counters, Server};
use super::table::{Database, Way};
use crate::job::Outcome;

pub(super) fn start(database: Database, pin: Option<&str>) -> Outcome<Rc<dyn Server>> {
    // With a session for each waiter.
    let roomy = PostgresOptions::new().setting("max_connections", "400").setting("shared_buffers", "256MB");
    Ok(match database {
        Database::Postgres => Rc::new(Postgres::start(pin, roomy, false)?),
        Database::PostgresOnDisk => Rc::new(Postgres::start(pin, roomy.on_disk(), true)?),
        Database::MariaDb => Rc::new(MariaDb::start(pin)?),
        Database::Files => Rc::new(Files(RefCell::new(TempDir::new()?))),
    })
}

/// Longer than the leases of every subject.
const LONGEST: Duration = Duration::from_secs(60);

struct Postgres {
    server: PostgresServer,
    pooler: RefCell<Option<PgBouncer>>,
    pin: Option<String>,
}

impl Postgres {
    /// With the schema, and with the tables of the peers.
    fn start(pin: Option<&str>, options: PostgresOptions, logged: bool) -> Outcome<Self> {
        let server = PostgresServer::start(options)?;
        let schema = tenure_postgres::install_sql(tenure_postgres::Install { logged, longest_ttl: LONGEST });
        server.script("postgres", &schema)?;
        server.script("postgres", include_str!("peers.sql"))?;
        // Sessions inherit it.
        pin_process(server.pid(), pin)?;
        Ok(Self { server, pooler: RefCell::default(), pin: pin.map(str::to_owned) })
    }

    /// A pooler in transaction mode before it.
    fn pooler(&self) -> Outcome<u16> {
        let mut pooler = self.pooler.borrow_mut();
        if let Some(pooler) = &*pooler {
            return Ok(pooler.port());
        }
        let started = PgBouncer::start(&self.server)?;
        pin_process(started.pid(), self.pin.as_deref())?;
        Ok(pooler.insert(started).port())
    }
}

impl Server for Postgres {
    /// A second port is that for listening; with it, statements are not prepared.
    fn ports(&self, way: Way) -> Outcome<Vec<u16>> {
        let port = self.server.port();
        Ok(match way {
            Way::Unprepared => vec![port, port],
            Way::Pooled => vec![self.pooler()?, port],
            _ => vec![port],
        })
    }

    /// Empty tables, and nothing left to be cleaned up during a measurement.
    fn tidy(&self) -> Outcome {
        let tables = "bare, bare_logged, river_like, pgmq_like, tenure.message, tenure.settled, tenure.lock, tenure.waiter, \
                      tenure.tombstone";
        self.server.sql("postgres", &format!("TRUNCATE {tables}"))?;
        self.server.sql("postgres", "VACUUM ANALYZE")?;
        self.server.sql("postgres", "CHECKPOINT")?;
        Ok(())
    }

    /// Of all its processes, also of those that have ended.
    fn counters(&self) -> Outcome<Counters> {
        let server = self.server.pid().ok_or("the server has ended")?;
        let ended = stat(server).map_or(0.0, |stat| stat.used_us + stat.of_children_us);
        let pids = fs::read_dir("/proc")?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        let sessions = pids.filter_map(stat).filter(|stat| stat.parent == server);
        Ok(Counters::of_cpu(ended + sessions.map(|stat| stat.used_us).sum::<f64>()))
    }

    fn version(&self) -> Option<(&'static str, String)> {
        Some(("postgres", PostgresServer::version().ok()?))
    }
}

const DATABASE: &str = "compare";

struct MariaDb(MariaDbServer);

impl MariaDb {
    /// With the schema, and with the table of the row.
    fn start(pin: Option<&str>) -> Outcome<Self> {
        let server = MariaDbServer::start(MariaDbOptions::new())?;
        server.create_database(DATABASE)?;
        server.script(DATABASE, &tenure_mysql::install_sql())?;
        let row =
            "CREATE TABLE bare (name VARBINARY(512) PRIMARY KEY, token VARBINARY(32), until DATETIME(6) NOT NULL)";
        server.sql(DATABASE, row)?;
        pin_process(server.pid(), pin)?;
        Ok(Self(server))
    }
}

impl Server for MariaDb {
    fn ports(&self, _way: Way) -> Outcome<Vec<u16>> {
        Ok(vec![self.0.port()])
    }

    fn tidy(&self) -> Outcome {
        for table in ["bare", "tenure_lock", "tenure_tombstone"] {
            self.0.sql(DATABASE, &format!("TRUNCATE TABLE {table}"))?;
        }
        Ok(())
    }

    fn counters(&self) -> Outcome<Counters> {
        let pid = self.0.pid().ok_or("the server has ended")?;
        Ok(Counters::of_cpu(stat(pid).map_or(0.0, |stat| stat.used_us)))
    }

    fn version(&self) -> Option<(&'static str, String)> {
        Some(("mariadb", MariaDbServer::version().ok()?))
    }
}

/// A folder on a disk, where there is one beside memory; another one for each measurement.
struct Files(RefCell<TempDir>);

impl Server for Files {
    fn ports(&self, _way: Way) -> Outcome<Vec<u16>> {
        Ok(Vec::new())
    }

    fn folder(&self) -> String {
        self.0.borrow().path().display().to_string()
    }

    fn tidy(&self) -> Outcome {
        self.0.replace(TempDir::new()?);
        Ok(())
    }
}

/// What a process has used, and those of its children that have ended.
struct Stat {
    parent: u32,
    used_us: f64,
    of_children_us: f64,
}

/// Of `/proc/PID/stat`, which counts ticks, a hundred in a second.
fn stat(pid: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = text.rsplit(')').next()?.split_whitespace().collect();
    let micros = |at: usize| Some(fields.get(at)?.parse::<f64>().ok()? * 1e4);
    let parent = fields.get(1)?.parse().ok()?;
    Some(Stat { parent, used_us: micros(11)? + micros(12)?, of_children_us: micros(13)? + micros(14)? })
}
