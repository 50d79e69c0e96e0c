//! The trait of a node that votes in a quorum, in addition to plain locks.

use std::fmt;
use std::hash::Hasher as _;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fnv::FnvHasher;

use super::{AcquireRequest, Acquisition, DistributedLock, Doctor, Hold};
use crate::value::error::Result;
use crate::value::token::FencingToken;

/// One of several independent nodes over which a quorum is taken.
///
/// The locks of a node are its plain locks; this trait adds the methods of a quorum, so that the fencing tokens of the
/// quorum's grants are unique and ordered, and so that a node that forgot its leases does not vote again too soon.
///
/// A node keeps one fence counter for each name that a quorum uses, and no other name may move it. It may forget a
/// counter that was not used for as long as the clocks of clients, which seed the next fence, may differ: usually for
/// [`CLOCKS_APART`](super::CLOCKS_APART). A node that loses one sooner counts as restarted with empty memory.
#[async_trait]
pub trait QuorumNode: DistributedLock {
    /// Votes: [`acquire`](DistributedLock::acquire), with three differences.
    ///
    /// * A new grant sets the counter of the name to `max(counter + 1, proposal)` and carries the new value. A proposal
    ///   that is not [credible](super::CredibleFences) by the node's clock counts as none, so that a client with a
    ///   broken clock cannot use the counter up. A counter that is not credible is damaged: the quorum does not count a
    ///   vote that carries it, and a node that notices refuses.
    /// * A node that began with an empty memory less than [`seniority`](Ballot::seniority) ago refuses with
    ///   [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable): a holder could still rely on a lease that the node
    ///   forgot.
    /// * A node that votes in another [`Electorate`] answers [`Vote::Elsewhere`]. The first ballot that a node sees
    ///   decides its electorate.
    ///
    /// The whole vote is one atomic step, and a refusal changes nothing. Cancel safety is that of `acquire`.
    async fn vote(&self, ballot: &Ballot) -> Result<Vote>;

    /// Writes a fence back: if the token holds the lock *and* the counter is at most `fence`, sets the counter (and the
    /// hold's own fence) to `fence`, in one atomic step. Both conditions are needed: without either, two grants can get
    /// the same fence. A fence that is not [credible](super::CredibleFences) by the node's clock is refused. May be
    /// called again.
    async fn raise(&self, hold: &Hold, fence: FencingToken) -> Result<Raised>;

    /// Makes the node vote in this electorate from now on, regardless of its earlier one. For operators after a change
    /// of the list of nodes: while no client uses the old list, and after its last lease ended.
    async fn enroll(&self, electorate: &Electorate) -> Result<()>;

    /// Returns the identity of this node's locks in this process: its server, database and prefix, or its store. Nodes
    /// that answer the same keep the same locks; `None` if it is not known. No I/O.
    fn identity(&self) -> Option<String>;

    /// Returns the health check of the node's server, if the driver has one. No I/O.
    fn doctor(&self) -> Option<Arc<dyn Doctor>>;
}

/// A request for a node's vote.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Ballot {
    /// The lock request.
    pub request: AcquireRequest,
    /// The least fence that the asking client proposes; `None` if it has no proposal.
    pub proposal: Option<FencingToken>,
    /// The time that a node must have kept its memory before it may vote; zero if memory survives a restart.
    pub seniority: Duration,
    /// The voting nodes.
    pub electorate: Electorate,
}

impl Ballot {
    /// Makes a ballot without a proposal, at nodes whose memory survives a restart.
    #[must_use]
    pub const fn new(request: AcquireRequest, electorate: Electorate) -> Self {
        Self { request, electorate, proposal: None, seniority: Duration::ZERO }
    }
}

setters!(Ballot {
    with_request => request: AcquireRequest,
    with_proposal => proposal: Option<FencingToken>,
    with_seniority => seniority: Duration,
    with_electorate => electorate: Electorate,
});

/// The answer to [`QuorumNode::vote`].
#[derive(Clone, Debug)]
pub enum Vote {
    /// The node voted: for the token, or for the current holder.
    Cast(Acquisition),
    /// The node belongs to another electorate. Nothing was changed.
    Elsewhere {
        /// The node's electorate, as [`Electorate`] is displayed.
        electorate: String,
    },
}

/// The answer to [`QuorumNode::raise`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Raised {
    /// The token holds the lock, and the counter is the fence.
    Acknowledged,
    /// The token does not hold the lock. Nothing was changed.
    NotOwner,
    /// The counter is ahead of the fence already. Nothing was changed.
    Beyond {
        /// The counter.
        counter: FencingToken,
    },
}

/// The voting nodes: their number and a digest of their names. Two clients with different lists of nodes would make two
/// quorums without mutual exclusion; the electorate reveals that.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Electorate {
    nodes: u8,
    digest: u64,
}

impl Electorate {
    /// Makes the electorate of these nodes, in any order.
    #[must_use]
    pub fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut names: Vec<&str> = names.into_iter().collect();
        names.sort_unstable();
        let mut digest = FnvHasher::default(); // nodes keep it: it must be the same in every version
        for name in &names {
            digest.write(name.as_bytes());
            digest.write_u8(0xff); // no name holds this byte, so it keeps names apart
        }
        Self { nodes: u8::try_from(names.len()).unwrap_or(u8::MAX), digest: digest.finish() }
    }
}

impl fmt::Display for Electorate {
    /// Prints the text form that nodes keep: the number of nodes and sixteen hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:016x}", self.nodes, self.digest)
    }
}

impl fmt::Debug for Electorate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Electorate({self})")
    }
}

#[cfg(feature = "mock")]
pub(crate) mod mock {
    use super::{
        Acquisition, Arc, Ballot, Doctor, Electorate, FencingToken, Hold, QuorumNode, Raised, Result, Vote, async_trait,
    };
    use crate::driver::{
        AcquireRequest, DistributedLock, ForceReleased, Inspection, LockCapabilities, Released, Renewed, Watch,
    };
    use crate::value::error::LockName;
    use crate::value::time::Ttl;
    use crate::value::token::OwnerToken;

    mockall::mock! {
        /// A mock of [`QuorumNode`].
        #[derive(Debug)]
        pub QuorumNode {}

        #[async_trait]
        impl DistributedLock for QuorumNode {
            fn driver(&self) -> &'static str;
            fn capabilities(&self) -> LockCapabilities;
            async fn acquire(&self, request: &AcquireRequest) -> Result<Acquisition>;
            async fn renew(&self, ttl: Ttl, holds: &[Hold]) -> Vec<Result<Renewed>>;
            async fn release(&self, hold: &Hold) -> Result<Released>;
            async fn abandon(&self, hold: &Hold) -> Result<()>;
            async fn watch(&self, name: &LockName, token: &OwnerToken) -> Result<Watch>;
            async fn inspect(&self, name: &LockName) -> Result<Inspection>;
            async fn force_release(&self, name: &LockName, expected: Option<FencingToken>) -> Result<ForceReleased>;
            async fn close(&self);
        }

        #[async_trait]
        impl QuorumNode for QuorumNode {
            async fn vote(&self, ballot: &Ballot) -> Result<Vote>;
            async fn raise(&self, hold: &Hold, fence: FencingToken) -> Result<Raised>;
            async fn enroll(&self, electorate: &Electorate) -> Result<()>;
            fn identity(&self) -> Option<String>;
            fn doctor(&self) -> Option<Arc<dyn Doctor>>;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_electorate_knows_its_nodes_and_not_their_order() {
        let three = Electorate::of(["a", "b", "c"]);
        assert_eq!(three, Electorate::of(["c", "a", "b"]));
        for other in [Electorate::of(["a", "b"]), Electorate::of(["a", "b", "d"]), Electorate::of(["ab", "c", ""])] {
            assert_ne!(three, other);
        }
        assert_eq!(three.to_string(), "3-3ab336ed30c133fc", "what nodes keep of earlier versions");
    }
}
