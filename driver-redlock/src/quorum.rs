//! The result of an election: decisions over the nodes' answers. No time, no I/O; events in, decisions out.
//!
//! A majority is always one of all configured nodes, for acquiring a lock as well as for renewing it. The fence of a
//! grant is `m` once a majority of nodes has, each at some instant, been owned by the token *and* had its counter at
//! `m`: either by the vote itself, which answered `m`, or by a conditional raise to `m`. Any two grants then share a
//! node, and the counter of that node orders them.

use tenure_core::driver::Released;

pub(crate) use crate::node_set::{MOST_NODES, NodeSet};

/// More than half of `n`.
pub(crate) fn majority(n: usize) -> usize {
    n / 2 + 1
}

/// The most raises that one election may need before it is given up.
const MOST_RAISES: u32 = 3;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Event {
    /// The node belongs to the token since this vote, which carried this fence.
    Granted { node: usize, fence: u64 },
    /// The node belongs to another token.
    Refused { node: usize },
    /// The node did not vote.
    Failed { node: usize },
    /// The node belongs to another electorate.
    Elsewhere { node: usize },
    /// The raise to `fence` was acknowledged.
    Raised { node: usize, fence: u64 },
    /// The raise to `fence` found the counter ahead.
    Beyond { node: usize, fence: u64, counter: u64 },
    /// The raise found that the node no longer belongs to the token.
    NotOwner { node: usize },
    /// The raise was not answered.
    RaiseFailed { node: usize },
}

/// What to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Wait for the next event.
    Wait,
    /// Send raises to `fence` to these nodes.
    Raise { nodes: NodeSet, fence: u64 },
    /// The lock is held, with this fence.
    Won { fence: u64 },
    /// The lock is not held, and will not be.
    Lost(Defeat),
}

/// Why an election was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Defeat {
    /// A majority of nodes works, but grants to others.
    Busy,
    /// Too many nodes failed for a majority to work.
    Faults,
    /// A node belongs to another electorate: there may be two quorums that do not exclude each other.
    Elsewhere,
}

/// One attempt to win a majority.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Election {
    n: usize,
    /// Asked, and not yet heard of.
    pending: NodeSet,
    granted: NodeSet,
    refused: NodeSet,
    failed: NodeSet,
    elsewhere: NodeSet,
    /// The counter of each granted node, as far as it is known.
    counters: Vec<u64>,
    /// Where owner and counter were right at once, for the fence that is being agreed on.
    agreed: NodeSet,
    raising: NodeSet,
    fence: Option<u64>,
    raises: u32,
}

impl Election {
    /// An election in which all `n` nodes are asked.
    pub(crate) fn new(n: usize) -> Self {
        Self {
            n,
            pending: NodeSet::first(n),
            granted: NodeSet::EMPTY,
            refused: NodeSet::EMPTY,
            failed: NodeSet::EMPTY,
            elsewhere: NodeSet::EMPTY,
            counters: vec![0; n],
            agreed: NodeSet::EMPTY,
            raising: NodeSet::EMPTY,
            fence: None,
            raises: 0,
        }
    }

    pub(crate) fn granted(&self) -> NodeSet {
        self.granted
    }

    pub(crate) fn pending(&self) -> NodeSet {
        self.pending
    }

    /// Asks the nodes that refused once more.
    pub(crate) fn ask_again(&mut self) -> NodeSet {
        let again = std::mem::take(&mut self.refused);
        self.pending = self.pending.or(again);
        again
    }

    /// Takes an event in and decides.
    pub(crate) fn take(&mut self, event: Event) -> Decision {
        match event {
            Event::Granted { node, fence } => {
                self.pending.remove(node);
                self.granted.insert(node);
                self.counters[node] = fence;
                // A late vote may carry the very fence that is being agreed on, and then needs no raise.
                if self.fence == Some(fence) {
                    self.agreed.insert(node);
                }
            }
            Event::Refused { node } => {
                self.pending.remove(node);
                self.refused.insert(node);
            }
            Event::Failed { node } => {
                self.pending.remove(node);
                self.failed.insert(node);
            }
            Event::Elsewhere { node } => {
                self.pending.remove(node);
                self.elsewhere.insert(node);
            }
            Event::Raised { node, fence } => {
                // An answer to a raise of an earlier agreement proves nothing about this one.
                if self.fence == Some(fence) {
                    self.raising.remove(node);
                    self.agreed.insert(node);
                    self.counters[node] = fence;
                }
            }
            Event::Beyond { node, fence, counter } => {
                if self.fence == Some(fence) {
                    self.raising.remove(node);
                }
                self.counters[node] = self.counters[node].max(counter);
            }
            Event::NotOwner { node } => {
                // The vote has ended or was taken: it counts for nothing any more, nor does what it agreed to.
                self.raising.remove(node);
                self.granted.remove(node);
                self.agreed.remove(node);
                self.refused.insert(node);
            }
            Event::RaiseFailed { node } => {
                self.raising.remove(node);
                self.failed.insert(node);
            }
        }
        self.decide()
    }

    fn decide(&mut self) -> Decision {
        let needed = majority(self.n);
        // Before any majority is counted: two electorates can have one each.
        if !self.elsewhere.is_empty() {
            return Decision::Lost(Defeat::Elsewhere);
        }
        if let Some(fence) = self.fence
            && self.agreed.len() >= needed
        {
            return Decision::Won { fence };
        }
        // Even if all that are still to answer grant, there is no majority.
        if self.usable().or(self.pending).len() < needed {
            return Decision::Lost(self.defeat());
        }
        match self.fence {
            None if self.granted.len() >= needed => self.agree(),
            None => Decision::Wait,
            Some(fence) => {
                // Votes that came after the fence was chosen: their nodes are raised to it. A node that is ahead of it
                // is of use only in a new agreement, when this one cannot reach a majority any more.
                let late = self.usable().without(self.agreed.or(self.raising));
                let behind = late.iter().filter(|node| self.counters[*node] < fence).fold(NodeSet::EMPTY, with);
                if !behind.is_empty() {
                    self.raising = self.raising.or(behind);
                    return Decision::Raise { nodes: behind, fence };
                }
                if self.agreed.or(self.raising).or(self.pending).len() < needed { self.agree() } else { Decision::Wait }
            }
        }
    }

    /// Granted nodes that can still be brought to agree: a failed raise leaves a node's counter unknown.
    fn usable(&self) -> NodeSet {
        self.granted.without(self.failed).or(self.agreed)
    }

    /// Settles on the greatest counter seen, which may need a raise at the nodes that are behind.
    fn agree(&mut self) -> Decision {
        let usable = self.granted.without(self.failed);
        let fence = usable.iter().map(|node| self.counters[node]).max().unwrap_or_default();
        if self.raises == MOST_RAISES {
            return Decision::Lost(self.defeat());
        }
        self.fence = Some(fence);
        self.agreed = usable.iter().filter(|node| self.counters[*node] == fence).fold(NodeSet::EMPTY, with);
        // A counter that a raise found ahead is not one that this token has set: it has yet to be acknowledged there.
        if self.raises > 0 {
            self.agreed = NodeSet::EMPTY;
        }
        if self.agreed.len() >= majority(self.n) {
            return Decision::Won { fence };
        }
        self.raises += 1;
        self.raising = usable.without(self.agreed);
        Decision::Raise { nodes: self.raising, fence }
    }

    fn defeat(&self) -> Defeat {
        if self.n - self.failed.len() >= majority(self.n) { Defeat::Busy } else { Defeat::Faults }
    }
}

fn with(mut all: NodeSet, node: usize) -> NodeSet {
    all.insert(node);
    all
}

/// The renewal of one hold, node by node.
#[derive(Clone, Debug)]
pub(crate) struct RenewTally<T> {
    n: usize,
    kept: Vec<T>,
    /// Nodes that do not have the lock any more.
    lost: NodeSet,
    failed: usize,
}

/// What the renewals at all nodes come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict<T> {
    /// Wait for the next answer.
    Wait,
    /// A majority keeps the lease, for at least this long.
    Kept(T),
    /// No majority can keep it.
    Lost,
    /// The result cannot be known.
    Unknown,
}

impl<T: Copy + Ord> RenewTally<T> {
    pub(crate) fn new(n: usize) -> Self {
        Self { n, kept: Vec::with_capacity(n), lost: NodeSet::EMPTY, failed: 0 }
    }

    pub(crate) fn kept(&mut self, for_long: T) {
        self.kept.push(for_long);
    }

    pub(crate) fn lost(&mut self, node: usize) {
        self.lost.insert(node);
    }

    pub(crate) fn failed(&mut self) {
        self.failed += 1;
    }

    pub(crate) fn verdict(&self) -> Verdict<T> {
        let needed = majority(self.n);
        if let Some(shortest) = at_majority(&self.kept, needed) {
            return Verdict::Kept(shortest);
        }
        if self.lost.len() > self.n - needed {
            return Verdict::Lost;
        }
        if self.kept.len() + self.lost.len() + self.failed == self.n { Verdict::Unknown } else { Verdict::Wait }
    }

    /// Which nodes are to be taken back: those that lost it, but only for a lease that a majority keeps. A lost one must
    /// not come to life again.
    pub(crate) fn to_heal(&self) -> NodeSet {
        if matches!(self.verdict(), Verdict::Kept(_)) { self.lost } else { NodeSet::EMPTY }
    }
}

/// What a majority has at least: the `needed`-th greatest value.
pub(crate) fn at_majority<T: Copy + Ord>(values: &[T], needed: usize) -> Option<T> {
    let mut values = values.to_vec();
    values.sort_unstable_by(|a, b| b.cmp(a));
    values.get(needed.checked_sub(1)?).copied()
}

/// The release of one hold, node by node. Kept over several tries, each of which asks who has not answered yet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReleaseTally {
    released: NodeSet,
    not_held: NodeSet,
    /// Asked in a try whose answer was not heard: what they say later may be our own doing.
    unheard: NodeSet,
}

/// What the releases at all nodes come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freed {
    /// A majority was held, and is free.
    Released,
    /// No majority was held.
    NotHeld,
    /// Not known yet.
    Open,
}

impl ReleaseTally {
    /// Takes in a node's answer. One that was not asked whether it had the lock has not answered.
    pub(crate) fn heard(&mut self, node: usize, reported: Option<Released>) {
        match reported {
            Some(Released::Released) => self.released(node),
            Some(Released::NotHeld) => self.not_held(node),
            None => {}
        }
    }

    fn released(&mut self, node: usize) {
        self.released.insert(node);
        self.not_held.remove(node);
    }

    /// A node that released it in an earlier try does not hold it in this one.
    fn not_held(&mut self, node: usize) {
        if !self.released.contains(node) {
            self.not_held.insert(node);
        }
    }

    /// The nodes that have answered.
    pub(crate) fn answered(self) -> NodeSet {
        self.released.or(self.not_held)
    }

    /// Begins a try: nodes that have not answered are asked, perhaps once more.
    pub(crate) fn ask(&mut self, n: usize) -> Self {
        let before = *self;
        self.unheard = self.unheard.or(NodeSet::first(n).without(self.answered()));
        before
    }

    /// The verdict that is proved so far; `before` is the tally when the try began.
    pub(crate) fn verdict(self, before: Self, n: usize) -> Freed {
        if self.released.len() >= majority(n) {
            Freed::Released
        } else if self.not_held.without(before.unheard).len() > n - majority(n) {
            Freed::NotHeld
        } else {
            Freed::Open
        }
    }

    /// The verdict when no more answers will come. A majority that has answered is free of the token, regardless of the
    /// rest; it was held if those that released it now, or may have before, make up a majority.
    pub(crate) fn final_verdict(self, before: Self, n: usize) -> Freed {
        if self.answered().len() < majority(n) {
            return Freed::Open;
        }
        let unanswered = NodeSet::first(n).without(self.answered());
        let perhaps = self.released.or(unanswered).or(before.unheard.and(self.not_held));
        let held = !self.released.is_empty() && perhaps.len() >= majority(n);
        if held { Freed::Released } else { Freed::NotHeld }
    }
}

#[cfg(test)]
mod tests;
