//! Drivers for unit tests: one with its own server, and one without a server.

use tenure_testkit::{EtcdCluster, EtcdOptions};

use crate::EtcdDriver;
use crate::inner::Inner;

pub(crate) fn served() -> (EtcdCluster, EtcdDriver) {
    let cluster = EtcdCluster::single(EtcdOptions::new()).unwrap();
    let driver = EtcdDriver::new(cluster.url().parse().unwrap());
    (cluster, driver)
}

pub(crate) fn unserved() -> EtcdDriver {
    EtcdDriver::new("etcd://127.0.0.1:1".parse().unwrap())
}

/// The requests that a server of this kind has been sent.
pub(crate) fn requests(cluster: &EtcdCluster) -> u64 {
    cluster.metric(0, "grpc_server_started_total{").unwrap() as u64
}

impl Inner {
    /// Whether there is such a lease.
    pub(crate) async fn lives(&self, lease: i64) -> bool {
        self.leases.keep_alive(lease).await.unwrap()
    }
}
