//! One case's world on a Redis server.

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tenure_conformance::harness::{ClockStep, Data};
use tenure_conformance::{BoxError, Fault, Harness, Healer, Inspector};
use tenure_core::driver::Backend;
use tenure_redis_support::{ClientId, FenceScope, Keyspace, Prefix};

use super::inspector::RedisInspector;
use super::maker::MAX_WAITERS;
use super::servers::Servers;
use super::setup::{Library, Setup, connect};

pub(super) type Shared = Arc<Mutex<Servers>>;

pub(super) fn lock(servers: &Shared) -> MutexGuard<'_, Servers> {
    servers.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn keyspace() -> Keyspace {
    Keyspace::new(Prefix::default(), FenceScope::default(), ClientId::random())
}

pub(super) struct RedisHarness {
    library: Library,
    setup: Setup,
    servers: Shared,
    worker: PathBuf,
    opened: Vec<Backend>,
}

impl RedisHarness {
    pub(super) fn new(library: Library, setup: Setup, servers: Shared, worker: PathBuf) -> Self {
        Self { library, setup, servers, worker, opened: Vec::new() }
    }

    /// A link that is looked at often, so that cases need not wait for it to be found silent.
    fn url(&self) -> String {
        let url = lock(&self.servers).url(self.setup);
        self.library.url(format!("{url}max_waiters={MAX_WAITERS}&ping_interval_ms=500&connect_timeout_ms=5000"))
    }
}

#[async_trait]
impl Harness for RedisHarness {
    async fn backend(&mut self) -> Result<Backend, BoxError> {
        let backend = connect(&self.url()).await?;
        self.opened.push(backend.clone());
        Ok(backend)
    }

    async fn inject(&mut self, fault: Fault) -> Result<Healer, BoxError> {
        let servers = Arc::clone(&self.servers);
        match fault {
            Fault::ExpireLease(name) => {
                let key = keyspace().lock_key(&name);
                let servers = lock(&servers);
                servers.keeper(&key)?.cli(&[b"PEXPIRE".as_slice(), &key, b"0"])?;
            }
            Fault::CutConnections => {
                for kind in ["normal", "pubsub"] {
                    lock(&servers).everywhere(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"])?;
                }
            }
            Fault::CutNotifications => lock(&servers).everywhere(&["CLIENT", "KILL", "TYPE", "pubsub"])?,
            Fault::ForgetScripts => lock(&servers).everywhere(&["SCRIPT", "FLUSH", "SYNC"])?,
            Fault::PauseServer => {
                for server in lock(&servers).all_mut() {
                    server.pause()?;
                }
                return Ok(Healer::new(async move {
                    for server in lock(&servers).all_mut() {
                        server.resume()?;
                    }
                    Ok(())
                }));
            }
            Fault::KillServer(data) => {
                if data == Data::Lost {
                    lock(&servers).flush()?;
                }
                for server in lock(&servers).all_mut() {
                    server.kill()?;
                }
                return Ok(Healer::new(async move { lock(&servers).restart() }));
            }
            Fault::JumpServerClock(step) => {
                let micros = match step {
                    ClockStep::Forward(by) => i64::try_from(by.as_micros())?,
                    ClockStep::Back(by) => -i64::try_from(by.as_micros())?,
                };
                for server in lock(&servers).all() {
                    server.set_clock_offset(micros)?;
                }
                return Ok(Healer::new(async move {
                    for server in lock(&servers).all() {
                        server.set_clock_offset(0)?;
                    }
                    Ok(())
                }));
            }
            other => return Err(format!("a Redis server cannot {other:?} here").into()),
        }
        Ok(Healer::nothing())
    }

    fn inspector(&self) -> Option<Arc<dyn Inspector>> {
        Some(Arc::new(RedisInspector(Arc::clone(&self.servers))))
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
