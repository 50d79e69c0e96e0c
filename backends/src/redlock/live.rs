//! A quorum of servers.

use std::time::Duration;

use async_trait::async_trait;
use tenure_conformance::{BoxError, CaseContext, Declared, Harness, HarnessMaker, Missing};
use tenure_core::Ttl;
use tenure_core::driver::{
    Backend, Exclusion, Fencing, Introspection, LockCapabilities, OwnerScope, ReentrantCapabilities, Revocation,
    TtlRange, Waiting,
};
use tenure_redis::{RedisConfig, RedisDriver};
use tenure_redlock::{Redlock, Restarts};
use tenure_testkit::{RedisOptions, RedisServer};

use crate::redis::RedisMaker;

/// What is wrong with some of the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Minority {
    Healthy,
    /// Killed after the clients connected.
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

    /// Written down a second time on purpose: the suite compares it with the live driver.
    fn declared(&self) -> Declared {
        let locks = LockCapabilities {
            exclusion: Exclusion::Quorum { nodes: u8::try_from(self.nodes).unwrap_or(u8::MAX) },
            fencing: Fencing::ClockSeeded,
            waiting: Waiting::Notified,
            ttl: TtlRange {
                min: Duration::from_millis(10),
                max: Duration::from_secs(24 * 86_400),
                granularity: Duration::from_millis(1),
            },
            introspection: Introspection::Full,
            revocation: Revocation::Forced,
            max_waiters: Some(100),
            renew_batch: 100,
        };
        Declared::new(locks).reentrant(ReentrantCapabilities { scope: OwnerScope::Process, max_depth: 65_535 })
    }

    fn configured(&self) -> Result<(), Missing> {
        RedisMaker::single().configured()
    }

    fn server(&self) -> String {
        RedisMaker::single().server()
    }

    async fn make(&self, _context: CaseContext) -> Result<Box<dyn Harness>, BoxError> {
        let start = |_| RedisServer::start(RedisOptions::new());
        let servers = (0..self.nodes).map(start).collect::<Result<_, _>>()?;
        Ok(Box::new(RedlockHarness { servers, minority: self.minority, opened: Vec::new(), first: None }))
    }
}

struct RedlockHarness {
    servers: Vec<RedisServer>,
    minority: Minority,
    opened: Vec<Backend>,
    /// The clients of a case are in one process.
    first: Option<Redlock>,
}

#[async_trait]
impl Harness for RedlockHarness {
    /// Clients connect while all servers work; then the minority gets what it has coming.
    async fn backend(&mut self) -> Result<Backend, BoxError> {
        let which = match self.minority {
            Minority::Healthy => 0,
            Minority::Dead(most) | Minority::Slow(most) => most,
        };
        for server in &mut self.servers[..which] {
            match self.minority {
                Minority::Dead(_) if !self.opened.is_empty() => server.restart()?,
                Minority::Slow(_) if !self.opened.is_empty() => server.resume()?,
                _ => {}
            }
        }
        let mut builder = Redlock::builder().restarts(Restarts::Durable).max_ttl(Ttl::MAX);
        builder = builder.node_timeout(Duration::from_millis(400)); // the machine is busy with other cases, too
        if let Some(first) = &self.first {
            builder = builder.share_owners_with(first);
        }
        for (i, server) in self.servers.iter().enumerate() {
            let url = format!("{}/?max_waiters=100&ping_interval_ms=500", server.url());
            let node = RedisDriver::connect(RedisConfig::from_url(&url)?).await?.node();
            builder = builder.node(format!("n{i}"), node);
        }
        for server in &mut self.servers[..which] {
            match self.minority {
                Minority::Dead(_) => server.kill()?,
                Minority::Slow(_) => server.pause()?,
                Minority::Healthy => {}
            }
        }
        let driver = builder.build()?;
        self.first.get_or_insert_with(|| driver.clone());
        let backend = Backend::from(driver);
        self.opened.push(backend.clone());
        Ok(backend)
    }

    async fn teardown(self: Box<Self>) -> Result<(), BoxError> {
        for backend in &self.opened {
            backend.locks().close().await;
        }
        Ok(())
    }
}
