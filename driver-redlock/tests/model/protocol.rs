//! The protocol as a transition system. One name; every attempt has tokens of its own, so an attempt is an owner.
//!
//! A message that was sent may be delivered at any later time, also after the client gave up, or never. A refusal
//! changes nothing and is not counted, so it is a message that is not delivered. A release is an expiry of an attempt
//! that is done.

use std::fmt;

pub(crate) const NODES: usize = 4;
pub(crate) const ATTEMPTS: usize = 3;

/// What is written back to the nodes before a grant is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteBack {
    /// Nothing: the fence is the greatest that the votes carried.
    None,
    /// The counter becomes the greater of the two, whoever owns the node.
    Unconditional,
    /// The same, if the token owns the node.
    OwnerOnly,
    /// If the token owns the node and the counter is not ahead: the conditional raise.
    Conditional,
}

/// What clients propose as fences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hints {
    None,
    /// Later attempts propose more, and more than any counter.
    Growing,
    /// Anything, in any order.
    Wild,
}

/// What a crash does to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    Kept,
    /// It forgets lease and counter, and is back at once.
    Lost,
    /// It forgets, and votes again when no lease is believed in any more because of what it forgot.
    LostWithWait,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Protocol {
    pub(crate) nodes: usize,
    pub(crate) attempts: usize,
    pub(crate) write_back: WriteBack,
    pub(crate) hints: Hints,
    /// Whether a lease lasts at the node until its client has given it up; else it may end at any time.
    pub(crate) timed: bool,
    /// Whether a vote may be delivered twice.
    pub(crate) repeats: bool,
    /// Whether holders renew, and ask nodes that lost the lock to grant it again.
    pub(crate) heals: bool,
    pub(crate) memory: Memory,
    pub(crate) crashes: u8,
    /// Whether a renewal needs a majority of all nodes; else whatever nodes are left.
    pub(crate) renewal_needs_majority: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Node {
    /// Attempt + 1, or 0.
    pub(crate) owner: u8,
    pub(crate) counter: u8,
    /// The attempts whose leases it may have forgotten; votes for nobody while there are any.
    pub(crate) forgot: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Phase {
    #[default]
    Idle,
    Asking,
    Raising,
    Held,
    Done,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Attempt {
    pub(crate) phase: Phase,
    pub(crate) hint: u8,
    pub(crate) fence: u8,
    /// Whether the fence is one that a raise found, which votes alone do not vouch for.
    pub(crate) again: bool,
    /// The attempts that were reported held before this one began.
    pub(crate) before: u8,
    pub(crate) reported: bool,
    /// The fence in each node's vote; 0 for none.
    pub(crate) votes: [u8; NODES],
    /// Nodes that acknowledged the write-back.
    pub(crate) raised: u8,
    pub(crate) repeated: u8,
    pub(crate) healed: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) nodes: [Node; NODES],
    pub(crate) attempts: [Attempt; ATTEMPTS],
    pub(crate) crashes: u8,
    pub(crate) clock: u8,
}

/// What a step is called; each `#` stands for a number. In words only when it is printed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Label(&'static str, [usize; 3]);

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbered = self.1.iter().fold(self.0.to_owned(), |text, number| text.replacen('#', &number.to_string(), 1));
        f.pad(&numbered)
    }
}

/// A step: what it is called, and where it leads.
pub(crate) type Step = (Label, State);

impl Protocol {
    fn majority(&self) -> usize {
        self.nodes / 2 + 1
    }

    /// All that can happen next.
    pub(crate) fn steps(&self, state: &State) -> Vec<Step> {
        let mut steps = Vec::with_capacity(32);
        for attempt in 0..self.attempts {
            self.client_steps(state, attempt, &mut steps);
            for node in 0..self.nodes {
                self.delivery_steps(state, attempt, node, &mut steps);
            }
        }
        for node in 0..self.nodes {
            self.node_steps(state, node, &mut steps);
        }
        steps
    }

    fn client_steps(&self, state: &State, a: usize, steps: &mut Vec<Step>) {
        let attempt = &state.attempts[a];
        match attempt.phase {
            // Attempts are alike, so they begin in order.
            Phase::Idle if a == 0 || state.attempts[a - 1].phase != Phase::Idle => self.begin(state, a, steps),
            Phase::Asking => self.settle_on_fence(state, a, steps),
            Phase::Raising if self.is_agreed(attempt) => {
                let mut next = *state;
                next.attempts[a].phase = Phase::Held;
                next.attempts[a].reported = true;
                steps.push((Label("attempt # is granted #", [a, usize::from(attempt.fence), 0]), next));
            }
            Phase::Held if self.heals => self.renew(state, a, steps),
            _ => {}
        }
        if !matches!(attempt.phase, Phase::Idle | Phase::Done) {
            let mut next = *state;
            next.attempts[a].phase = Phase::Done;
            steps.push((Label("attempt # ends", [a, 0, 0]), next));
        }
    }

    fn begin(&self, state: &State, a: usize, steps: &mut Vec<Step>) {
        let hints: &[u8] = match self.hints {
            Hints::None => &[0],
            Hints::Growing => &[20],
            Hints::Wild => &[0, 3, 5],
        };
        for hint in hints {
            let mut next = *state;
            let reported = (0..self.attempts).filter(|b| state.attempts[*b].reported);
            next.attempts[a].before = reported.fold(0, |all, b| all | 1 << b);
            next.attempts[a].phase = Phase::Asking;
            next.attempts[a].hint = *hint;
            if self.hints == Hints::Growing {
                next.clock += 4;
                next.attempts[a].hint += next.clock;
            }
            steps.push((Label("attempt # begins, proposing #", [a, usize::from(next.attempts[a].hint), 0]), next));
        }
    }

    /// The client may have read any majority of the votes when it settles on the greatest fence among them.
    fn settle_on_fence(&self, state: &State, a: usize, steps: &mut Vec<Step>) {
        let votes = state.attempts[a].votes;
        for read in 1_u8..1 << self.nodes {
            let nodes = || (0..self.nodes).filter(|node| read >> node & 1 == 1);
            if read.count_ones() as usize >= self.majority() && nodes().all(|node| votes[node] != 0) {
                let mut next = *state;
                next.attempts[a].fence = nodes().map(|node| votes[node]).max().unwrap_or(0);
                next.attempts[a].phase = Phase::Raising;
                steps.push((Label("attempt # settles on #", [a, usize::from(next.attempts[a].fence), 0]), next));
            }
        }
    }

    fn is_agreed(&self, attempt: &Attempt) -> bool {
        let vouches = |node: &usize| !attempt.again && attempt.votes[*node] == attempt.fence;
        let agreed = |node: &usize| attempt.raised >> node & 1 == 1 || vouches(node);
        self.write_back == WriteBack::None || (0..self.nodes).filter(agreed).count() >= self.majority()
    }

    /// A renewal that a majority confirms does not rest on what other nodes have forgotten.
    fn renew(&self, state: &State, a: usize, steps: &mut Vec<Step>) {
        let mine = (0..self.nodes).filter(|node| usize::from(state.nodes[*node].owner) == a + 1).count();
        let needed = if self.renewal_needs_majority { self.majority() } else { 1 };
        let mut next = *state;
        next.nodes.iter_mut().for_each(|node| node.forgot &= !(1 << a));
        if mine >= needed && next != *state {
            steps.push((Label("attempt # renews at # nodes", [a, mine, 0]), next));
        }
    }

    fn delivery_steps(&self, state: &State, a: usize, i: usize, steps: &mut Vec<Step>) {
        let (attempt, node) = (&state.attempts[a], &state.nodes[i]);
        if attempt.phase == Phase::Idle {
            return;
        }
        let grant = |proposal: u8| {
            let mut next = *state;
            next.nodes[i].counter = (node.counter + 1).max(proposal);
            next.nodes[i].owner = a as u8 + 1;
            next
        };
        let free = node.owner == 0;
        if free && node.forgot == 0 && attempt.votes[i] == 0 {
            let mut next = grant(attempt.hint);
            next.attempts[a].votes[i] = next.nodes[i].counter;
            steps.push((Label("node # votes for attempt # with #", [i, a, usize::from(next.nodes[i].counter)]), next));
        }
        if self.repeats && free && node.forgot == 0 && attempt.votes[i] != 0 && attempt.repeated >> i & 1 == 0 {
            let mut next = grant(attempt.hint);
            next.attempts[a].repeated |= 1 << i;
            steps.push((Label("node # votes again for attempt #, unheard", [i, a, 0]), next));
        }
        if self.heals && free && attempt.phase == Phase::Held && attempt.healed >> i & 1 == 0 {
            let mut next = grant(attempt.fence);
            next.attempts[a].healed |= 1 << i;
            steps.push((Label("node # is healed by attempt #", [i, a, 0]), next));
        }
        if attempt.fence != 0 {
            self.write_back_steps(state, a, i, steps);
        }
    }

    fn write_back_steps(&self, state: &State, a: usize, i: usize, steps: &mut Vec<Step>) {
        let (attempt, node) = (&state.attempts[a], &state.nodes[i]);
        let mine = usize::from(node.owner) == a + 1;
        let acknowledged = match self.write_back {
            WriteBack::None => false,
            WriteBack::Unconditional => attempt.votes[i] != 0 || attempt.fence != 0,
            WriteBack::OwnerOnly => mine,
            WriteBack::Conditional => mine && node.counter <= attempt.fence,
        };
        if acknowledged && attempt.raised >> i & 1 == 0 {
            let mut next = *state;
            next.nodes[i].counter = node.counter.max(attempt.fence);
            next.attempts[a].raised |= 1 << i;
            steps.push((Label("node # is raised to # by attempt #", [i, usize::from(attempt.fence), a]), next));
        }
        let ahead = self.write_back == WriteBack::Conditional && mine && node.counter > attempt.fence;
        if ahead && attempt.phase == Phase::Raising && !attempt.again {
            let mut next = *state;
            next.attempts[a].fence = node.counter;
            next.attempts[a].raised = 0;
            next.attempts[a].again = true;
            steps
                .push((Label("attempt # finds # at node # and raises to it", [a, usize::from(node.counter), i]), next));
        }
    }

    fn node_steps(&self, state: &State, i: usize, steps: &mut Vec<Step>) {
        let node = &state.nodes[i];
        if node.owner != 0 {
            let owner = usize::from(node.owner) - 1;
            if !self.timed || state.attempts[owner].phase == Phase::Done {
                let mut next = *state;
                next.nodes[i].owner = 0;
                steps.push((Label("node # frees itself of attempt #", [i, owner, 0]), next));
            }
        }
        if self.memory != Memory::Kept && state.crashes < self.crashes {
            let mut next = *state;
            next.crashes += 1;
            next.nodes[i] = Node::default();
            if self.memory == Memory::LostWithWait {
                let live = |b: &usize| !matches!(state.attempts[*b].phase, Phase::Idle | Phase::Done);
                next.nodes[i].forgot = (0..self.attempts).filter(live).fold(0, |all, b| all | 1 << b);
            }
            steps.push((Label("node # restarts empty", [i, 0, 0]), next));
        }
        let over = |b: usize| state.attempts[b].phase == Phase::Done;
        let still = (0..self.attempts).filter(|b| node.forgot >> b & 1 == 1 && !over(*b));
        let still = still.fold(0, |all, b| all | 1 << b);
        if still != node.forgot {
            let mut next = *state;
            next.nodes[i].forgot = still;
            steps.push((Label("node # has waited", [i, 0, 0]), next));
        }
    }

    /// What is wrong with a state in which attempt `b` was just reported held.
    pub(crate) fn violation(&self, state: &State, b: usize) -> Option<String> {
        let new = &state.attempts[b];
        for a in (0..self.attempts).filter(|a| *a != b && state.attempts[*a].reported) {
            let old = &state.attempts[a];
            if old.fence == new.fence {
                return Some(format!("attempts {a} and {b} have the same fence {}", new.fence));
            }
            let ordered = self.timed || new.before >> a & 1 == 1;
            if ordered && old.fence > new.fence {
                return Some(format!("attempt {a} had fence {}, attempt {b} after it {}", old.fence, new.fence));
            }
            if self.timed && old.phase == Phase::Held {
                return Some(format!("attempts {a} and {b} hold at once"));
            }
        }
        None
    }

    /// The same state with its nodes in a canonical order: they are alike, so their order does not matter.
    pub(crate) fn canonical(&self, state: &State) -> State {
        let column = |i: usize| {
            let of = |attempt: &Attempt| {
                (attempt.votes[i], attempt.raised >> i & 1, attempt.repeated >> i & 1, attempt.healed >> i & 1)
            };
            (state.nodes[i], state.attempts.map(|attempt| of(&attempt)))
        };
        let mut columns: Vec<_> = (0..self.nodes).map(column).collect();
        columns.sort_unstable();
        let mut sorted = *state;
        sorted.attempts.iter_mut().for_each(|attempt| (attempt.raised, attempt.repeated, attempt.healed) = (0, 0, 0));
        for (i, (node, bits)) in columns.into_iter().enumerate() {
            sorted.nodes[i] = node;
            for (attempt, (vote, raised, repeated, healed)) in sorted.attempts.iter_mut().zip(bits) {
                attempt.votes[i] = vote;
                attempt.raised |= raised << i;
                attempt.repeated |= repeated << i;
                attempt.healed |= healed << i;
            }
        }
        sorted
    }
}
