//! One case's world on an etcd cluster.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tenure_conformance::harness::Data;
use tenure_conformance::{BoxError, Fault, Harness, Healer, Inspector};
use tenure_core::driver::Backend;
use tenure_core::{FenceFloor, LockName};
use tenure_etcd::{EtcdConfig, EtcdDriver};
use tenure_testkit::{EtcdCluster, TcpProxy};

use super::inspector::{Cluster, EtcdInspector, lock, raw};
use crate::proxied;

/// Within reach of the cases that fill a queue, each place of which is a lease.
pub(super) const MAX_WAITERS: u32 = 200;

pub(super) const MAX_DEPTH: u32 = 300;

/// Few enough to be filled.
pub(super) const MAX_DEAD_LETTERS: u64 = 200;

/// The clients of the cases share one clock; what the driver makes of the declared error is to be seen, though.
pub(super) const CLOCK_ERROR: Duration = Duration::from_millis(50);

/// A driver with the settings of the cases.
fn driver(url: &str, floor: FenceFloor) -> Result<EtcdDriver, BoxError> {
    let config: EtcdConfig = url.parse()?;
    let config = config.fence_floor(floor).max_waiters(MAX_WAITERS)?.max_depth(MAX_DEPTH)?;
    Ok(EtcdDriver::new(config.clock_error(CLOCK_ERROR)?.max_dead_letters(MAX_DEAD_LETTERS)?))
}

pub(super) struct EtcdHarness {
    cluster: Cluster,
    /// One before each member: the drivers connect through them.
    proxies: Vec<Arc<TcpProxy>>,
    opened: Vec<Backend>,
}

impl EtcdHarness {
    pub(super) fn new(cluster: Cluster) -> Result<Self, BoxError> {
        let proxies: Result<Vec<_>, _> = lock(&cluster).ports().into_iter().map(TcpProxy::start).collect();
        Ok(Self { cluster, proxies: proxies?.into_iter().map(Arc::new).collect(), opened: Vec::new() })
    }

    fn url(&self) -> String {
        EtcdCluster::url_of(&self.proxies.iter().map(|proxy| proxy.port()).collect::<Vec<_>>())
    }
}

#[async_trait]
impl Harness for EtcdHarness {
    async fn backend(&mut self) -> Result<Backend, BoxError> {
        self.backend_beyond(FenceFloor::NONE).await
    }

    async fn backend_beyond(&mut self, floor: FenceFloor) -> Result<Backend, BoxError> {
        // Not connected here: a case may use it on another runtime.
        let backend = Backend::from(driver(&self.url(), floor)?);
        self.opened.push(backend.clone());
        Ok(backend)
    }

    async fn inject(&mut self, fault: Fault) -> Result<Healer, BoxError> {
        let cluster = Arc::clone(&self.cluster);
        let members = 0..lock(&cluster).size();
        match fault {
            Fault::ExpireLease(name) => expire(&cluster, &name).await?,
            Fault::PauseServer => {
                members.clone().try_for_each(|member| lock(&cluster).pause(member))?;
                return Ok(Healer::new(async move {
                    Ok(members.into_iter().try_for_each(|member| lock(&cluster).resume(member))?)
                }));
            }
            Fault::KillServer(Data::Kept) => {
                members.clone().try_for_each(|member| lock(&cluster).kill(member))?;
                return Ok(Healer::new(async move { Ok(lock(&cluster).restart_all()?) }));
            }
            other => return proxied::inject(self.proxies.clone(), &other),
        }
        Ok(Healer::nothing())
    }

    fn inspector(&self) -> Option<Arc<dyn Inspector>> {
        Some(Arc::new(EtcdInspector(Arc::clone(&self.cluster))))
    }

    fn worker_command(&self) -> Option<Command> {
        let mut command = Command::new(std::env::current_exe().ok()?);
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

/// Ends the lease of a hold, as its ttl would.
async fn expire(cluster: &Cluster, name: &LockName) -> Result<(), BoxError> {
    let mut etcd = raw(cluster).await?;
    let key = driver(&lock(cluster).url(), FenceFloor::NONE)?.hold_key(name);
    let found = etcd.get(key, None).await?;
    let hold = found.kvs().first().ok_or("no client holds the lock")?;
    etcd.lease_revoke(hold.lease()).await?;
    Ok(())
}
