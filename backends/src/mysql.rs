//! The `mysql` driver, on MariaDB and MySQL servers of the harness's own.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use async_trait::async_trait;
use mysql_async::Conn;
use mysql_async::prelude::Queryable as _;
use tenure_conformance::harness::{ClockStep, Data, OpenPush};
use tenure_conformance::{
    BoxError, CaseContext, Declared, Fault, FaultKind, Harness, HarnessMaker, Healer, Inspector, Isolation, Missing,
    Residue,
};
use tenure_core::driver::Backend;
use tenure_core::{FenceFloor, LockName};
use tenure_mysql::{MysqlConfig, MysqlDriver, install_sql};
use tenure_testkit::{MariaDbOptions, MariaDbServer, TcpProxy};

use crate::defaults::{self, Defaults};
use crate::other::Program;
use crate::proxied::{self, DAYS};

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

/// The `mysql` driver on one server. Cases that only use names of their own share one; the others have one each.
#[derive(Debug, Default)]
pub struct MysqlMaker {
    /// A MySQL server in place of MariaDB.
    mysql: Option<Program>,
    shared: Mutex<Weak<Mutex<MariaDbServer>>>,
    version: OnceLock<String>,
}

impl MysqlMaker {
    /// On MariaDB.
    #[must_use]
    pub fn mariadb() -> Self {
        Self::default()
    }

    /// The backend `mysql/mysql@8.0`.
    #[must_use]
    pub fn of_8_0() -> Self {
        Self { mysql: Some(Program::Other("mysql-8.0")), ..Self::default() }
    }

    /// Where the MySQL server is unpacked; the link leads to its program.
    fn folder(&self) -> Result<Option<PathBuf>, BoxError> {
        let Some(program) = &self.mysql else { return Ok(None) };
        let program = program.path().canonicalize()?;
        Ok(program.ancestors().nth(2).map(Path::to_owned))
    }

    fn server_for(&self, isolation: Isolation) -> Result<Shared, BoxError> {
        if isolation == Isolation::Exclusive {
            return start(self.folder()?);
        }
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = shared.upgrade() {
            return Ok(server);
        }
        let server = start(self.folder()?)?;
        *shared = Arc::downgrade(&server);
        Ok(server)
    }
}

/// A server with the driver's tables; MySQL if there is a folder of it.
fn start(mysql: Option<PathBuf>) -> Result<Shared, BoxError> {
    let options = MariaDbOptions::new().movable_clock().setting("max-connections", MOST_CONNECTIONS);
    let server = MariaDbServer::start(mysql.into_iter().fold(options, MariaDbOptions::mysql))?;
    server.create_database(DATABASE)?;
    server.script(DATABASE, &install_sql())?;
    Ok(Arc::new(Mutex::new(server)))
}

#[async_trait]
impl HarnessMaker for MysqlMaker {
    fn id(&self) -> &str {
        if self.mysql.is_some() { "mysql/mysql@8.0" } else { "mysql/mariadb" }
    }

    /// The driver's defaults, and caps that the suite can reach. The suite compares it with the live driver.
    fn declared(&self) -> Declared {
        let Defaults { locks, reentrant, permits, queue, census } = defaults::mysql();
        let queue = queue.map(|queue| queue.with_dead_letters(MAX_DEAD_LETTERS));
        let declared = Declared::new(locks).reentrant(reentrant.with_max_depth(MAX_DEPTH));
        let declared = permits.into_iter().fold(declared, Declared::permits);
        let declared = queue.into_iter().fold(declared, Declared::queue);
        census
            .into_iter()
            .fold(declared, Declared::census)
            .several_processes()
            .visible_leftovers()
            .fence_floors()
            .faults([FaultKind::ExpireLease, FaultKind::CutConnections, FaultKind::SilenceConnections])
            .faults([FaultKind::PauseServer, FaultKind::JumpServerClock, FaultKind::RestartKeepingData])
            .faults([FaultKind::FewConnections, FaultKind::DemoteServer, FaultKind::OpenPush, FaultKind::PassDays])
    }

    fn configured(&self) -> Result<(), Missing> {
        if let Some(program) = &self.mysql {
            program.found()?;
        }
        match self.server().as_str() {
            "" => Err(Missing::new("no MariaDB: the Debian package mariadb-server has it")),
            _ => Ok(()),
        }
    }

    fn server(&self) -> String {
        let version = || match &self.mysql {
            None => MariaDbServer::version().unwrap_or_default(),
            Some(program) => {
                program.version("Ver ").rsplit(' ').next().map_or_else(String::new, |it| format!("MySQL {it}"))
            }
        };
        self.version.get_or_init(version).clone()
    }

    async fn make(&self, context: CaseContext) -> Result<Box<dyn Harness>, BoxError> {
        let server = self.server_for(context.isolation)?;
        let proxy = Arc::new(TcpProxy::start(lock(&server).port())?);
        // A client of a server of its own has the default number of connections.
        let connections = if context.isolation == Isolation::Exclusive { "" } else { "&connections=1" };
        let (folder, opened) = (self.folder()?, Vec::new());
        Ok(Box::new(MysqlHarness { server, proxy, connections, folder, successor: None, days: 0, opened }))
    }
}

struct MysqlHarness {
    server: Shared,
    /// The drivers connect through it.
    proxy: Arc<TcpProxy>,
    connections: &'static str,
    folder: Option<PathBuf>,
    /// The server that took over from the demoted one.
    successor: Option<Shared>,
    /// How many days have passed for the server.
    days: u32,
    opened: Vec<Backend>,
}

impl MysqlHarness {
    fn url(&self) -> String {
        let url = lock(&self.server).url_through(self.proxy.port(), DATABASE);
        let connections = self.connections;
        format!("{url}?max_depth={MAX_DEPTH}&max_dead_letters={MAX_DEAD_LETTERS}{connections}")
    }

    /// Pushes in a transaction that ends when it is healed.
    async fn open_push(&self, OpenPush { queue, id }: OpenPush) -> Result<Healer, BoxError> {
        let url = lock(&self.server).url(DATABASE);
        let mut session = Conn::from_url(url).await?;
        session.query_drop("BEGIN").await?;
        let window = id.as_ref().map(|_| 60);
        session.exec_drop("CALL tenure_push(?, 'open', 0, ?, ?, NULL, NULL)", (queue.as_bytes(), id, window)).await?;
        Ok(Healer::new(async move {
            session.query_drop("COMMIT").await?;
            Ok(session.disconnect().await?)
        }))
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
                    return Err("no client holds the lock".into());
                }
            }
            Fault::PauseServer => {
                lock(&server).pause()?;
                return Ok(Healer::new(async move { Ok(lock(&server).resume()?) }));
            }
            Fault::KillServer(Data::Kept) => {
                lock(&server).kill()?;
                return Ok(Healer::new(async move { Ok(lock(&server).restart()?) }));
            }
            Fault::DemoteServer => {
                let successor = start(self.folder.clone())?;
                lock(&server).sql("", "SET GLOBAL read_only = 1")?;
                self.proxy.lead_to(lock(&successor).port());
                self.successor = Some(successor);
            }
            Fault::OpenPush(push) => return self.open_push(push).await,
            Fault::PassDays => {
                self.days += 1;
                lock(&server).set_clock_offset(i64::try_from((DAYS * self.days).as_micros())?)?;
            }
            Fault::JumpServerClock(step) => {
                let micros = match step {
                    ClockStep::Forward(by) => i64::try_from(by.as_micros())?,
                    ClockStep::Back(by) => -i64::try_from(by.as_micros())?,
                };
                lock(&server).set_clock_offset(micros)?;
                return Ok(Healer::new(async move { Ok(lock(&server).set_clock_offset(0)?) }));
            }
            other => return proxied::inject(vec![Arc::clone(&self.proxy)], &other),
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
        let count = |table| format!("(SELECT COUNT(*) FROM {table} WHERE until > {NOW} AND name = {})", bytes(name));
        let counts = ["tenure_lock", "tenure_tombstone"].map(count);
        let (server, statement) = (Arc::clone(&self.0), format!("SELECT {}", counts.join(", ")));
        // A program that is waited for, and not on the thread that renews the case's leases.
        let look = move || lock(&server).sql(DATABASE, &statement);
        let counts = tokio::task::spawn_blocking(look).await??;
        let counts = counts.split_whitespace().map(str::parse).collect::<Result<Vec<usize>, _>>()?;
        let [leases, tombstones] = counts[..] else { return Err("not two counts".into()) };
        Ok(Residue { leases, tombstones, ..Residue::default() })
    }

    async fn names(&self) -> Result<usize, BoxError> {
        Ok(lock(&self.0).sql(DATABASE, "SELECT COUNT(*) FROM tenure_lock")?.trim().parse()?)
    }
}
