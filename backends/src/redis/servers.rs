//! The servers of one case, in any of the topologies.

use std::slice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_conformance::BoxError;
use tenure_testkit::{Certificates, RedisCluster, RedisOptions, RedisSentinels, RedisServer};

use super::setup::{Library, Setup};

/// Longer than any fault lasts: cases that stop servers are about clients, not about elections.
const NO_ELECTION: Duration = Duration::from_secs(60);
/// The user that the setup with an access control list logs in as.
const USER: &str = "locks";

pub(crate) enum Servers {
    One(RedisServer),
    Cluster(RedisCluster),
    Sentinels(RedisSentinels),
    /// Independent of each other: the nodes of a quorum.
    Nodes(Vec<RedisServer>),
}

/// Servers that a fault, its healer and an inspector reach.
pub(crate) type Shared = Arc<Mutex<Servers>>;

pub(crate) fn lock(servers: &Shared) -> MutexGuard<'_, Servers> {
    servers.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Servers {
    /// So many independent ones.
    pub(crate) fn nodes(count: usize, options: &RedisOptions) -> Result<Self, BoxError> {
        Ok(Self::Nodes((0..count).map(|_| RedisServer::start(options.clone())).collect::<Result<_, _>>()?))
    }

    pub(super) fn start(setup: Setup, library: Library, options: RedisOptions) -> Result<Self, BoxError> {
        Ok(match setup {
            Setup::Single | Setup::Resp2 => Self::One(RedisServer::start(options)?),
            Setup::Tls => Self::One(RedisServer::start(options.tls(Arc::new(Certificates::make()?)))?),
            Setup::Acl => Self::One(RedisServer::start(options.user(USER, &rights(library)?))?),
            Setup::Cluster => Self::Cluster(RedisCluster::start(&options, NO_ELECTION)?),
            Setup::Sentinel => Self::Sentinels(RedisSentinels::start(&options, NO_ELECTION)?),
        })
    }

    /// The URL for this setup, with the first of its parameters.
    pub(super) fn url(&self, setup: Setup) -> String {
        match self {
            Self::Cluster(cluster) => format!("{}/?", cluster.url()),
            Self::Sentinels(group) => format!("{}?", group.url()),
            Self::Nodes(nodes) => format!("redlock+{}?", hosts(nodes)),
            Self::One(server) => match (setup, server.options().certificates()) {
                (Setup::Resp2, _) => format!("{}/?protocol=resp2&name=tenure-test&", server.url()),
                (Setup::Acl, _) => format!("redis://{USER}:password@127.0.0.1:{}/?", server.port()),
                (_, Some(certificates)) => format!("{}/?{}&", server.url(), certificates.parameters()),
                _ => format!("{}/?", server.url()),
            },
        }
    }

    /// Every server that keeps locks, or a copy of them.
    pub(crate) fn all(&self) -> &[RedisServer] {
        match self {
            Self::One(server) => slice::from_ref(server),
            Self::Cluster(cluster) => cluster.nodes(),
            Self::Sentinels(group) => group.servers(),
            Self::Nodes(nodes) => nodes,
        }
    }

    pub(crate) fn all_mut(&mut self) -> &mut [RedisServer] {
        match self {
            Self::One(server) => slice::from_mut(server),
            Self::Cluster(cluster) => cluster.nodes_mut(),
            Self::Sentinels(group) => group.servers_mut(),
            Self::Nodes(nodes) => nodes,
        }
    }

    /// Those that serve `key` now.
    pub(super) fn keepers(&self, key: &[u8]) -> Result<&[RedisServer], BoxError> {
        Ok(match self {
            Self::One(server) => slice::from_ref(server),
            Self::Cluster(cluster) => slice::from_ref(&cluster.nodes()[cluster.owner(key)?]),
            Self::Sentinels(group) => slice::from_ref(&group.servers()[group.primary()?]),
            Self::Nodes(nodes) => nodes,
        })
    }

    /// Runs a command on every server.
    pub(super) fn everywhere(&self, args: &[&str]) -> Result<(), BoxError> {
        for server in self.all() {
            server.cli(args)?;
        }
        Ok(())
    }

    /// Makes all servers forget their scripts.
    pub(super) fn forget_scripts(&self) -> Result<(), BoxError> {
        self.everywhere(&["SCRIPT", "FLUSH", "SYNC"])
    }

    /// Makes the primaries forget everything.
    pub(super) fn flush(&self) -> Result<(), BoxError> {
        self.primaries(&["FLUSHALL"])
    }

    /// Runs a command that writes on all primaries.
    fn primaries(&self, args: &[&str]) -> Result<(), BoxError> {
        for server in self.all() {
            match server.cli(args) {
                Err(error) if !error.to_string().contains("READONLY") => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    }

    /// Starts the killed servers again, and waits until they work together.
    pub(super) fn restart(&mut self) -> Result<(), BoxError> {
        for server in self.all_mut() {
            server.restart()?;
        }
        match self {
            Self::One(_) | Self::Nodes(_) => Ok(()),
            Self::Cluster(cluster) => Ok(cluster.settled()?),
            Self::Sentinels(group) => Ok(group.settled()?),
        }
    }
}

/// The URL of independent servers.
pub(crate) fn hosts(nodes: &[RedisServer]) -> String {
    let hosts: Vec<_> = nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
    format!("redis://{}/", hosts.join(","))
}

/// The rules that the driver's README says are enough, with the one for the list of held locks, in the form that a server takes them.
fn rights(library: Library) -> Result<Vec<&'static str>, BoxError> {
    let readme = match library {
        Library::Redis => include_str!("../../../driver-redis/README.md"),
        Library::Fred => include_str!("../../../driver-fred/README.md"),
    };
    let rules = readme.split_once("ACL SETUSER locks ").and_then(|(_, rest)| rest.split_once("```"));
    let rules = rules.ok_or("the README of the driver lists no rights")?.0;
    Ok(rules.split_whitespace().chain(["+scan"]).collect())
}
