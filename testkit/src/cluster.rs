//! A Redis Cluster of a test's own.

use std::io;
use std::time::Duration;

use crate::options::RedisOptions;
use crate::port::free_port;
use crate::redis::RedisServer;
use crate::resp::Reply;
use crate::wait::eventually;

/// How many primaries; as many replicas.
const PRIMARIES: usize = 3;
const SLOTS: usize = 16_384;

/// Three primaries and a replica of each, on free ports of loopback. Killed when dropped.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<RedisServer>,
}

impl RedisCluster {
    /// Starts the nodes, makes them a cluster and waits until all of them say that it is well. A node that is silent for
    /// `node_timeout` is taken for dead, and its replica for its successor.
    ///
    /// # Errors
    ///
    /// Those of starting a server; [`io::ErrorKind::TimedOut`] when they do not find each other.
    pub fn start(options: &RedisOptions, node_timeout: Duration) -> io::Result<Self> {
        let options = options
            .clone()
            .setting("cluster-enabled", "yes")
            .setting("cluster-node-timeout", node_timeout.as_millis().to_string());
        let started = (0..2 * PRIMARIES).map(|_| Self::start_node(&options)).collect::<io::Result<Vec<_>>>()?;
        let (nodes, bus): (Vec<_>, Vec<_>) = started.into_iter().unzip();
        let cluster = Self { nodes };
        cluster.join(&bus)?;
        Ok(cluster)
    }

    /// A node, and the port of its bus; another port if it was taken meanwhile.
    fn start_node(options: &RedisOptions) -> io::Result<(RedisServer, u16)> {
        let attempt = || {
            let bus = free_port()?;
            Ok((RedisServer::start(options.clone().setting("cluster-port", bus.to_string()))?, bus))
        };
        attempt().or_else(|error: io::Error| match error.kind() {
            io::ErrorKind::AddrInUse => attempt(),
            _ => Err(error),
        })
    }

    fn join(&self, bus: &[u16]) -> io::Result<()> {
        let first = &self.nodes[0];
        for (at, node) in self.nodes.iter().enumerate() {
            node.cli(&["CLUSTER", "SET-CONFIG-EPOCH", &(at + 1).to_string()])?;
            if at < PRIMARIES {
                let (from, to) = (at * SLOTS / PRIMARIES, (at + 1) * SLOTS / PRIMARIES - 1);
                node.cli(&["CLUSTER", "ADDSLOTSRANGE", &from.to_string(), &to.to_string()])?;
            }
            if at > 0 {
                let (port, bus) = (first.port().to_string(), bus[0].to_string());
                node.cli(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus])?;
            }
        }
        for (at, replica) in self.nodes.iter().enumerate().skip(PRIMARIES) {
            let primary = self.nodes[at - PRIMARIES].cli(&["CLUSTER", "MYID"])?.text();
            eventually("a replica to know its primary", || {
                replica.cli(&["CLUSTER", "REPLICATE", &primary]).is_ok().then_some(())
            })?;
        }
        self.settled()
    }

    /// Waits until every running node says that the cluster is well, and every replica is attached.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::TimedOut`].
    pub fn settled(&self) -> io::Result<()> {
        let running: Vec<&RedisServer> = self.nodes.iter().filter(|node| node.pid().is_some()).collect();
        eventually("the cluster to settle", || {
            let well = |node: &&RedisServer| {
                let says = |args: &[&str], text: &str| node.cli(args).is_ok_and(|reply| reply.text().contains(text));
                let knows = node.cli(&["CLUSTER", "NODES"]).is_ok_and(|reply| {
                    let text = reply.text();
                    text.lines().count() == self.nodes.len() && !text.contains("handshake")
                });
                let attached = says(&["INFO", "replication"], "role:master")
                    || says(&["INFO", "replication"], "master_link_status:up");
                knows && attached && says(&["CLUSTER", "INFO"], "cluster_state:ok")
            };
            running.iter().all(well).then_some(())
        })
    }

    /// The URL of the whole cluster, naming two of its nodes.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis+cluster://127.0.0.1:{},127.0.0.1:{}", self.nodes[0].port(), self.nodes[1].port())
    }

    /// All nodes, first those that began as primaries, then the replica of each in the same order.
    #[must_use]
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// All nodes, to be paused, killed or restarted.
    pub fn nodes_mut(&mut self) -> &mut [RedisServer] {
        &mut self.nodes
    }

    /// Which of the running nodes serves this key now, as its place in [`nodes`](Self::nodes).
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::TimedOut`] when none does.
    pub fn owner(&self, key: &[u8]) -> io::Result<usize> {
        eventually("a node to serve the key", || {
            self.nodes.iter().enumerate().find_map(|(at, node)| {
                node.pid()?;
                // Others answer with a redirection.
                let served = node.cli(&[b"EXISTS".as_slice(), key]).is_ok();
                (served && node.cli(&["ROLE"]).is_ok_and(|role| role.items().first().is_some_and(is_primary)))
                    .then_some(at)
            })
        })
    }

    /// The slot of a key.
    ///
    /// # Errors
    ///
    /// Those of asking the first node.
    pub fn slot(&self, key: &[u8]) -> io::Result<i64> {
        let reply = self.nodes[0].cli(&[b"CLUSTER".as_slice(), b"KEYSLOT", key])?;
        reply.int().ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

fn is_primary(role: &Reply) -> bool {
    role.text() == "master"
}
