//! What differs between the backends: servers, ttls, and how soon all is well again after the last fault.

use std::time::Duration;

use tenure_conformance::BoxError;
use tenure_testkit::RedisOptions;
#[cfg(feature = "etcd")]
use tenure_testkit::{EtcdCluster, EtcdOptions};

use super::fault::Data;
use super::judge::Bounds;
#[cfg(feature = "etcd")]
use super::servers::EtcdMembers;
use super::servers::{MARIADB_DATABASE, MariaDbNode, PostgresNode, RedisNodes, Servers, SqliteFile};

/// A backend, as far as this test has to know it.
#[derive(Debug)]
pub(crate) struct Profile {
    pub(crate) id: &'static str,
    kind: Kind,
    /// Of the locks that are taken.
    pub(crate) ttl: Duration,
    /// See [`Bounds::stall`].
    stall: Duration,
    /// Within which every task gets its lock and every process ends, counted from the end of the last fault.
    pub(crate) settle: Duration,
    /// Within which a server has nothing left of clients that were killed, counted from the end of the last process.
    pub(crate) clean: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Redis,
    Fred,
    Sqlite,
    MariaDb,
    Postgres {
        logged: bool,
        standby: bool,
    },
    Redlock {
        nodes: usize,
    },
    #[cfg(feature = "etcd")]
    Etcd {
        members: usize,
    },
}

/// A waiter that was killed is remembered for its presence of 15 s.
const PRESENCE: Duration = Duration::from_secs(15);
/// See [`Bounds::reported_late`].
const REPORTED_LATE: Duration = Duration::from_millis(250);

const PROFILES: &[Profile] = &[
    redis("redis/single", Kind::Redis),
    redis("fred/single", Kind::Fred),
    redis("sqlite/file", Kind::Sqlite),
    postgres("postgres/unlogged", false, false),
    postgres("postgres/logged", true, false),
    postgres("postgres/promotion", false, true),
    MARIADB,
    redlock("redlock/3-live", 3),
    redlock("redlock/5-live", 5),
    #[cfg(feature = "etcd")]
    etcd("etcd/single", 1),
    #[cfg(feature = "etcd")]
    etcd("etcd/3-members", 3),
];

const fn redis(id: &'static str, kind: Kind) -> Profile {
    let ttl = Duration::from_secs(1);
    // A waiter that is stopped when its turn comes keeps it for 2 s, and several may be, one after the other.
    let (stall, settle) = (Duration::from_secs(6), Duration::from_secs(10));
    Profile { id, kind, ttl, stall, settle, clean: PRESENCE.saturating_add(ttl) }
}

const fn postgres(id: &'static str, logged: bool, standby: bool) -> Profile {
    let ttl = Duration::from_secs(1);
    // A server that forgot its leases grants none for a ttl, counted from the first who asks.
    let (stall, settle) = (Duration::from_secs(8), Duration::from_secs(15));
    Profile { id, kind: Kind::Postgres { logged, standby }, ttl, stall, settle, clean: PRESENCE.saturating_add(ttl) }
}

/// Waiters ask, and a server that was killed recovers before it answers.
const MARIADB: Profile = Profile {
    id: "mysql/mariadb",
    kind: Kind::MariaDb,
    ttl: Duration::from_secs(1),
    stall: Duration::from_secs(8),
    settle: Duration::from_secs(15),
    clean: Duration::from_secs(2),
};

const fn redlock(id: &'static str, nodes: usize) -> Profile {
    let ttl = Duration::from_secs(1);
    let (stall, settle) = (Duration::from_secs(8), Duration::from_secs(20));
    Profile { id, kind: Kind::Redlock { nodes }, ttl, stall, settle, clean: PRESENCE.saturating_add(ttl) }
}

#[cfg(feature = "etcd")]
const fn etcd(id: &'static str, members: usize) -> Profile {
    let ttl = Duration::from_secs(2);
    // A new leader gives every lease its whole span again, and the watches have to find it.
    let (stall, settle) = (Duration::from_secs(10), Duration::from_secs(20));
    Profile { id, kind: Kind::Etcd { members }, ttl, stall, settle, clean: settle }
}

impl Profile {
    pub(crate) fn of(id: &str) -> Result<&'static Self, BoxError> {
        let found = PROFILES.iter().find(|profile| profile.id == id);
        Ok(found.ok_or_else(|| format!("no backend \"{id}\"; there are {}", Self::ids().join(", ")))?)
    }

    pub(crate) fn ids() -> Vec<&'static str> {
        PROFILES.iter().map(|profile| profile.id).collect()
    }

    /// The bounds of the judge, on a machine that is so many times slower.
    pub(crate) fn bounds(&self, slack: f64) -> Bounds {
        Bounds { reported_late: REPORTED_LATE.mul_f64(slack), stall: self.stall.mul_f64(slack) }
    }

    pub(crate) fn may_lose_data(&self) -> bool {
        match self.kind {
            Kind::Redis | Kind::Fred | Kind::Redlock { .. } => true,
            Kind::Sqlite | Kind::MariaDb | Kind::Postgres { .. } => false,
            #[cfg(feature = "etcd")]
            Kind::Etcd { .. } => false,
        }
    }

    /// Whether the promise of one holder at a time is kept over restarts that lose data; that of fences always is.
    pub(crate) fn excludes_over(&self, data: Data) -> bool {
        data == Data::Kept || matches!(self.kind, Kind::Redlock { .. })
    }

    /// Whether all clients have to reach the servers in the same places: nodes of a quorum are known by theirs.
    pub(crate) fn shares_links(&self) -> bool {
        matches!(self.kind, Kind::Redlock { .. })
    }

    pub(crate) fn has_queues(&self) -> bool {
        // An asynchronous standby has not got every message that was stored.
        !matches!(self.kind, Kind::Redlock { .. } | Kind::Postgres { standby: true, .. })
    }

    /// Whether a transaction of the user's own can be guarded, and what it committed outlives a kill.
    pub(crate) fn has_guards(&self) -> bool {
        matches!(self.kind, Kind::MariaDb | Kind::Postgres { standby: false, .. })
    }

    /// Starts the servers.
    pub(crate) fn start(&self, data: Data) -> Result<Box<dyn Servers>, BoxError> {
        let options = match data {
            Data::Kept => RedisOptions::new().append_only(),
            Data::Lost => RedisOptions::new(),
        };
        Ok(match self.kind {
            Kind::Redis | Kind::Fred => Box::new(RedisNodes::start(1, &options, data)?),
            Kind::Sqlite => Box::new(SqliteFile::new()?),
            Kind::MariaDb => Box::new(MariaDbNode::start()?),
            Kind::Postgres { logged, standby } => Box::new(PostgresNode::start(logged, self.ttl, standby)?),
            Kind::Redlock { nodes } => Box::new(RedisNodes::start(nodes, &options, data)?),
            #[cfg(feature = "etcd")]
            Kind::Etcd { members } => Box::new(EtcdMembers(EtcdCluster::start(EtcdOptions::new(), members)?)),
        })
    }

    /// The URL of servers that are reached through these ports of loopback.
    pub(crate) fn url(&self, ports: &[u16], data: Data) -> String {
        let hosts: Vec<_> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let (hosts, link) = (hosts.join(","), "ping_interval_ms=500");
        match self.kind {
            Kind::Redis => format!("redis://{hosts}/?{link}"),
            Kind::Fred => format!("fred+redis://{hosts}/?{link}"),
            Kind::Sqlite => String::from("sqlite:"), // the servers know better
            Kind::MariaDb => format!("mysql://root@{hosts}/{MARIADB_DATABASE}"),
            Kind::Postgres { .. } => format!("postgres://postgres@{hosts}/postgres"),
            Kind::Redlock { .. } => {
                let restarts = if data == Data::Kept { "durable" } else { "may_forget" };
                let ttl = self.ttl.as_millis();
                format!("redlock+redis://{hosts}/?restarts={restarts}&max_ttl_ms={ttl}&{link}")
            }
            #[cfg(feature = "etcd")]
            Kind::Etcd { .. } => format!("{}/?clock_error_ms=100", EtcdCluster::url_of(ports)),
        }
    }
}
