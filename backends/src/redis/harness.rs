//! One case's world on a Redis server.

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tenure_conformance::harness::{ClockStep, Data};
use tenure_conformance::{BoxError, Fault, Harness, Healer, Inspector};
use tenure_core::driver::Backend;
use tenure_redis::{RedisConfig, RedisDriver};
use tenure_redis_support::{ClientId, FenceScope, Keyspace, Prefix};
use tenure_testkit::RedisServer;

use super::inspector::RedisInspector;
use super::maker::MAX_WAITERS;

pub(super) type Server = Arc<Mutex<RedisServer>>;

pub(super) fn lock(server: &Server) -> MutexGuard<'_, RedisServer> {
    server.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn keyspace() -> Keyspace {
    Keyspace::new(Prefix::default(), FenceScope::default(), ClientId::random())
}

pub(super) struct RedisHarness {
    server: Server,
    worker: PathBuf,
    opened: Vec<Backend>,
}

impl RedisHarness {
    pub(super) fn new(server: Server, worker: PathBuf) -> Self {
        Self { server, worker, opened: Vec::new() }
    }

    /// A link that is looked at often, so that cases need not wait for it to be found silent.
    fn url(&self) -> String {
        format!("{}/?max_waiters={MAX_WAITERS}&ping_interval_ms=500", lock(&self.server).url())
    }
}

#[async_trait]
impl Harness for RedisHarness {
    async fn backend(&mut self) -> Result<Backend, BoxError> {
        let config = RedisConfig::from_url(&self.url())?;
        let backend = Backend::from(RedisDriver::connect(config).await?);
        self.opened.push(backend.clone());
        Ok(backend)
    }

    async fn inject(&mut self, fault: Fault) -> Result<Healer, BoxError> {
        let server = Arc::clone(&self.server);
        match fault {
            Fault::ExpireLease(name) => {
                lock(&server).cli(&[b"PEXPIRE".to_vec(), keyspace().lock_key(&name), b"0".to_vec()])?;
            }
            Fault::CutConnections => {
                for kind in ["normal", "pubsub"] {
                    lock(&server).cli(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"])?;
                }
            }
            Fault::CutNotifications => {
                lock(&server).cli(&["CLIENT", "KILL", "TYPE", "pubsub"])?;
            }
            Fault::ForgetScripts => {
                lock(&server).cli(&["SCRIPT", "FLUSH", "SYNC"])?;
            }
            Fault::PauseServer => {
                lock(&server).pause()?;
                return Ok(Healer::new(async move { Ok(lock(&server).resume()?) }));
            }
            Fault::KillServer(data) => {
                if data == Data::Lost {
                    lock(&server).cli(&["FLUSHALL"])?;
                }
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
            other => return Err(format!("a Redis server cannot {other:?} here").into()),
        }
        Ok(Healer::nothing())
    }

    fn inspector(&self) -> Option<Arc<dyn Inspector>> {
        Some(Arc::new(RedisInspector(Arc::clone(&self.server))))
    }

    fn worker_command(&self) -> Option<Command> {
        let mut command = Command::new(&self.worker);
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
