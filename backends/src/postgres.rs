//! The `postgres` driver, on servers of the harness's own.

use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use tenure_conformance::harness::{ClockStep, Data};
use tenure_conformance::{
    BoxError, CaseContext, Declared, Fault, FaultKind, Harness, HarnessMaker, Healer, Inspector, Isolation, Missing,
    Residue,
};
use tenure_core::driver::Backend;
use tenure_core::{FenceFloor, LockName};
use tenure_postgres::{Install, PostgresConfig, PostgresDriver, install_sql};
use tenure_testkit::{PostgresOptions, PostgresServer, TcpProxy};

use crate::defaults::{self, Defaults};

/// Within reach of the cases that fill a queue.
const MAX_WAITERS: u32 = 100;
const MAX_DEPTH: u32 = 50;
/// Few enough to be filled.
const MAX_DEAD_LETTERS: u64 = 200;
/// A hundred clients at once, each with one connection for requests and one that listens, beside the other cases.
const MOST_CONNECTIONS: &str = "600";
/// Long enough for every case.
const LONGEST: Duration = Duration::from_secs(86_400);

type Shared = Arc<Mutex<PostgresServer>>;

fn lock(server: &Shared) -> MutexGuard<'_, PostgresServer> {
    server.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The `postgres` driver on a server. Cases that only use names of their own share one; the others have one each.
#[derive(Debug)]
pub struct PostgresMaker {
    logged: bool,
    shared: Mutex<Weak<Mutex<PostgresServer>>>,
    version: OnceLock<String>,
}

impl PostgresMaker {
    /// The backend `postgres/unlogged`.
    #[must_use]
    pub fn unlogged() -> Self {
        Self { logged: false, shared: Mutex::default(), version: OnceLock::new() }
    }

    /// The backend `postgres/logged`.
    #[must_use]
    pub fn logged() -> Self {
        Self { logged: true, ..Self::unlogged() }
    }

    fn start(&self) -> Result<Shared, BoxError> {
        let server =
            PostgresServer::start(PostgresOptions::new().movable_clock().setting("max_connections", MOST_CONNECTIONS))?;
        server.script("postgres", &install_sql(Install { logged: self.logged, longest_ttl: LONGEST }))?;
        Ok(Arc::new(Mutex::new(server)))
    }

    fn server_for(&self, isolation: Isolation) -> Result<Shared, BoxError> {
        if isolation == Isolation::Exclusive {
            return self.start();
        }
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = shared.upgrade() {
            return Ok(server);
        }
        let server = self.start()?;
        *shared = Arc::downgrade(&server);
        Ok(server)
    }
}

#[async_trait]
impl HarnessMaker for PostgresMaker {
    fn id(&self) -> &str {
        if self.logged { "postgres/logged" } else { "postgres/unlogged" }
    }

    /// The driver's defaults, and caps that the suite can reach. The suite compares it with the live driver.
    fn declared(&self) -> Declared {
        let Defaults { mut locks, reentrant, queue } = defaults::postgres(self.logged);
        locks.ttl.max = LONGEST;
        let queue = queue.map(|queue| queue.with_dead_letters(MAX_DEAD_LETTERS));
        let declared =
            Declared::new(locks.with_max_waiters(Some(MAX_WAITERS))).reentrant(reentrant.with_max_depth(MAX_DEPTH));
        queue
            .into_iter()
            .fold(declared, Declared::queue)
            .several_processes()
            .past_killed_waiters(Duration::from_millis(500))
            .visible_leftovers()
            .fence_floors()
            .faults([FaultKind::ExpireLease, FaultKind::CutConnections, FaultKind::CutNotifications])
            .faults([FaultKind::PauseServer, FaultKind::JumpServerClock])
            .faults(self.logged.then_some(FaultKind::RestartKeepingData))
    }

    fn configured(&self) -> Result<(), Missing> {
        match self.server().as_str() {
            "" => Err(Missing::new("no PostgreSQL: the Debian package postgresql has it")),
            _ => Ok(()),
        }
    }

    fn server(&self) -> String {
        self.version.get_or_init(|| PostgresServer::version().unwrap_or_default()).clone()
    }

    async fn make(&self, context: CaseContext) -> Result<Box<dyn Harness>, BoxError> {
        let server = self.server_for(context.isolation)?;
        let proxy = TcpProxy::start(lock(&server).port())?;
        Ok(Box::new(PostgresHarness { server, proxy, opened: Vec::new() }))
    }
}

struct PostgresHarness {
    server: Shared,
    /// The drivers connect through it.
    proxy: TcpProxy,
    opened: Vec<Backend>,
}

impl PostgresHarness {
    fn url(&self) -> String {
        let url = lock(&self.server).url_through(self.proxy.port(), "postgres");
        format!(
            "{url}?connections=1&max_waiters={MAX_WAITERS}&max_depth={MAX_DEPTH}&max_dead_letters={MAX_DEAD_LETTERS}"
        )
    }

    fn sql(&self, statements: &str) -> Result<String, BoxError> {
        Ok(lock(&self.server).sql("postgres", statements)?)
    }
}

#[async_trait]
impl Harness for PostgresHarness {
    async fn backend(&mut self) -> Result<Backend, BoxError> {
        self.backend_beyond(FenceFloor::NONE).await
    }

    async fn backend_beyond(&mut self, floor: FenceFloor) -> Result<Backend, BoxError> {
        let config: PostgresConfig = self.url().parse()?;
        let backend = Backend::from(PostgresDriver::connect_with(config.fence_floor(floor)).await?);
        self.opened.push(backend.clone());
        Ok(backend)
    }

    async fn inject(&mut self, fault: Fault) -> Result<Healer, BoxError> {
        let server = Arc::clone(&self.server);
        match fault {
            Fault::ExpireLease(name) => {
                let end = format!(
                    "UPDATE tenure.lock SET until = since WHERE name = {} AND entries <> '{{}}' RETURNING 1",
                    bytes(&name)
                );
                if !self.sql(&end)?.starts_with('1') {
                    return Err("nobody holds the lock".into());
                }
            }
            Fault::CutConnections => self.proxy.cut(),
            Fault::CutNotifications => {
                self.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN tenure%'")?;
            }
            Fault::PauseServer => {
                lock(&server).pause()?;
                return Ok(Healer::new(async move { Ok(lock(&server).resume()?) }));
            }
            Fault::KillServer(Data::Kept) => {
                lock(&server).kill()?;
                return Ok(Healer::new(async move { Ok(lock(&server).restart()?) }));
            }
            Fault::JumpServerClock(step) => {
                let micros = match step {
                    ClockStep::Forward(by) => i64::try_from(by.as_micros())?,
                    ClockStep::Back(by) => -i64::try_from(by.as_micros())?,
                };
                lock(&server).set_clock_offset(micros)?;
                return Ok(Healer::new(async move { Ok(lock(&server).set_clock_offset(0)?) }));
            }
            other => return Err(format!("a PostgreSQL server cannot {other:?} here").into()),
        }
        Ok(Healer::nothing())
    }

    fn inspector(&self) -> Option<Arc<dyn Inspector>> {
        Some(Arc::new(PostgresInspector(Arc::clone(&self.server))))
    }

    fn worker_command(&self) -> Option<Command> {
        let mut command = Command::new(std::env::current_exe().ok()?);
        command.arg("--worker").arg(self.url());
        Some(command)
    }

    async fn teardown(self: Box<Self>) -> Result<(), BoxError> {
        for backend in &self.opened {
            backend.locks().close().await;
        }
        Ok(())
    }
}

/// A name as a literal.
fn bytes(name: &LockName) -> String {
    let digits: String = name.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("'\\x{digits}'::bytea")
}

/// A look at the rows, past the driver.
struct PostgresInspector(Shared);

#[async_trait]
impl Inspector for PostgresInspector {
    async fn residue(&self, name: &LockName) -> Result<Residue, BoxError> {
        let count = |rows: &str| -> Result<usize, BoxError> {
            let count = format!("SELECT count(*) FROM tenure.{rows} > tenure.us() AND name = {}", bytes(name));
            Ok(lock(&self.0).sql("postgres", &count)?.trim().parse()?)
        };
        Ok(Residue {
            leases: count("lock WHERE entries <> '{}' AND until")?,
            waiters: count("waiter WHERE present")?,
            tombstones: count("tombstone WHERE until")?,
            ..Residue::default()
        })
    }
}
