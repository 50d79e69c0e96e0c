//! The world around the driver's decisions, as a transition system. There is one name. Every attempt has its own
//! tokens, so an attempt is an owner. The client's decisions are the driver's own code, see [`mind`](super::mind). The
//! node's behaviour is defined here, and compared with real nodes on random traces.
//!
//! A request that was sent may arrive at any later time, also after the client gave up, or never. An answer that
//! reports a change may be received at any later time; an answer that reports none is received at once. A release is an
//! expiry of an attempt that is done.

use std::fmt;

use super::mind::Id;

pub(super) const NODES: usize = 4;
pub(super) const ATTEMPTS: usize = 3;

/// The fence that is written back to the nodes before a grant is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteBack {
    /// Nothing: the client uses the greatest fence of the votes.
    None,
    /// All nodes receive, and take, the greater of the two, regardless of their owner.
    Unconditional,
    /// The same, if the token owns the node.
    OwnerOnly,
    /// If the token owns the node and the counter is not ahead: the conditional raise.
    Conditional,
}

/// What clients propose as fences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hints {
    None,
    /// Later attempts propose more, and more than any counter.
    Growing,
    /// Anything, in any order.
    Wild,
}

/// What a crash does to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Memory {
    Kept,
    /// It forgets lease and counter, and is back at once.
    Lost,
    /// It forgets, and votes again when no forgotten lease is in use any more.
    LostWithWait,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Protocol {
    pub(super) nodes: usize,
    pub(super) attempts: usize,
    pub(super) write_back: WriteBack,
    pub(super) hints: Hints,
    /// Whether a lease lasts at the node until its client has given it up; else it may end at any time.
    pub(super) timed: bool,
    /// Whether what a node did may be heard of later than at once.
    pub(super) late: bool,
    /// Whether requests may go unanswered, done or not.
    pub(super) faults: bool,
    /// Whether a vote may be delivered twice.
    pub(super) repeats: bool,
    /// Whether who refused is asked once more after a lost election.
    pub(super) again: bool,
    /// Whether holders renew, and ask nodes that lost the lock to grant it again.
    pub(super) heals: bool,
    /// Whether tokens are undone: a node that acknowledged it must never serve the token again.
    pub(super) undoes: bool,
    /// Whether an operator may take the lock from a holder, node by node.
    pub(super) forces: bool,
    pub(super) memory: Memory,
    pub(super) crashes: u8,
    /// Whether a renewal needs a majority of all nodes; else whatever nodes are left.
    pub(super) renewal_needs_majority: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Node {
    /// Attempt + 1, or 0.
    pub(super) owner: u8,
    pub(super) counter: u8,
    /// The attempts whose leases it may have forgotten; it casts no votes while there are any.
    pub(super) forgot: u8,
    /// The attempts that it refuses for ever.
    pub(super) buried: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Phase {
    #[default]
    Idle,
    Asking,
    Held,
    Done,
}

/// What became of the request for a vote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Vote {
    #[default]
    None,
    Sent,
    /// It may arrive, and no client will receive its answer.
    Stray,
    /// Cast with this fence, and not received yet.
    Said(u8),
    Heard(u8),
}

/// What became of one raise: two bits each in [`Wire::raises`].
pub(super) const RAISE_SENT: u8 = 1;
/// Acknowledged, and not heard of.
pub(super) const RAISE_SAID: u8 = 2;
/// Heard of, or never to be.
pub(super) const RAISE_OVER: u8 = 3;
pub(super) const ROUNDS: usize = 4;

/// A node's answer in the present renewal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Answer {
    #[default]
    None,
    Kept,
    /// It was kept, and then forgotten.
    KeptAndForgotten,
    Gone,
    Failed,
}

/// The vote that is to take a node back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Heal {
    #[default]
    None,
    Sent,
    /// It may arrive, and no client will receive its answer.
    Stray,
    Over,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Undo {
    #[default]
    None,
    Release,
    /// A release, and an abandonment if that found no lease.
    Either,
    Abandon,
    Acknowledged,
}

/// The messages between an attempt and a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Wire {
    pub(super) vote: Vote,
    pub(super) repeated: bool,
    pub(super) raises: u8,
    pub(super) answer: Answer,
    pub(super) heal: Heal,
    pub(super) undo: Undo,
}

impl Wire {
    pub(super) fn raise(&self, round: usize) -> u8 {
        self.raises >> (2 * round) & 3
    }

    pub(super) fn set_raise(&mut self, round: usize, to: u8) {
        self.raises = self.raises & !(3 << (2 * round)) | to << (2 * round);
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Attempt {
    pub(super) phase: Phase,
    pub(super) hint: u8,
    /// The reported fence; 0 for none.
    pub(super) fence: u8,
    /// The attempts that were reported held before this one began.
    pub(super) before: u8,
    /// Whether an operator took the lock from it.
    pub(super) forced: bool,
    pub(super) asked_again: bool,
    pub(super) renewing: bool,
    /// Whether the renewal was concluded, and only late answers are missing.
    pub(super) renewed: bool,
    pub(super) mind: Id,
    /// To what it raises, by round.
    pub(super) rounds: [u8; ROUNDS],
    pub(super) wires: [Wire; NODES],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) nodes: [Node; NODES],
    pub(super) attempts: [Attempt; ATTEMPTS],
    pub(super) crashes: u8,
    pub(super) clock: u8,
}

/// The name of a step; each `#` is replaced by a number. In words only when it is printed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Label(pub(super) &'static str, pub(super) [usize; 3]);

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbered = self.1.iter().fold(self.0.to_owned(), |text, number| text.replacen('#', &number.to_string(), 1));
        f.pad(&numbered)
    }
}

/// A step: its name, the state it leads to, and its violation if there is one.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) label: Label,
    pub(super) next: State,
    pub(super) wrong: Option<&'static str>,
}

impl Protocol {
    /// The violation in a state in which attempt `b` was just reported held, if any.
    pub(super) fn violation(&self, state: &State, b: usize) -> Option<String> {
        let new = &state.attempts[b];
        for a in (0..self.attempts).filter(|a| *a != b && state.attempts[*a].fence != 0) {
            let old = &state.attempts[a];
            if old.fence == new.fence {
                return Some(format!("attempts {a} and {b} have the same fence {}", new.fence));
            }
            // Whom an operator took the lock from may overlap with the next, and be heard of after it.
            let forced = old.forced || new.forced;
            let ordered = self.timed && !forced || new.before >> a & 1 == 1;
            if ordered && old.fence > new.fence {
                return Some(format!("attempt {a} had fence {}, attempt {b} after it {}", old.fence, new.fence));
            }
            if self.timed && !forced && old.phase == Phase::Held {
                return Some(format!("attempts {a} and {b} hold at once"));
            }
        }
        None
    }
}
