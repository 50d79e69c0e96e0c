//! The `postgres` driver, on servers of the harness's own.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use tenure_conformance::harness::{ClockStep, Data, OpenPush};
use tenure_conformance::{
    BoxError, CaseContext, Declared, Fault, FaultKind, Harness, HarnessMaker, Healer, Inspector, Isolation, Missing,
    Residue,
};
use tenure_core::driver::Backend;
use tenure_core::{FenceFloor, LockName};
use tenure_postgres::{Install, PostgresConfig, PostgresDriver, install_sql};
use tenure_testkit::{PgBouncer, PostgresOptions, PostgresServer, TcpProxy};
use tokio_postgres::NoTls;

use crate::defaults::{self, Defaults};
use crate::other::Program;
use crate::proxied::{self, DAYS};

/// Within reach of the cases that fill a queue.
const MAX_WAITERS: u32 = 100;
const MAX_DEPTH: u32 = 50;
/// Few enough to be filled.
const MAX_DEAD_LETTERS: u64 = 200;
/// A hundred clients at once, each with one connection for requests and one that listens, beside the other cases.
const MOST_CONNECTIONS: &str = "600";
/// Long enough for every case.
const LONGEST: Duration = Duration::from_secs(86_400);

type Shared = Arc<Mutex<Servers>>;

fn lock(servers: &Shared) -> MutexGuard<'_, Servers> {
    servers.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A server, and the parts between it and the clients.
#[derive(Debug)]
struct Servers {
    pooler: Option<PgBouncer>,
    postgres: PostgresServer,
}

/// How clients reach the tables of locks, and what becomes of these in a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Unlogged,
    Logged,
    /// Unlogged, through a pooler in transaction mode.
    Pooled,
}

/// The `postgres` driver on a server. Cases that only use names of their own share one; the others have one each.
#[derive(Debug)]
pub struct PostgresMaker {
    kind: Kind,
    /// A server of another version than the installed one.
    other: Option<Program>,
    shared: Mutex<Weak<Mutex<Servers>>>,
    version: OnceLock<String>,
}

impl PostgresMaker {
    /// The backend `postgres/unlogged`.
    #[must_use]
    pub fn unlogged() -> Self {
        Self { kind: Kind::Unlogged, other: None, shared: Mutex::default(), version: OnceLock::new() }
    }

    /// The backend `postgres/unlogged@18`.
    #[must_use]
    pub fn of_18() -> Self {
        Self { other: Some(Program::Other("postgres-18")), ..Self::unlogged() }
    }

    /// The folder of its programs; the link leads to one of them.
    fn folder(&self) -> Result<Option<PathBuf>, BoxError> {
        let Some(program) = &self.other else { return Ok(None) };
        Ok(program.path().canonicalize()?.parent().map(Path::to_owned))
    }

    /// The backend `postgres/logged`.
    #[must_use]
    pub fn logged() -> Self {
        Self { kind: Kind::Logged, ..Self::unlogged() }
    }

    /// The backend `postgres/pgbouncer`.
    #[must_use]
    pub fn pooled() -> Self {
        Self { kind: Kind::Pooled, ..Self::unlogged() }
    }

    fn start(&self) -> Result<Shared, BoxError> {
        let postgres = start(self.kind, self.folder()?)?;
        let pooler = (self.kind == Kind::Pooled)
            .then(|| PgBouncer::start_with(&postgres, &[], &[("max_client_conn", MOST_CONNECTIONS)]))
            .transpose()?;
        Ok(Arc::new(Mutex::new(Servers { pooler, postgres })))
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

/// A server with the driver's schema; of these programs, if a folder is given.
fn start(kind: Kind, folder: Option<PathBuf>) -> Result<PostgresServer, BoxError> {
    let options = PostgresOptions::new().movable_clock().setting("max_connections", MOST_CONNECTIONS);
    let postgres = PostgresServer::start(folder.into_iter().fold(options, PostgresOptions::programs))?;
    postgres.script("postgres", &install_sql(Install { logged: kind == Kind::Logged, longest_ttl: LONGEST }))?;
    Ok(postgres)
}

#[async_trait]
impl HarnessMaker for PostgresMaker {
    fn id(&self) -> &str {
        match self.kind {
            _ if self.other.is_some() => "postgres/unlogged@18",
            Kind::Unlogged => "postgres/unlogged",
            Kind::Logged => "postgres/logged",
            Kind::Pooled => "postgres/pgbouncer",
        }
    }

    /// The driver's defaults, and caps that the suite can reach. The suite compares it with the live driver.
    fn declared(&self) -> Declared {
        let Defaults { mut locks, reentrant, permits, queue, census } = defaults::postgres(self.kind == Kind::Logged);
        locks.ttl.max = LONGEST;
        let queue = queue.map(|queue| queue.with_dead_letters(MAX_DEAD_LETTERS));
        let declared =
            Declared::new(locks.with_max_waiters(Some(MAX_WAITERS))).reentrant(reentrant.with_max_depth(MAX_DEPTH));
        let permits = permits.map(|permits| permits.with_ttl(locks.ttl).with_max_waiters(Some(MAX_WAITERS)));
        let declared = permits.into_iter().fold(declared, Declared::permits);
        let declared = queue.into_iter().fold(declared, Declared::queue);
        census
            .into_iter()
            .fold(declared, Declared::census)
            .several_processes()
            .past_killed_waiters(Duration::from_millis(500))
            .visible_leftovers()
            .fence_floors()
            .faults([FaultKind::ExpireLease, FaultKind::CutConnections, FaultKind::SilenceConnections])
            .faults([FaultKind::CutNotifications, FaultKind::OpenPush, FaultKind::PassDays])
            .faults((self.kind != Kind::Pooled).then_some(FaultKind::FewConnections))
            .faults((self.kind != Kind::Pooled).then_some(FaultKind::DemoteServer))
            .faults([FaultKind::MuteNotifications, FaultKind::PauseServer, FaultKind::JumpServerClock])
            .faults((self.kind == Kind::Logged).then_some(FaultKind::RestartKeepingData))
    }

    fn configured(&self) -> Result<(), Missing> {
        if PostgresServer::version().is_err() {
            return Err(Missing::new("no PostgreSQL: the Debian package postgresql has it"));
        }
        if let Some(program) = &self.other {
            return program.found();
        }
        match self.server().as_str() {
            "" => Err(Missing::new("no PgBouncer: the Debian package pgbouncer has it")),
            _ => Ok(()),
        }
    }

    fn server(&self) -> String {
        if let Some(program) = &self.other {
            let version = program.version("(PostgreSQL) ");
            return version.rsplit(' ').next().map_or_else(String::new, |version| format!("PostgreSQL {version}"));
        }
        let version = || {
            let postgres = PostgresServer::version()?;
            match self.kind {
                Kind::Unlogged | Kind::Logged => Ok(postgres),
                Kind::Pooled => PgBouncer::version().map(|pooler| format!("{postgres} behind {pooler}")),
            }
        };
        self.version.get_or_init(|| version().unwrap_or_else(|_: std::io::Error| String::new())).clone()
    }

    async fn make(&self, context: CaseContext) -> Result<Box<dyn Harness>, BoxError> {
        let servers = self.server_for(context.isolation)?;
        let proxy = Arc::new(TcpProxy::start(lock(&servers).postgres.port())?);
        let pooler = lock(&servers).pooler.as_ref().map(PgBouncer::port).map(TcpProxy::start).transpose()?;
        let pooler = pooler.map(Arc::new);
        // A client of a server of its own has the default number of connections.
        let connections = if context.isolation == Isolation::Exclusive { "" } else { "&connections=1" };
        let (kind, folder, opened) = (self.kind, self.folder()?, Vec::new());
        let successor = None;
        Ok(Box::new(PostgresHarness { kind, folder, servers, proxy, pooler, connections, successor, days: 0, opened }))
    }
}

struct PostgresHarness {
    kind: Kind,
    folder: Option<PathBuf>,
    servers: Shared,
    /// The drivers connect through it; where there is a pooler, their listening sessions do.
    proxy: Arc<TcpProxy>,
    /// Before the pooler.
    pooler: Option<Arc<TcpProxy>>,
    connections: &'static str,
    /// The server that took over from the demoted one.
    successor: Option<PostgresServer>,
    /// How many days have passed for the server.
    days: u32,
    opened: Vec<Backend>,
}

impl PostgresHarness {
    fn url(&self) -> String {
        let servers = lock(&self.servers);
        let (port, words) = match &self.pooler {
            None => (self.proxy.port(), String::new()),
            Some(pooler) => (pooler.port(), format!("&prepare=false&listen=127.0.0.1:{}", self.proxy.port())),
        };
        let url = servers.postgres.url_through(port, "postgres");
        let connections = self.connections;
        format!(
            "{url}?max_waiters={MAX_WAITERS}&max_depth={MAX_DEPTH}&max_dead_letters={MAX_DEAD_LETTERS}{words}{connections}"
        )
    }

    /// Pushes in a transaction that ends when it is healed.
    async fn open_push(&self, OpenPush { queue, id }: OpenPush) -> Result<Healer, BoxError> {
        let url = lock(&self.servers).postgres.url("postgres");
        let (session, connection) = tokio_postgres::connect(&url, NoTls).await?;
        let running = tokio::spawn(connection);
        session.batch_execute("BEGIN").await?;
        let queue = std::str::from_utf8(queue.as_bytes())?;
        let window = if id.is_some() { "1 minute" } else { "0" };
        let push = format!("SELECT tenure.push($1, 'open', id => $2, known_for => '{window}')");
        session.query(&push, &[&queue, &id]).await?;
        Ok(Healer::new(async move {
            session.batch_execute("COMMIT").await?;
            drop(session);
            Ok(running.await??)
        }))
    }

    fn sql(&self, statements: &str) -> Result<String, BoxError> {
        Ok(lock(&self.servers).postgres.sql("postgres", statements)?)
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
        let servers = Arc::clone(&self.servers);
        match fault {
            Fault::ExpireLease(name) => {
                let end = format!(
                    "UPDATE tenure.lock SET until = since WHERE name = {} AND entries <> '{{}}' RETURNING 1",
                    bytes(&name)
                );
                if !self.sql(&end)?.starts_with('1') {
                    return Err("no client holds the lock".into());
                }
            }
            Fault::CutNotifications => {
                self.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN tenure%'")?;
            }
            Fault::MuteNotifications => {
                let (loud, mute) = (" pg_notify(''tenure_''", " concat(''tenure_''");
                self.sql(&replaced(loud, mute))?;
                return Ok(Healer::new(async move {
                    lock(&servers).postgres.sql("postgres", &replaced(mute, loud))?;
                    Ok(())
                }));
            }
            Fault::PauseServer => {
                lock(&servers).postgres.pause()?;
                return Ok(Healer::new(async move { Ok(lock(&servers).postgres.resume()?) }));
            }
            Fault::KillServer(Data::Kept) => {
                lock(&servers).postgres.kill()?;
                return Ok(Healer::new(async move { Ok(lock(&servers).postgres.restart()?) }));
            }
            Fault::DemoteServer => {
                let successor = start(self.kind, self.folder.clone())?;
                for demote in ["ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()"] {
                    self.sql(demote)?;
                }
                self.proxy.lead_to(successor.port());
                self.successor = Some(successor);
            }
            Fault::OpenPush(push) => return self.open_push(push).await,
            Fault::PassDays => {
                self.days += 1;
                let micros = i64::try_from((DAYS * self.days).as_micros())?;
                lock(&servers).postgres.set_clock_offset(micros)?;
            }
            Fault::JumpServerClock(step) => {
                let micros = match step {
                    ClockStep::Forward(by) => i64::try_from(by.as_micros())?,
                    ClockStep::Back(by) => -i64::try_from(by.as_micros())?,
                };
                lock(&servers).postgres.set_clock_offset(micros)?;
                return Ok(Healer::new(async move { Ok(lock(&servers).postgres.set_clock_offset(0)?) }));
            }
            other => {
                let proxies = self.pooler.iter().chain([&self.proxy]).cloned().collect();
                return proxied::inject(proxies, &other);
            }
        }
        Ok(Healer::nothing())
    }

    fn inspector(&self) -> Option<Arc<dyn Inspector>> {
        Some(Arc::new(PostgresInspector(Arc::clone(&self.servers))))
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

/// Changes the functions that hand a lock over; an error if one of them has no `old`.
fn replaced(old: &str, new: &str) -> String {
    format!(
        "DO $do$ DECLARE f regproc; d text; BEGIN
           FOREACH f IN ARRAY ARRAY['tenure.turn', 'tenure.release']::regproc[] LOOP
             d := pg_get_functiondef(f);
             IF strpos(d, '{old}') = 0 THEN RAISE 'there is no {old} in %', f; END IF;
             EXECUTE replace(d, '{old}', '{new}');
           END LOOP;
         END $do$"
    )
}

/// A look at the rows, past the driver.
struct PostgresInspector(Shared);

#[async_trait]
impl Inspector for PostgresInspector {
    async fn residue(&self, name: &LockName) -> Result<Residue, BoxError> {
        let count = |rows| format!("(SELECT count(*) FROM tenure.{rows} > tenure.us() AND name = {})", bytes(name));
        let counts =
            ["lock WHERE entries <> '{}' AND until", "waiter WHERE present", "tombstone WHERE until"].map(count);
        let (servers, statement) = (Arc::clone(&self.0), format!("SELECT {}", counts.join(", ")));
        // A program that is waited for, and not on the thread that renews the case's leases.
        let look = move || lock(&servers).postgres.sql("postgres", &statement);
        let counts = tokio::task::spawn_blocking(look).await??;
        let counts = counts.trim().split('|').map(str::parse).collect::<Result<Vec<usize>, _>>()?;
        let [leases, waiters, tombstones] = counts[..] else { return Err("not three counts".into()) };
        Ok(Residue { leases, waiters, tombstones, ..Residue::default() })
    }

    async fn names(&self) -> Result<usize, BoxError> {
        Ok(lock(&self.0).postgres.sql("postgres", "SELECT count(*) FROM tenure.lock")?.trim().parse()?)
    }
}
