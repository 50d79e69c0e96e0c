//! A quorum of servers.

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tenure_conformance::{
    BoxError, CaseContext, Declared, Fault, FaultKind, Harness, HarnessMaker, Healer, Inspector, Isolation, Missing,
};
use tenure_core::FenceFloor;
use tenure_core::driver::{Backend, BackendUrl, Ttl, TtlRange};
use tenure_redis::{RedisConfig, RedisDriver};
use tenure_redlock::Redlock;
use tenure_testkit::{RedisOptions, RedisServer};
use tokio::task::JoinSet;

use crate::defaults::{self, Defaults};
use crate::redis::{MAX_WAITERS, RedisInspector, RedisMaker, Servers, Shared, hosts, inject, lock};

/// The fault of some of the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Minority {
    Healthy,
    /// Killed before the clients connect.
    Dead(usize),
    /// Stopped after the clients connected.
    Slow(usize),
}

/// Makes fresh servers for each case.
#[derive(Clone, Copy, Debug)]
pub struct RedlockMaker {
    id: &'static str,
    nodes: usize,
    minority: Minority,
}

impl RedlockMaker {
    /// The backends `redlock/3-live` and `redlock/5-live`.
    #[must_use]
    pub const fn live(nodes: usize) -> Self {
        let id = if nodes == 3 { "redlock/3-live" } else { "redlock/5-live" };
        Self { id, nodes, minority: Minority::Healthy }
    }

    /// The backend `redlock/2-live-1-dead`.
    #[must_use]
    pub const fn with_a_dead_node() -> Self {
        Self { id: "redlock/2-live-1-dead", nodes: 3, minority: Minority::Dead(1) }
    }

    /// The backend `redlock/slow-minority`.
    #[must_use]
    pub const fn with_a_slow_minority() -> Self {
        Self { id: "redlock/slow-minority", nodes: 5, minority: Minority::Slow(2) }
    }
}

#[async_trait]
impl HarnessMaker for RedlockMaker {
    fn id(&self) -> &str {
        self.id
    }

    /// The driver's defaults, and the caps of the suite. The suite compares it with the live driver.
    fn declared(&self) -> Declared {
        let Defaults { locks, reentrant, .. } = defaults::redlock(u8::try_from(self.nodes).unwrap_or(u8::MAX));
        let ttl = TtlRange { max: Ttl::MAX, ..locks.ttl };
        let locks = locks.with_max_waiters(Some(MAX_WAITERS)).with_ttl(ttl);
        let declared = Declared::new(locks).reentrant(reentrant);
        if self.minority != Minority::Healthy {
            return declared.several_processes();
        }
        declared
            .several_processes()
            .past_killed_waiters(Duration::from_millis(100))
            .visible_leftovers()
            .fence_floors()
            .faults([FaultKind::ExpireLease, FaultKind::CutConnections, FaultKind::CutNotifications])
            .faults([FaultKind::PauseServer, FaultKind::RestartKeepingData, FaultKind::RestartLosingData])
            .faults([FaultKind::ForgetScripts, FaultKind::JumpServerClock])
    }

    fn configured(&self) -> Result<(), Missing> {
        RedisMaker::single().configured()
    }

    fn server(&self) -> String {
        RedisMaker::single().server()
    }

    async fn make(&self, context: CaseContext) -> Result<Box<dyn Harness>, BoxError> {
        let options = match context.isolation {
            Isolation::Exclusive => RedisOptions::new().append_only().movable_clock(),
            _ => RedisOptions::new(),
        };
        let mut servers = Servers::nodes(self.nodes, &options)?;
        if let Minority::Dead(count) = self.minority {
            servers.all_mut()[..count].iter_mut().try_for_each(RedisServer::kill)?;
        }
        let (servers, worker) = (Arc::new(Mutex::new(servers)), std::env::current_exe()?);
        let (minority, slack) = (self.minority, context.slack);
        Ok(Box::new(RedlockHarness { servers, minority, slack, worker, opened: Vec::new() }))
    }
}

struct RedlockHarness {
    servers: Shared,
    minority: Minority,
    worker: PathBuf,
    slack: f64,
    opened: Vec<Backend>,
}

impl RedlockHarness {
    /// Of the nodes and the quorum, without the driver's scheme. The servers have just started and are unused; they keep
    /// all acknowledged data, except where a case makes them forget all of it.
    fn url(&self) -> String {
        // The machine is busy with other cases, too.
        let (max_ttl, timeout) = (Ttl::MAX.as_millis(), Duration::from_millis(400).mul_f64(self.slack).as_millis());
        let quorum = format!("restarts=durable&max_ttl_ms={max_ttl}&node_timeout_ms={timeout}");
        let link = format!("max_waiters={MAX_WAITERS}&ping_interval_ms=500&connect_timeout_ms=5000");
        format!("{}?{quorum}&{link}", hosts(lock(&self.servers).all()))
    }

    fn slow(&self, change: fn(&mut RedisServer) -> std::io::Result<()>) -> Result<(), BoxError> {
        let Minority::Slow(count) = self.minority else { return Ok(()) };
        Ok(lock(&self.servers).all_mut()[..count].iter_mut().try_for_each(change)?)
    }
}

#[async_trait]
impl Harness for RedlockHarness {
    /// Clients connect while the slow servers work, so that requests to them leave and get no answer.
    async fn backend(&mut self) -> Result<Backend, BoxError> {
        self.backend_beyond(FenceFloor::NONE).await
    }

    async fn backend_beyond(&mut self, floor: FenceFloor) -> Result<Backend, BoxError> {
        if !self.opened.is_empty() {
            self.slow(RedisServer::resume)?;
        }
        let mut url = BackendUrl::parse(&self.url())?;
        let builder = Redlock::builder().settings_from_url(&mut url)?.fence_floor(floor);
        let nodes = RedisDriver::connect_nodes(&RedisConfig::read_nodes(url)?).await?;
        self.slow(RedisServer::pause)?;
        let backend = Backend::from(builder.nodes(nodes).build()?);
        self.opened.push(backend.clone());
        Ok(backend)
    }

    async fn inject(&mut self, fault: Fault) -> Result<Healer, BoxError> {
        inject(&self.servers, fault)
    }

    fn inspector(&self) -> Option<Arc<dyn Inspector>> {
        (self.minority == Minority::Healthy)
            .then(|| Arc::new(RedisInspector(Arc::clone(&self.servers))) as Arc<dyn Inspector>)
    }

    fn worker_command(&self) -> Option<Command> {
        let mut command = Command::new(&self.worker);
        command.arg("--worker").arg(format!("redlock+{}", self.url()));
        Some(command)
    }

    async fn teardown(self: Box<Self>) -> Result<(), BoxError> {
        // All at once: each waits up to a second for its requests to slow nodes.
        let mut closing = JoinSet::new();
        for backend in self.opened {
            closing.spawn(async move { backend.locks().close().await });
        }
        closing.join_all().await;
        Ok(())
    }
}
