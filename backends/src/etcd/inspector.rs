//! A raw look at an etcd cluster.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use etcd_client::{Client, GetOptions};
use tenure_conformance::{BoxError, Inspector, Residue};
use tenure_core::LockName;
use tenure_core::driver::Family;
use tenure_etcd::{EtcdConfig, EtcdDriver};
use tenure_testkit::EtcdCluster;

pub(super) type Cluster = Arc<Mutex<EtcdCluster>>;

pub(super) fn lock(cluster: &Cluster) -> MutexGuard<'_, EtcdCluster> {
    cluster.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A connection past the driver and past the proxies.
pub(super) async fn raw(cluster: &Cluster) -> Result<Client, BoxError> {
    let endpoints: Vec<_> = lock(cluster).ports().iter().map(|port| format!("127.0.0.1:{port}")).collect();
    Ok(Client::connect(endpoints, None).await?)
}

pub(super) struct EtcdInspector(pub(super) Cluster);

#[async_trait]
impl Inspector for EtcdInspector {
    async fn residue(&self, name: &LockName) -> Result<Residue, BoxError> {
        let config: EtcdConfig = lock(&self.0).url().parse()?;
        let hold = EtcdDriver::new(config).hold_key(name);
        // Everything of a name has the same beginning as its hold.
        let base = hold.strip_suffix(b"hold").ok_or("a hold's key is spelled in another way now")?;
        // Permits are beside: `tenure/name/` of a lock, `tenure:permit/s/name/` of a semaphore.
        let slash = base.iter().position(|byte| *byte == b'/').ok_or("a key without a slash")?;
        let (prefix, name) = base.split_at(slash);
        let permits =
            Family::ALL.map(|family| [prefix, format!(":permit/{}", family.code()).as_bytes(), name].concat());
        let mut etcd = raw(&self.0).await?;
        let mut residue = Residue::default();
        for base in permits.iter().map(Vec::as_slice).chain([base]) {
            let found = etcd.get(base, Some(GetOptions::new().with_prefix())).await?;
            for key in found.kvs() {
                let tail = &key.key()[base.len()..];
                let is_hold = tail == b"hold" || tail.starts_with(b"hold/");
                residue.leases += usize::from(is_hold);
                residue.waiters += usize::from(!is_hold);
                residue.endless += usize::from(key.lease() == 0);
            }
        }
        Ok(residue)
    }

    async fn names(&self) -> Result<usize, BoxError> {
        let all = GetOptions::new().with_all_keys().with_count_only();
        Ok(usize::try_from(raw(&self.0).await?.get("", Some(all)).await?.count())?)
    }
}
