//! One case's world on a Redis server.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use async_trait::async_trait;
use tenure_conformance::harness::{ClockStep, Data};
use tenure_conformance::{BoxError, Fault, FaultKind, Harness, Healer, Inspector};
use tenure_core::FenceFloor;
use tenure_core::driver::Backend;
use tenure_redis::RedisSettings;

use super::front::Front;
use super::inspector::RedisInspector;
use super::servers::{Shared, lock};
use super::setup::{Library, MAX_WAITERS, Setup};
use crate::proxied::DAYS;

pub(super) struct RedisHarness {
    library: Library,
    setup: Setup,
    servers: Shared,
    front: Option<Front>,
    worker: PathBuf,
    slack: f64,
    /// How many days have passed for the server.
    days: u32,
    opened: Vec<Backend>,
}

impl RedisHarness {
    pub(super) fn new(
        library: Library,
        setup: Setup,
        servers: Shared,
        front: Option<Front>,
        worker: PathBuf,
        slack: f64,
    ) -> Self {
        Self { library, setup, servers, front, worker, slack, days: 0, opened: Vec::new() }
    }

    /// A link that is looked at often, so that cases need not wait for it to be found silent.
    fn url(&self) -> String {
        let url = match &self.front {
            Some(front) => front.url(&self.servers),
            None => lock(&self.servers).url(self.setup),
        };
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
        match &mut self.front {
            _ if fault.kind() == FaultKind::PassDays => {
                self.days += 1;
                let micros = i64::try_from((DAYS * self.days).as_micros())?;
                for server in lock(&self.servers).all() {
                    server.set_clock_offset(micros)?;
                }
                Ok(Healer::nothing())
            }
            Some(front) if Front::FAULTS.contains(&fault.kind()) => front.inject(&self.servers, &fault),
            _ => inject(&self.servers, fault),
        }
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
            let key = RedisSettings::default().lock_key(&name);
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
