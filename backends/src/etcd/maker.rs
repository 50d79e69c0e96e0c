//! Which driver, on which cluster.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use tenure_conformance::{BoxError, CaseContext, Declared, FaultKind, Harness, HarnessMaker, Isolation, Missing};
use tenure_core::driver::{
    Exclusion, Fencing, Introspection, KeyedConcurrency, LeaseRange, LockCapabilities, OwnerScope, Parking,
    QueueCapabilities, QueueWake, ReentrantCapabilities, Revocation, TtlRange, Waiting,
};
use tenure_testkit::{EtcdCluster, EtcdOptions};

use super::harness::EtcdHarness;
use crate::other::Program;

const USUAL: Program = Program::Usual { name: "etcd", variable: "TENURE_ETCD_BIN" };

/// The `etcd` driver on a cluster. Cases that only use names of their own share one; the others have one each.
#[derive(Debug)]
pub struct EtcdMaker {
    id: &'static str,
    members: usize,
    program: Program,
    shared: Mutex<Weak<Mutex<EtcdCluster>>>,
    version: OnceLock<String>,
}

impl EtcdMaker {
    /// The backend `etcd/single`.
    #[must_use]
    pub fn single() -> Self {
        Self::new("etcd/single", 1, USUAL)
    }

    /// The backend `etcd/3-members`.
    #[must_use]
    pub fn three_members() -> Self {
        Self::new("etcd/3-members", 3, USUAL)
    }

    /// The backend `etcd/single@3.5`.
    pub(crate) fn of_3_5() -> Self {
        Self::new("etcd/single@3.5", 1, Program::Other("etcd-3.5"))
    }

    fn new(id: &'static str, members: usize, program: Program) -> Self {
        Self { id, members, program, shared: Mutex::default(), version: OnceLock::new() }
    }

    fn start(&self) -> Result<Arc<Mutex<EtcdCluster>>, BoxError> {
        let options = self.program.instead().into_iter().fold(EtcdOptions::new(), EtcdOptions::program);
        Ok(Arc::new(Mutex::new(EtcdCluster::start(options, self.members)?)))
    }

    fn cluster_for(&self, isolation: Isolation) -> Result<Arc<Mutex<EtcdCluster>>, BoxError> {
        if isolation == Isolation::Exclusive {
            return self.start();
        }
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cluster) = shared.upgrade() {
            return Ok(cluster);
        }
        let cluster = self.start()?;
        *shared = Arc::downgrade(&cluster);
        Ok(cluster)
    }
}

/// Written down a second time, as the rest.
fn queue() -> QueueCapabilities {
    QueueCapabilities {
        clock_error: super::harness::CLOCK_ERROR,
        wake: QueueWake::Notified,
        durability: Exclusion::Consensus,
        fencing: Fencing::Strict,
        keys: KeyedConcurrency::OneInFlight,
        parking: Parking::Attended,
        payload: 64 * 1024,
        batch: 100,
        request_bytes: 384 * 1024,
        delay: Duration::from_secs(3_650 * 86_400),
        lease: LeaseRange { min: Duration::from_millis(10), max: Duration::from_secs(86_400) },
        attempts: 10_000,
        backlog: None,
        dead_letters: super::harness::MAX_DEAD_LETTERS,
    }
}

#[async_trait]
impl HarnessMaker for EtcdMaker {
    fn id(&self) -> &str {
        self.id
    }

    /// Written down a second time on purpose: the suite compares it with the live driver.
    fn declared(&self) -> Declared {
        let locks = LockCapabilities {
            exclusion: Exclusion::Consensus,
            fencing: Fencing::Strict,
            waiting: Waiting::Fifo,
            ttl: TtlRange {
                min: Duration::from_secs(2),
                max: Duration::from_secs(24 * 86_400),
                granularity: Duration::from_secs(1),
            },
            introspection: Introspection::Ageless,
            revocation: Revocation::Forced,
            max_waiters: Some(super::harness::MAX_WAITERS),
            renew_batch: 100,
            max_fences: 8,
        };
        Declared::new(locks)
            .reentrant(ReentrantCapabilities { scope: OwnerScope::Backend, max_depth: super::harness::MAX_DEPTH })
            .queue(queue())
            .several_processes()
            .past_killed_waiters(Duration::from_millis(2_500))
            .visible_leftovers()
            .fence_floors()
            .faults([FaultKind::ExpireLease, FaultKind::CutConnections])
            .faults([FaultKind::PauseServer, FaultKind::RestartKeepingData])
    }

    fn configured(&self) -> Result<(), Missing> {
        self.program.found()
    }

    fn server(&self) -> String {
        let version = || format!("{}, {} member(s)", self.program.version("etcd Version: "), self.members);
        self.version.get_or_init(version).clone()
    }

    async fn make(&self, context: CaseContext) -> Result<Box<dyn Harness>, BoxError> {
        let cluster = self.cluster_for(context.isolation)?;
        Ok(Box::new(EtcdHarness::new(cluster)?))
    }
}
