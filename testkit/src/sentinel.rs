//! A primary, a replica, and sentinels of a test's own.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use crate::options::{RedisOptions, Role};
use crate::redis::RedisServer;
use crate::resp::RespClient;
use crate::wait::eventually;

/// What the sentinels call the primary.
const SERVICE: &str = "locks";
const SENTINELS: usize = 3;

/// Two data servers, one a replica of the other, and three sentinels, on free ports of loopback. Killed when dropped.
#[derive(Debug)]
pub struct RedisSentinels {
    servers: Vec<RedisServer>,
    sentinels: Vec<RedisServer>,
}

impl RedisSentinels {
    /// Starts the processes and waits until every sentinel knows all the others and the replica. A primary that is silent
    /// for `down_after` is taken for dead.
    ///
    /// # Errors
    ///
    /// Those of starting a server; [`io::ErrorKind::TimedOut`] when they do not find each other.
    pub fn start(options: &RedisOptions, down_after: Duration) -> io::Result<Self> {
        let primary = RedisServer::start(options.clone())?;
        let port = primary.port().to_string();
        let replica = RedisServer::start(options.clone().setting("replicaof", format!("127.0.0.1 {port}")))?;
        let mut all = Self { servers: vec![primary, replica], sentinels: Vec::new() };
        all.attached()?;
        let down_after = down_after.as_millis().to_string();
        for _ in 0..SENTINELS {
            let sentinel = RedisServer::start(RedisOptions::new().role(Role::Sentinel))?;
            let quorum = (SENTINELS / 2 + 1).to_string();
            let place = Ipv4Addr::LOCALHOST.to_string();
            sentinel.cli(&["SENTINEL", "MONITOR", SERVICE, &place, &port, &quorum])?;
            for (name, value) in [("down-after-milliseconds", &*down_after), ("failover-timeout", "5000")] {
                sentinel.cli(&["SENTINEL", "SET", SERVICE, name, value])?;
            }
            all.sentinels.push(sentinel);
        }
        all.settled()?;
        Ok(all)
    }

    /// Waits until the sentinels know each other and at least one replica that can take over.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::TimedOut`].
    pub fn settled(&self) -> io::Result<()> {
        self.attached()?;
        eventually("the sentinels to know each other", || {
            let knows = |sentinel: &RedisServer| {
                let Ok(reply) = sentinel.cli(&["SENTINEL", "MASTER", SERVICE]) else { return false };
                let fields: Vec<String> = reply.items().iter().map(crate::Reply::text).collect();
                let field = |name: &str| fields.chunks_exact(2).find(|pair| pair[0] == name).map(|pair| &*pair[1]);
                field("num-other-sentinels") == Some("2") && field("num-slaves") == Some("1") && {
                    field("flags") == Some("master")
                        && sentinel.cli(&["SENTINEL", "CKQUORUM", SERVICE]).is_ok()
                        && sentinel.cli(&["SENTINEL", "REPLICAS", SERVICE]).is_ok_and(|replicas| {
                            let list = replicas.items().first().map(|one| one.items().to_vec()).unwrap_or_default();
                            let words: Vec<String> = list.iter().map(crate::Reply::text).collect();
                            words.windows(2).any(|pair| pair[0] == "master-link-status" && pair[1] == "ok")
                        })
                }
            };
            self.sentinels.iter().all(knows).then_some(())
        })
    }

    fn attached(&self) -> io::Result<()> {
        eventually("the replica to be attached", || {
            let attached = |server: &RedisServer| {
                server.cli(&["INFO", "replication"]).is_ok_and(|reply| reply.text().contains("master_link_status:up"))
            };
            self.servers.iter().any(attached).then_some(())
        })
    }

    /// The URL of the primary, whichever it is.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self.sentinels.iter().map(|one| format!("127.0.0.1:{}", one.port())).collect();
        format!("redis+sentinel://{}/{SERVICE}", hosts.join(","))
    }

    /// The data servers.
    #[must_use]
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// The data servers, to be paused, killed or restarted.
    pub fn servers_mut(&mut self) -> &mut [RedisServer] {
        &mut self.servers
    }

    /// The sentinels.
    pub fn sentinels_mut(&mut self) -> &mut [RedisServer] {
        &mut self.sentinels
    }

    /// Asks a sentinel to fail over now. It refuses while nothing can take over, or the last time is too recent.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::Other`] with the sentinel's words when it refuses.
    pub fn fail_over(&self) -> io::Result<()> {
        self.sentinels[0].cli(&["SENTINEL", "FAILOVER", SERVICE]).map(drop)
    }

    /// Listens for the first sentinel's announcements of another primary.
    ///
    /// # Errors
    ///
    /// Those of connecting.
    pub fn announcements(&self) -> io::Result<Announcements> {
        let mut client = self.sentinels[0].connect()?;
        client.call(&["SUBSCRIBE", "+switch-master"])?;
        Ok(Announcements(client))
    }

    /// The port of the primary, as the first running sentinel knows it.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotConnected`] when none runs.
    pub fn primary_port(&self) -> io::Result<u16> {
        let asked = self.sentinels.iter().filter(|sentinel| sentinel.pid().is_some());
        let mut answers = asked.filter_map(|sentinel| {
            let reply = sentinel.cli(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE]).ok()?;
            reply.items().get(1)?.text().parse().ok()
        });
        answers.next().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Which server is the primary now, as its place in [`servers`](Self::servers).
    ///
    /// # Errors
    ///
    /// Those of [`primary_port`](Self::primary_port).
    pub fn primary(&self) -> io::Result<usize> {
        let port = self.primary_port()?;
        self.servers.iter().position(|server| server.port() == port).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// What a sentinel announces.
#[derive(Debug)]
pub struct Announcements(RespClient);

impl Announcements {
    /// Waits for the next announcement; returns the port of the new primary.
    ///
    /// # Errors
    ///
    /// Those of the socket; [`io::ErrorKind::InvalidData`] for an announcement without a port.
    pub fn next_primary(&mut self) -> io::Result<u16> {
        let message = self.0.read()?;
        let text = message.items().last().map(crate::Reply::text).unwrap_or_default();
        let port = text.rsplit(' ').next().and_then(|port| port.parse().ok());
        port.ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}
