//! Which driver, on which server.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use tenure_conformance::{BoxError, CaseContext, Declared, FaultKind, Harness, HarnessMaker, Isolation, Missing};

use tenure_testkit::RedisOptions;

use super::front::Front;
use super::harness::RedisHarness;
use super::servers::{Servers, Shared};
use super::setup::{Library, MAX_WAITERS, Setup};
use crate::defaults::{self, Defaults};
use crate::other::Program;

const USUAL: Program = Program::Usual { name: "redis-server", variable: "TENURE_REDIS_SERVER" };

/// A driver on servers in some arrangement. Cases that only use names of their own share them; the others have their
/// own.
pub struct RedisMaker {
    library: Library,
    setup: Setup,
    id: String,
    program: Program,
    passing: bool,
    shared: Mutex<Weak<Mutex<Servers>>>,
    worker: Option<PathBuf>,
    version: OnceLock<String>,
}

impl fmt::Debug for RedisMaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisMaker({})", self.id)
    }
}

impl RedisMaker {
    /// The backend `<library>/<setup>`, such as `redis/single`.
    #[must_use]
    pub fn new(library: Library, setup: Setup) -> Self {
        let id = format!("{}/{}", library.name(), setup.name());
        let (shared, worker, version) = (Mutex::default(), None, OnceLock::new());
        Self { library, setup, id, program: USUAL, passing: true, shared, worker, version }
    }

    /// The backend `redis/no-passing`: one server, and clients that pass no lease on.
    #[must_use]
    pub fn without_passing() -> Self {
        Self { id: String::from("redis/no-passing"), passing: false, ..Self::single() }
    }

    /// The backend `redis/single`.
    #[must_use]
    pub fn single() -> Self {
        Self::new(Library::Redis, Setup::Single)
    }

    /// The backend `redis/<setup>@<version>`, on a server that is not the usual one: `redis-6.2`.
    pub(crate) fn other(setup: Setup, program: &'static str) -> Self {
        let version = program.strip_prefix("redis-").unwrap_or(program);
        let id = format!("redis/{}@{version}", setup.name());
        Self { id, program: Program::Other(program), ..Self::new(Library::Redis, setup) }
    }

    /// Every library on every setup.
    pub fn all() -> impl Iterator<Item = Self> {
        Library::ALL.into_iter().flat_map(|library| Setup::ALL.map(|setup| Self::new(library, setup)))
    }

    /// The program that serves as a worker when called with `--worker <url>`; by default the one that runs now.
    #[must_use]
    pub fn worker(mut self, program: impl Into<PathBuf>) -> Self {
        self.worker = Some(program.into());
        self
    }

    fn servers_for(&self, isolation: Isolation) -> Result<Shared, BoxError> {
        let options = self.program.instead().into_iter().fold(RedisOptions::new(), RedisOptions::program);
        if isolation == Isolation::Exclusive {
            let mut options = options.append_only();
            if self.setup.is_alone() {
                options = options.movable_clock();
            }
            return Ok(Arc::new(Mutex::new(Servers::start(self.setup, self.library, options)?)));
        }
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(servers) = shared.upgrade() {
            return Ok(servers);
        }
        let servers = Arc::new(Mutex::new(Servers::start(self.setup, self.library, options)?));
        *shared = Arc::downgrade(&servers);
        Ok(servers)
    }
}

#[async_trait]
impl HarnessMaker for RedisMaker {
    fn id(&self) -> &str {
        &self.id
    }

    /// The driver's defaults, and caps that the suite can reach. The suite compares it with the live driver.
    fn declared(&self) -> Declared {
        let Defaults { locks, reentrant, permits, queue, census } = defaults::redis(self.setup.exclusion());
        let declared = Declared::new(locks.with_max_waiters(Some(MAX_WAITERS))).reentrant(reentrant);
        let permits = permits.map(|permits| permits.with_max_waiters(Some(MAX_WAITERS)));
        let declared = permits.into_iter().fold(declared, Declared::permits);
        let declared = queue.into_iter().fold(declared, Declared::queue);
        let declared = census.into_iter().fold(declared, Declared::census);
        let declared = if self.passing { declared } else { declared.without_passing() };
        declared
            .several_processes()
            .past_killed_waiters(Duration::from_millis(50))
            .visible_leftovers()
            .fence_floors()
            .faults([FaultKind::ExpireLease, FaultKind::CutConnections, FaultKind::CutNotifications])
            .faults([FaultKind::PauseServer, FaultKind::RestartKeepingData, FaultKind::RestartLosingData])
            .faults([FaultKind::ForgetScripts])
            .faults(self.setup.is_alone().then_some(FaultKind::JumpServerClock))
            .faults(self.setup.is_alone().then_some(FaultKind::PassDays))
            .faults(if self.setup == Setup::Single { Front::FAULTS } else { &[] }.iter().copied())
    }

    fn configured(&self) -> Result<(), Missing> {
        self.program.found()
    }

    fn server(&self) -> String {
        self.version.get_or_init(|| self.program.version(" v=")).clone()
    }

    async fn make(&self, context: CaseContext) -> Result<Box<dyn Harness>, BoxError> {
        let servers = self.servers_for(context.isolation)?;
        let worker = self.worker.clone().map_or_else(std::env::current_exe, Ok)?;
        let front = self.setup == Setup::Single && context.isolation == Isolation::Exclusive;
        let front = if front { Some(Front::before(&servers)?) } else { None };
        Ok(Box::new(RedisHarness::new(self.library, self.setup, servers, front, worker, context.slack)))
    }
}
