//! The members of an etcd cluster.

use etcd_client::{Client, CompactionOptions, GetOptions};
use tenure_conformance::{BoxError, Rng};
use tenure_testkit::EtcdCluster;
use tokio::runtime::Handle;

use super::Servers;

pub(crate) struct EtcdMembers(pub(crate) EtcdCluster);

/// Servers of all kinds are harmed and looked at by calls that block.
fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::task::block_in_place(|| Handle::current().block_on(future))
}

impl EtcdMembers {
    /// A connection past the driver and the proxies, to one member.
    async fn raw(port: u16) -> Result<Client, BoxError> {
        Ok(Client::connect([format!("127.0.0.1:{port}")], None).await?)
    }
}

impl Servers for EtcdMembers {
    fn ports(&self) -> Vec<u16> {
        self.0.ports()
    }

    fn leader(&self) -> Option<usize> {
        self.0.leader().ok()
    }

    fn stop(&mut self, node: usize) -> Result<(), BoxError> {
        Ok(self.0.pause(node)?)
    }

    fn go_on(&mut self, node: usize) -> Result<(), BoxError> {
        Ok(self.0.resume(node)?)
    }

    fn kill(&mut self, node: usize) -> Result<(), BoxError> {
        Ok(self.0.kill(node)?)
    }

    fn start(&mut self, node: usize) -> Result<(), BoxError> {
        Ok(self.0.start_member(node)?)
    }

    /// Forgets the history up to now. Without a majority there is no answer; then it was not to be.
    fn disturb(&mut self, node: usize, _rng: &mut Rng) -> Result<String, BoxError> {
        let port = self.0.ports()[node];
        let compact = async {
            let mut etcd = Self::raw(port).await?;
            let now = etcd.get("now", None).await?.header().ok_or("an answer without a header")?.revision();
            etcd.compact(now, Some(CompactionOptions::new())).await?;
            Ok::<_, BoxError>(now)
        };
        let limit = std::time::Duration::from_secs(1);
        let outcome = wait(async { tokio::time::timeout(limit, compact).await });
        Ok(match outcome {
            Ok(Ok(now)) => format!("compaction (at {now})"),
            Ok(Err(error)) => format!("compaction that failed ({error})"),
            Err(_) => "compaction without an answer".into(),
        })
    }

    fn left(&mut self) -> Result<Vec<String>, BoxError> {
        let port = self.0.ports()[0];
        wait(async {
            let mut etcd = Self::raw(port).await?;
            let keys = etcd.get("", Some(GetOptions::new().with_all_keys().with_keys_only())).await?;
            let names = keys.kvs().iter().map(|found| String::from_utf8_lossy(found.key()));
            // What revisions are added to, for fences, stays for ever.
            let mut left: Vec<String> =
                names.filter(|key| !key.ends_with("/%/fences")).map(|key| format!("the key {key}")).collect();
            let leases = etcd.leases().await?;
            left.extend(leases.leases().iter().map(|lease| format!("the lease {:x}", lease.id())));
            for member in 0..self.0.size() {
                let watchers = self.0.metric(member, "etcd_debugging_mvcc_watcher_total")?;
                left.extend((watchers > 0.0).then(|| format!("{watchers} watchers at member {member}")));
            }
            Ok(left)
        })
    }

    fn counters(&mut self) -> Result<String, BoxError> {
        let metrics = [
            ("leader changes seen", "etcd_server_leader_changes_seen_total"),
            ("leases granted", "etcd_debugging_lease_granted_total"),
            ("proposals failed", "etcd_server_proposals_failed_total"),
        ];
        let mut lines = Vec::new();
        for member in 0..self.0.size() {
            let shown: Result<Vec<_>, _> = metrics
                .iter()
                .map(|(title, metric)| self.0.metric(member, metric).map(|value| format!("{title} {value}")))
                .collect();
            lines.push(format!("member {member} since its last start: {}", shown?.join(", ")));
        }
        Ok(lines.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use tenure_testkit::EtcdOptions;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn what_a_member_has_left_is_found() {
        let mut servers = EtcdMembers(EtcdCluster::single(EtcdOptions::new()).unwrap());
        assert_eq!(servers.left().unwrap(), Vec::<String>::new());
        let mut etcd = EtcdMembers::raw(servers.ports()[0]).await.unwrap();
        etcd.put("tenure/n/hold", "token", None).await.unwrap();
        let lease = etcd.lease_grant(60, None).await.unwrap().id();
        let _stream = etcd.watch("tenure/", None).await.unwrap();
        let left = servers.left().unwrap();
        for found in ["the key tenure/n/hold".to_owned(), format!("the lease {lease:x}"), "1 watchers".to_owned()] {
            assert!(left.iter().any(|left| left.contains(&found)), "{found}: {left:?}");
        }
    }
}
