//! Which driver, on which server.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use tenure_conformance::{BoxError, CaseContext, Declared, FaultKind, Harness, HarnessMaker, Isolation, Missing};
use tenure_core::driver::{
    Exclusion, Fencing, Introspection, LockCapabilities, OwnerScope, ReentrantCapabilities, Revocation, TtlRange,
    Waiting,
};
use tenure_testkit::{RedisOptions, RedisServer};

use super::harness::RedisHarness;

/// A cap on waiters that the suite can reach.
pub(super) const MAX_WAITERS: u32 = 100;

/// The `redis` driver on one server. Cases that only use names of their own share a server; the others have one each.
#[derive(Debug, Default)]
pub struct RedisMaker {
    shared: Mutex<Weak<Mutex<RedisServer>>>,
    worker: Option<PathBuf>,
    version: OnceLock<String>,
}

impl RedisMaker {
    /// The backend `redis/single`.
    #[must_use]
    pub fn single() -> Self {
        Self::default()
    }

    /// The program that serves as a worker when called with `--worker <url>`; by default the one that runs now.
    #[must_use]
    pub fn worker(mut self, program: impl Into<PathBuf>) -> Self {
        self.worker = Some(program.into());
        self
    }

    fn server_for(&self, isolation: Isolation) -> Result<Arc<Mutex<RedisServer>>, BoxError> {
        if isolation == Isolation::Exclusive {
            let options = RedisOptions::new().append_only().movable_clock();
            return Ok(Arc::new(Mutex::new(RedisServer::start(options)?)));
        }
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = shared.upgrade() {
            return Ok(server);
        }
        let server = Arc::new(Mutex::new(RedisServer::start(RedisOptions::new())?));
        *shared = Arc::downgrade(&server);
        Ok(server)
    }
}

#[async_trait]
impl HarnessMaker for RedisMaker {
    fn id(&self) -> &str {
        "redis/single"
    }

    /// Written down a second time on purpose: the suite compares it with the live driver.
    fn declared(&self) -> Declared {
        let locks = LockCapabilities {
            exclusion: Exclusion::SingleNode,
            fencing: Fencing::ClockSeeded,
            waiting: Waiting::Fifo,
            ttl: TtlRange {
                min: Duration::from_millis(10),
                max: Duration::from_secs(24 * 86_400),
                granularity: Duration::from_millis(1),
            },
            introspection: Introspection::Full,
            revocation: Revocation::Forced,
            max_waiters: Some(MAX_WAITERS),
            renew_batch: 100,
        };
        Declared::new(locks)
            .reentrant(ReentrantCapabilities { scope: OwnerScope::Backend, max_depth: 65_535 })
            .several_processes()
            .visible_leftovers()
            .faults([FaultKind::ExpireLease, FaultKind::CutConnections, FaultKind::CutNotifications])
            .faults([FaultKind::PauseServer, FaultKind::RestartKeepingData, FaultKind::RestartLosingData])
            .faults([FaultKind::ForgetScripts, FaultKind::JumpServerClock])
    }

    fn configured(&self) -> Result<(), Missing> {
        let program = std::env::var_os("TENURE_REDIS_SERVER").unwrap_or_else(|| "redis-server".into());
        let paths = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&paths).any(|folder| folder.join(Path::new(&program)).is_file());
        if found { Ok(()) } else { Err(Missing::new("no redis-server on the PATH")) }
    }

    fn server(&self) -> String {
        let version = self.version.get_or_init(|| {
            let program = std::env::var_os("TENURE_REDIS_SERVER").unwrap_or_else(|| "redis-server".into());
            let output = Command::new(program).arg("--version").output();
            let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
            let version = text.split_whitespace().find_map(|word| word.strip_prefix("v="));
            format!("redis-server {}", version.unwrap_or("of unknown version"))
        });
        version.clone()
    }

    async fn make(&self, context: CaseContext) -> Result<Box<dyn Harness>, BoxError> {
        let server = self.server_for(context.isolation)?;
        let worker = self.worker.clone().map_or_else(std::env::current_exe, Ok)?;
        Ok(Box::new(RedisHarness::new(server, worker)))
    }
}
