//! The driver for etcd, on the crate `etcd-client`. Feature `etcd`.

pub use tenure_etcd::{EtcdConfig, EtcdDriver};

#[cfg(feature = "tls")]
#[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
pub use tenure_etcd::EtcdTls;
