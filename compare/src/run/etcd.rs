//! An etcd of this comparison, and what it has used so far.

use std::process::Command;

use tenure_testkit::{EtcdCluster, EtcdOptions};

use super::counters::{Counted, Counters};
use crate::failure::Outcome;

/// One member, with its data in memory where the machine has a file system for that. Killed when dropped.
pub(super) struct Etcd {
    cluster: EtcdCluster,
}

impl Etcd {
    pub(super) fn start() -> Outcome<Self> {
        if cfg!(not(feature = "etcd")) {
            return Err("built without the feature etcd, which needs protoc".into());
        }
        let cluster = EtcdCluster::single(EtcdOptions::new());
        let cluster = cluster.map_err(|error| format!("etcd does not run here: {error}"))?;
        Ok(Self { cluster })
    }

    pub(super) fn port(&self) -> u16 {
        self.cluster.ports()[0]
    }

    pub(super) fn version() -> Outcome<String> {
        let program = std::env::var_os("TENURE_ETCD_BIN").unwrap_or_else(|| "etcd".into());
        let text = String::from_utf8(Command::new(program).arg("--version").output()?.stdout)?;
        let line = text.lines().find_map(|line| line.strip_prefix("etcd Version: "));
        Ok(line.unwrap_or("unknown").to_owned())
    }

    /// The memory of its process, in bytes.
    pub(super) fn memory(&self) -> Outcome<f64> {
        Ok(self.cluster.metric(0, "process_resident_memory_bytes ")?)
    }
}

impl Counted for Etcd {
    fn counters(&self) -> Outcome<Counters> {
        Ok(Counters::of_cpu(self.cluster.metric(0, "process_cpu_seconds_total ")? * 1e6))
    }
}
