//! Which client library, and which arrangement of servers.

use tenure_core::driver::Exclusion;

/// A cap on waiters that the suite can reach.
pub(crate) const MAX_WAITERS: u32 = 100;

/// The client library under the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// The crate `redis`.
    Redis,
    /// The crate `fred`.
    Fred,
}

/// The arrangement of servers, and how they are spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setup {
    /// One server.
    Single,
    /// One server, spoken to in the older protocol, on connections with a name.
    Resp2,
    /// One server that speaks TLS only and asks for the client's certificate.
    Tls,
    /// One server, as a user with exactly the rights that the driver's README lists.
    Acl,
    /// A cluster of three primaries with a replica each.
    Cluster,
    /// A primary and a replica, found through three sentinels.
    Sentinel,
}

impl Library {
    pub(super) const ALL: [Self; 2] = [Self::Redis, Self::Fred];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Fred => "fred",
        }
    }

    /// The URL of the driver on this library.
    pub(super) fn url(self, url: String) -> String {
        match self {
            Self::Redis => url,
            Self::Fred => format!("fred+{url}"),
        }
    }
}

impl Setup {
    pub(super) const ALL: [Self; 6] = [Self::Single, Self::Resp2, Self::Tls, Self::Acl, Self::Cluster, Self::Sentinel];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Resp2 => "resp2",
            Self::Tls => "tls",
            Self::Acl => "acl",
            Self::Cluster => "cluster",
            Self::Sentinel => "sentinel",
        }
    }

    /// What can break exclusion there.
    pub(super) const fn exclusion(self) -> Exclusion {
        match self {
            Self::Single | Self::Resp2 | Self::Tls | Self::Acl => Exclusion::SingleNode,
            Self::Cluster | Self::Sentinel => Exclusion::LossyFailover,
        }
    }

    /// Whether one server is all there is: then its clock can be moved without upsetting others.
    pub(super) fn is_alone(self) -> bool {
        self.exclusion() == Exclusion::SingleNode
    }
}
