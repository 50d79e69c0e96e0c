//! One case's world on a Redis server.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use async_trait::async_trait;
use tenure_conformance::harness::{ClockStep, Data};
use tenure_conformance::{BoxError, Fault, Harness, Healer, Inspector};
use tenure_core::FenceFloor;
use tenure_core::driver::Backend;

use super::inspector::RedisInspector;
use super::servers::{Shared, keyspace, lock};
use super::setup::{Library, MAX_WAITERS, Setup};

pub(super) struct RedisHarness {
    library: Library,
    setup: Setup,
    servers: Shared,
    worker: PathBuf,
    slack: f64,
    opened: Vec<Backend>,
}

impl RedisHarness {
    pub(super) fn new(library: Library, setup: Setup, servers: Shared, worker: PathBuf, slack: f64) -> Self {
        Self { library, setup, servers, worker, slack, opened: Vec::new() }
    }

    /// A link that is looked at often, so that cases need not wait for it to be found silent.
    fn url(&self) -> String {
        let url = lock(&self.servers).url(self.setup);
        let (patience, pings) = ((1_000.0 * self.slack) as u64, (500.0 * self.slack) as u64);
        let settings = format!("response_timeout_ms={patience}&ping_interval_ms={pings}&connect_timeout_ms=5000");
        self.library.url(format!("{url}max_waiters={MAX_WAITERS}&{settings}"))
    }
}

#[async_trait]
impl Harness for RedisHarness {
    async fn backend(&mut self) -> Result<Backend, BoxError> {
        self.backend_beyond(FenceFloor::NONE).await
    }

    async fn backend_beyond(&mut self, floor: FenceFloor) -> Result<Backend, BoxError> {
        let backend = tenure::connect_backend(&format!("{}&fence_floor={floor}", self.url())).await?;
        self.opened.push(backend.clone());
        Ok(backend)
    }

    async fn inject(&mut self, fault: Fault) -> Result<Healer, BoxError> {
        inject(&self.servers, fault)
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

/// Does something bad to all servers.
pub(crate) fn inject(servers: &Shared, fault: Fault) -> Result<Healer, BoxError> {
    let servers = Arc::clone(servers);
    match fault {
        Fault::ExpireLease(name) => {
            let key = keyspace().lock_key(&name);
            for server in lock(&servers).keepers(&key)? {
                server.cli(&[b"PEXPIRE".as_slice(), &key, b"0"])?;
            }
        }
        Fault::CutConnections => {
            for kind in ["normal", "pubsub"] {
                lock(&servers).everywhere(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"])?;
            }
        }
        Fault::CutNotifications => lock(&servers).everywhere(&["CLIENT", "KILL", "TYPE", "pubsub"])?,
        Fault::ForgetScripts => lock(&servers).forget_scripts()?,
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
