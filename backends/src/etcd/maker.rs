//! Which driver, on which cluster.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use tenure_conformance::{BoxError, CaseContext, Declared, FaultKind, Harness, HarnessMaker, Isolation, Missing};

use tenure_testkit::{EtcdCluster, EtcdOptions};

use super::harness::{CLOCK_ERROR, EtcdHarness, MAX_DEAD_LETTERS, MAX_DEPTH, MAX_WAITERS};
use crate::defaults::{self, Defaults};
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

    /// The backend `etcd/single@3.6`.
    pub(crate) fn of_3_6() -> Self {
        Self::new("etcd/single@3.6", 1, Program::Other("etcd-3.6"))
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

#[async_trait]
impl HarnessMaker for EtcdMaker {
    fn id(&self) -> &str {
        self.id
    }

    /// The driver's defaults, and caps that the suite can reach. The suite compares it with the live driver.
    fn declared(&self) -> Declared {
        let Defaults { locks, reentrant, permits, queue, census } = defaults::etcd();
        let (waiters, clock_error, dead_letters) = (Some(MAX_WAITERS), CLOCK_ERROR, MAX_DEAD_LETTERS);
        let queue = queue.map(|queue| queue.with_clock_error(clock_error).with_dead_letters(dead_letters));
        let declared = Declared::new(locks.with_max_waiters(waiters)).reentrant(reentrant.with_max_depth(MAX_DEPTH));
        let permits = permits.map(|permits| permits.with_max_waiters(Some(MAX_WAITERS)));
        let declared = permits.into_iter().fold(declared, Declared::permits);
        let declared = queue.into_iter().fold(declared, Declared::queue);
        census
            .into_iter()
            .fold(declared, Declared::census)
            .several_processes()
            .past_killed_waiters(Duration::from_millis(2_500))
            .silence(Duration::from_secs(9)) // etcd closes connections that ping more often than every 5 s
            .visible_leftovers()
            .fence_floors()
            .faults([FaultKind::ExpireLease, FaultKind::CutConnections, FaultKind::SilenceConnections])
            .faults([FaultKind::PauseServer, FaultKind::RestartKeepingData, FaultKind::FewConnections])
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
