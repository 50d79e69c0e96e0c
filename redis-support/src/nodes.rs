//! Independent servers as the nodes of a quorum: some of them may be down when the client starts.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use tenure_core::driver::{ErrorExt as _, QuorumNode};
use tenure_core::{Error, ErrorKind, Result};

use crate::config::{Endpoint, Patience, RedisConfig, Topology};
use crate::keyspace::{ClientId, Keyspace};
use crate::link::{Dialer, WakeLink};
use crate::lock::Driver;
use crate::seats::{Seat, Seats};
use crate::servers::Servers;

/// A node that has been away for longer is not waited for at all: the others do not need it.
const LINK_PATIENCE: Patience = Patience::SinceBroken(Duration::from_millis(100));

impl<D: Dialer + Clone + Default> Driver<D> {
    /// Connects to all nodes of a quorum at once, each within its connect timeout, and checks those that answer. Needs a
    /// tokio runtime, which runs the connections and their tasks.
    ///
    /// It returns each node with its name, `host:port` and the database if it is not 0. As long as a majority answers, it
    /// also returns the nodes that do not: their links keep trying, and they are checked before their first vote. It also
    /// checks that no two nodes are the same server, by the run id in `INFO`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when a configuration is not of a single server; [`ErrorKind::Unavailable`] when no
    /// majority can be reached; the node's error, such as [`ErrorKind::Denied`] or [`ErrorKind::Misconfigured`], when a
    /// person has to repair it: the latter also for one server under two addresses. The error names the nodes.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes all connections that it opened.
    pub async fn connect_nodes(nodes: &[RedisConfig]) -> Result<Vec<(String, Arc<dyn QuorumNode>)>> {
        connect_nodes(D::default(), nodes).await
    }
}

async fn connect_nodes<D: Dialer + Clone>(
    dialer: D,
    configs: &[RedisConfig],
) -> Result<Vec<(String, Arc<dyn QuorumNode>)>> {
    let servers = configs.iter().map(single).collect::<Result<Vec<_>>>()?;
    let seats = Arc::new(Seats::default());
    let join = |(config, server)| join(dialer.clone(), server, config, Arc::clone(&seats)).boxed();
    let joining = configs.iter().zip(servers).map(join);
    let (mut nodes, mut away) = (Vec::new(), Vec::new());
    for (name, node, outcome) in join_all(joining).await {
        match outcome {
            Ok(()) => {}
            Err(error) if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate) => {
                away.push(format!("{name}: {}", error.reason()));
            }
            Err(error) => return Err(error.at(format_args!("the node {name}"))),
        }
        nodes.push((name, Arc::new(node) as Arc<dyn QuorumNode>));
    }
    let (n, needed) = (nodes.len(), nodes.len() / 2 + 1);
    if n - away.len() < needed {
        let text = format!("no quorum can be reached ({needed} of {n} nodes are needed): {}", away.join("; "));
        return Err(Error::new(ErrorKind::Unavailable, text));
    }
    Ok(nodes)
}

fn single(config: &RedisConfig) -> Result<Endpoint> {
    match &config.topology {
        Topology::Single(address) => Ok(config.endpoint(address.clone())),
        _ => Err(Error::new(ErrorKind::InvalidArgument, "a node of a quorum is one server by itself")),
    }
}

async fn join<D: Dialer>(
    dialer: D,
    server: Endpoint,
    config: &RedisConfig,
    seats: Arc<Seats>,
) -> (String, Driver<D>, Result<()>) {
    let config = RedisConfig { link_patience: LINK_PATIENCE, ..config.clone() };
    let name = match server.database {
        0 => server.address.to_string(),
        database => format!("{}/{database}", server.address),
    };
    let keys = Keyspace::of(&config.settings, ClientId::random());
    let wake = WakeLink::default();
    let (servers, first) = Servers::join(dialer, server, &config, wake.listen(keys.wake_channel())).await;
    let outcome = first.map_err(|error| keys.explain(error));
    let seat = Some(Seat::new(seats, name.clone()));
    let node = Driver::unchecked(servers, keys, &config, wake, seat);
    let outcome = match outcome {
        Ok(()) => node.check().await.map(drop),
        failed => failed,
    };
    (name, node, outcome)
}
