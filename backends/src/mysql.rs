//! The `mysql` driver, on MariaDB servers of the harness's own.

use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use async_trait::async_trait;
use tenure_conformance::harness::{ClockStep, Data};
use tenure_conformance::{
    BoxError, CaseContext, Declared, Fault, FaultKind, Harness, HarnessMaker, Healer, Inspector, Isolation, Missing,
    Residue,
};
use tenure_core::driver::Backend;
use tenure_core::{FenceFloor, LockName};
use tenure_mysql::{MysqlConfig, MysqlDriver, install_sql};
use tenure_testkit::{MariaDbOptions, MariaDbServer, TcpProxy};

use crate::defaults::{self, Defaults};

/// Within reach of the cases that fill them.
const MAX_DEPTH: u32 = 50;
const MAX_DEAD_LETTERS: u64 = 200;
/// A hundred clients at once, beside the other cases.
const MOST_CONNECTIONS: &str = "600";
/// Where the tables are.
const DATABASE: &str = "suite";
/// The clock of a row, as the driver's procedures read it.
const NOW: &str = "UNIX_TIMESTAMP(SYSDATE(6)) * 1000000";

type Shared = Arc<Mutex<MariaDbServer>>;

fn lock(server: &Shared) -> MutexGuard<'_, MariaDbServer> {
    server.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The `mysql` driver on a MariaDB server. Cases that only use names of their own share one; the others have one each.
#[derive(Debug, Default)]
pub struct MysqlMaker {
    shared: Mutex<Weak<Mutex<MariaDbServer>>>,
    version: OnceLock<String>,
}

impl MysqlMaker {
    fn start() -> Result<Shared, BoxError> {
        let server =
            MariaDbServer::start(MariaDbOptions::new().movable_clock().setting("max-connections", MOST_CONNECTIONS))?;
        server.create_database(DATABASE)?;
        server.script(DATABASE, &install_sql())?;
        Ok(Arc::new(Mutex::new(server)))
    }

    fn server_for(&self, isolation: Isolation) -> Result<Shared, BoxError> {
        if isolation == Isolation::Exclusive {
            return Self::start();
        }
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = shared.upgrade() {
            return Ok(server);
        }
        let server = Self::start()?;
        *shared = Arc::downgrade(&server);
        Ok(server)
    }
}

#[async_trait]
impl HarnessMaker for MysqlMaker {
    fn id(&self) -> &str {
        "mysql/mariadb"
    }

    /// The driver's defaults, and caps that the suite can reach. The suite compares it with the live driver.
    fn declared(&self) -> Declared {
        let Defaults { locks, reentrant, queue, census } = defaults::mysql();
        let queue = queue.map(|queue| queue.with_dead_letters(MAX_DEAD_LETTERS));
        let declared = Declared::new(locks).reentrant(reentrant.with_max_depth(MAX_DEPTH));
        let declared = queue.into_iter().fold(declared, Declared::queue);
        census
            .into_iter()
            .fold(declared, Declared::census)
            .several_processes()
            .visible_leftovers()
            .fence_floors()
            .faults([FaultKind::ExpireLease, FaultKind::CutConnections])
            .faults([FaultKind::PauseServer, FaultKind::JumpServerClock, FaultKind::RestartKeepingData])
    }

    fn configured(&self) -> Result<(), Missing> {
        match self.server().as_str() {
            "" => Err(Missing::new("no MariaDB: the Debian package mariadb-server has it")),
            _ => Ok(()),
        }
    }

    fn server(&self) -> String {
        self.version.get_or_init(|| MariaDbServer::version().unwrap_or_default()).clone()
    }

    async fn make(&self, context: CaseContext) -> Result<Box<dyn Harness>, BoxError> {
        let server = self.server_for(context.isolation)?;
        let proxy = TcpProxy::start(lock(&server).port())?;
        Ok(Box::new(MysqlHarness { server, proxy, opened: Vec::new() }))
    }
}

struct MysqlHarness {
    server: Shared,
    /// The drivers connect through it.
    proxy: TcpProxy,
    opened: Vec<Backend>,
}

impl MysqlHarness {
    fn url(&self) -> String {
        let url = lock(&self.server).url_through(self.proxy.port(), DATABASE);
        format!("{url}?connections=1&max_depth={MAX_DEPTH}&max_dead_letters={MAX_DEAD_LETTERS}")
    }
}

#[async_trait]
impl Harness for MysqlHarness {
    async fn backend(&mut self) -> Result<Backend, BoxError> {
        self.backend_beyond(FenceFloor::NONE).await
    }

    async fn backend_beyond(&mut self, floor: FenceFloor) -> Result<Backend, BoxError> {
        let config: MysqlConfig = self.url().parse()?;
        let backend = Backend::from(MysqlDriver::connect_with(config.fence_floor(floor)).await?);
        self.opened.push(backend.clone());
        Ok(backend)
    }

    async fn inject(&mut self, fault: Fault) -> Result<Healer, BoxError> {
        let server = Arc::clone(&self.server);
        match fault {
            Fault::ExpireLease(name) => {
                let end = format!(
                    "UPDATE tenure_lock SET until = since WHERE name = {} AND until > {NOW}; SELECT ROW_COUNT()",
                    bytes(&name)
                );
                if lock(&server).sql(DATABASE, &end)?.trim() != "1" {
                    return Err("nobody holds the lock".into());
                }
            }
            Fault::CutConnections => self.proxy.cut(),
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
            other => return Err(format!("a MariaDB server cannot {other:?} here").into()),
        }
        Ok(Healer::nothing())
    }

    fn inspector(&self) -> Option<Arc<dyn Inspector>> {
        Some(Arc::new(MysqlInspector(Arc::clone(&self.server))))
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
    format!("x'{digits}'")
}

/// A look at the rows, past the driver.
struct MysqlInspector(Shared);

#[async_trait]
impl Inspector for MysqlInspector {
    async fn residue(&self, name: &LockName) -> Result<Residue, BoxError> {
        let count = |table: &str| -> Result<usize, BoxError> {
            let count = format!("SELECT COUNT(*) FROM {table} WHERE until > {NOW} AND name = {}", bytes(name));
            Ok(lock(&self.0).sql(DATABASE, &count)?.trim().parse()?)
        };
        Ok(Residue { leases: count("tenure_lock")?, tombstones: count("tenure_tombstone")?, ..Residue::default() })
    }
}
