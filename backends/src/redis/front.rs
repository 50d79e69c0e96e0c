//! A proxy before a single Redis server, and the server that takes over from it.

use std::sync::Arc;

use tenure_conformance::{BoxError, Fault, FaultKind, Healer};
use tenure_testkit::{RedisServer, TcpProxy};

use super::servers::{Shared, lock};
use crate::proxied;

/// What the clients of a server of a case's own connect to.
pub(super) struct Front {
    proxy: Arc<TcpProxy>,
    successor: Option<RedisServer>,
}

impl Front {
    /// The faults that take a proxy.
    pub(super) const FAULTS: &[FaultKind] =
        &[FaultKind::SilenceConnections, FaultKind::FewConnections, FaultKind::DemoteServer];

    pub(super) fn before(servers: &Shared) -> Result<Self, BoxError> {
        let proxy = Arc::new(TcpProxy::start(lock(servers).all()[0].port())?);
        Ok(Self { proxy, successor: None })
    }

    /// The URL of the server through the proxy.
    pub(super) fn url(&self, servers: &Shared) -> String {
        format!("{}/?", lock(servers).all()[0].url_through(self.proxy.port()))
    }

    pub(super) fn inject(&mut self, servers: &Shared, fault: &Fault) -> Result<Healer, BoxError> {
        if fault.kind() != FaultKind::DemoteServer {
            return proxied::inject(vec![Arc::clone(&self.proxy)], fault);
        }
        let old = lock(servers);
        let old = &old.all()[0];
        let successor = RedisServer::start(old.options().clone())?;
        self.proxy.lead_to(successor.port());
        old.cli(&["REPLICAOF", "127.0.0.1", &successor.port().to_string()])?;
        self.successor = Some(successor);
        Ok(Healer::nothing())
    }
}
