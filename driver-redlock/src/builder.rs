//! The list of nodes, and the driver's settings for them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use tenure_core::driver::{Electorate, ProcessOwners, QuorumNode, Ttl};
use tenure_core::{Error, ErrorKind, FenceFloor, FencingToken, Result};

use crate::background::Background;
use crate::driver::Redlock;
use crate::elections::Counters;
use crate::node::Node;
use crate::quorum::MOST_NODES;
use crate::shared::{Proposals, Shared};
use crate::slots::Slots;

/// The effect of a restart on a node's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Restarts {
    /// It may lose leases. A node that restarted does not vote until every lease that it may have forgotten has ended:
    /// for [`max_ttl`](RedlockBuilder::max_ttl). The default.
    #[default]
    MayForget,
    /// It keeps every acknowledged write (Redis: `appendonly yes` and `appendfsync always`), so it may vote at once.
    /// The driver does not check this. If it is not true, two clients can hold a lock after a restart.
    Durable,
}

/// A builder for [`Redlock`]; made by [`Redlock::builder`].
#[must_use = "a builder does nothing until `build`"]
pub struct RedlockBuilder {
    nodes: Vec<(String, Arc<dyn QuorumNode>)>,
    node_timeout: Duration,
    max_ttl: Duration,
    restarts: Restarts,
    proposals: Proposals,
    floor: FenceFloor,
}

impl Redlock {
    /// Begins an empty list of nodes.
    pub fn builder() -> RedlockBuilder {
        RedlockBuilder::new()
    }
}

impl RedlockBuilder {
    pub(crate) fn new() -> Self {
        Self {
            nodes: Vec::new(),
            node_timeout: Duration::from_millis(250),
            max_ttl: Duration::from_secs(60),
            restarts: Restarts::default(),
            proposals: wall_clock(),
            floor: FenceFloor::NONE,
        }
    }

    /// Adds a node. All clients must give the same nodes the same names (`host:port`, say): nodes detect clients with
    /// another list by these names, and errors contain them. The order does not matter.
    pub fn node(mut self, name: impl Into<String>, node: Arc<dyn QuorumNode>) -> Self {
        self.nodes.push((name.into(), node));
        self
    }

    /// Adds several nodes.
    pub fn nodes(self, nodes: impl IntoIterator<Item = (String, Arc<dyn QuorumNode>)>) -> Self {
        nodes.into_iter().fold(self, |builder, (name, node)| builder.node(name, node))
    }

    /// The time a node may take to answer before the others decide without it. Default: 250 ms; 1 ms to 30 s.
    ///
    /// It costs nothing while a majority answers, and bounds an attempt when no majority does. Keep it below a third of
    /// the client's `op_timeout`.
    pub fn node_timeout(mut self, limit: Duration) -> Self {
        self.node_timeout = limit;
        self
    }

    /// The longest lease that any client of these nodes takes; a longer one is refused. Default: 60 s. Set the same
    /// value on all clients: it is also the time for which a restarted node does not vote, see [`Restarts::MayForget`].
    pub fn max_ttl(mut self, max_ttl: Duration) -> Self {
        self.max_ttl = max_ttl;
        self
    }

    /// The effect of a restart on a node's memory. Default: [`Restarts::MayForget`].
    pub fn restarts(mut self, restarts: Restarts) -> Self {
        self.restarts = restarts;
        self
    }

    /// The source of proposals for fences. Default: the wall clock, in microseconds since 1970.
    ///
    /// With proposals, nodes agree on a fence in one round trip, and fences grow even after nodes lost their counters.
    /// Bad proposals (equal, falling, from clocks that disagree) cost another round trip and never uniqueness or order.
    /// `None` proposes nothing. A fence is believed if it is at most a day ahead of the wall clock, or of the proposal
    /// if that is greater.
    pub fn proposals(mut self, proposals: impl Fn() -> Option<FencingToken> + Send + Sync + 'static) -> Self {
        self.proposals = Arc::new(proposals);
        self
    }

    /// The lower bound of all fences, whatever the source of proposals; default none. Use it for names that had greater
    /// fences before, under another backend or another list of nodes.
    ///
    /// A fence below it is no vote. While the floor is ahead of the clock, nodes often need another round trip to
    /// agree. If it is more than a day ahead of a node's clock, that node does not vote, and reports the reason.
    pub fn fence_floor(mut self, floor: FenceFloor) -> Self {
        self.floor = floor;
        self
    }

    /// Checks the settings and creates the driver. Does no I/O.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when there are no nodes, more than 31, two of one name or one without a name, or
    /// when a setting is outside its limits. An even number of nodes is allowed; it needs the same majority as the next
    /// odd number, and survives no more failures than the odd number below it.
    pub fn build(self) -> Result<Redlock> {
        let Self { mut nodes, node_timeout, max_ttl, restarts, proposals, floor } = self;
        nodes.sort_by(|(one, _), (other, _)| one.cmp(other));
        let text = if nodes.is_empty() {
            Some(String::from("a quorum needs at least one node"))
        } else if nodes.len() > MOST_NODES {
            Some(format!("a quorum of {} nodes is too large, the most is {MOST_NODES}", nodes.len()))
        } else if nodes[0].0.is_empty() {
            Some(String::from("a node needs a name"))
        } else if let Some(pair) = nodes.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some(format!("two nodes are named {:?}; one node must not vote twice", pair[0].0))
        } else if !(Duration::from_millis(1)..=Duration::from_secs(30)).contains(&node_timeout) {
            Some(format!("a node_timeout of {node_timeout:?} is outside 1 ms to 30 s"))
        } else {
            None
        };
        if let Some(text) = text {
            return Err(Error::new(ErrorKind::InvalidArgument, text));
        }
        let max_ttl = Ttl::new(max_ttl)?.get();
        let electorate = Electorate::of(nodes.iter().map(|(name, _)| name.as_str()));
        let seniority = match restarts {
            Restarts::Durable => Duration::ZERO,
            // The node's clock may run faster than those of the clients: the usual drift bound, in its favour.
            Restarts::MayForget => max_ttl + max_ttl / 50 + Duration::from_millis(10),
        };
        let owners = owners(&nodes);
        let node = |(name, api)| Arc::new(Node::new(name, api, node_timeout, seniority));
        Ok(Redlock(Arc::new(Shared {
            nodes: nodes.into_iter().map(node).collect(),
            electorate,
            proposals,
            floor,
            max_ttl,
            slots: Slots::default(),
            owners,
            background: Background::default(),
            elections: Counters::default(),
            closed: AtomicBool::new(false),
        })))
    }
}

impl fmt::Debug for RedlockBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.nodes.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("RedlockBuilder")
            .field("nodes", &names)
            .field("node_timeout", &self.node_timeout)
            .field("max_ttl", &self.max_ttl)
            .field("restarts", &self.restarts)
            .field("fence_floor", &self.floor)
            .finish_non_exhaustive()
    }
}

/// The owners of all drivers in this process whose nodes keep the same locks; of this driver alone where a node has no identity.
fn owners(nodes: &[(String, Arc<dyn QuorumNode>)]) -> Arc<ProcessOwners> {
    let identity = |(name, node): &(String, Arc<dyn QuorumNode>)| Some(format!("{name:?} {:?}", node.identity()?));
    let identities: Option<Vec<String>> = nodes.iter().map(identity).collect();
    identities.map_or_else(Arc::default, |nodes| ProcessOwners::of(&format!("redlock {}", nodes.join(" "))))
}

/// Microseconds since 1970, and never the same twice.
fn wall_clock() -> Proposals {
    let last = AtomicU64::new(0);
    Arc::new(move || {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?;
        let now = u64::try_from(since.as_micros()).ok()?;
        let before = last.fetch_max(now, Ordering::AcqRel);
        if before < now { FencingToken::new(now) } else { FencingToken::new(last.fetch_add(1, Ordering::AcqRel) + 1) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_nodes_of_one_name_are_refused_wherever_they_are_listed() {
        let node = |name: &str| (name.to_owned(), Arc::new(tenure_memory::MemoryDriver::new()) as Arc<dyn QuorumNode>);
        let error = Redlock::builder().nodes(["a", "b", "a"].map(node)).build().unwrap_err();
        assert!(error.kind() == ErrorKind::InvalidArgument && error.message().contains("two nodes are named \"a\""));
        let driver = Redlock::builder().nodes(["c", "a", "b"].map(node)).build().unwrap();
        let names: Vec<&str> = driver.0.nodes.iter().map(|node| node.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "c"], "all clients number them alike");
        let so_many = |count| Redlock::builder().nodes((0..count).map(|name| node(&name.to_string()))).build();
        assert!(so_many(MOST_NODES).is_ok());
        assert_eq!(so_many(MOST_NODES + 1).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }

    #[test]
    fn no_clock_proposes_a_fence_twice() {
        let next = wall_clock();
        let all: Vec<FencingToken> = (0..10_000).map(|_| next().unwrap()).collect();
        assert!(all.windows(2).all(|pair| pair[0] < pair[1]));
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_micros();
        assert!(u128::from(all[0].get()) <= now && u128::from(all[9_999].get()) + 10_000_000 > now);
    }
}
