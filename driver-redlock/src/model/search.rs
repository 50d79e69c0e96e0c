//! Breadth-first search through all states, with a trace of the shortest way to the first wrong one.

use std::hash::{BuildHasher, BuildHasherDefault, Hasher};

use super::mind::Minds;
use super::protocol::{ATTEMPTS, NODES, Node, Phase, Protocol, State};
use super::steps::Steps;

pub(super) enum Verdict {
    Holds {
        visited: usize,
    },
    /// No error was found within so many steps, and there are more states.
    Unfinished {
        visited: usize,
        steps: usize,
    },
    Broken {
        why: String,
        trace: Vec<String>,
    },
}

/// Searches from nodes with these counters, through so many states at most; each takes some 200 bytes.
pub(super) fn search(protocol: &Protocol, counters: [u8; NODES], most: usize) -> Verdict {
    let mut minds = Minds::new(protocol.nodes);
    let mut start = State::default();
    for (node, counter) in start.nodes.iter_mut().zip(counters).take(protocol.nodes) {
        *node = Node { counter, ..Node::default() };
    }
    let start = canonical(protocol, &mut minds, &start);
    let mut known = Known::default();
    let mut states = vec![(start, 0_u32)];
    known.insert(&states, &start);
    let (mut at, mut steps, mut next_step) = (0, 0, 1);
    while at < states.len() {
        if at == next_step {
            (steps, next_step) = (steps + 1, states.len());
        }
        let state = states[at].0;
        for step in Steps::all(protocol, &mut minds, &state) {
            let reported = newly_held(&state, &step.next).and_then(|b| protocol.violation(&step.next, b));
            if let Some(why) = step.wrong.map(str::to_owned).or(reported) {
                return Verdict::Broken { why, trace: trace(protocol, &mut minds, &states, at, &step.next) };
            }
            let next = canonical(protocol, &mut minds, &step.next);
            if known.insert(&states, &next) {
                states.push((next, u32::try_from(at).expect("fewer states than 2^32")));
            }
        }
        at += 1;
        if states.len() > most {
            return Verdict::Unfinished { visited: states.len(), steps };
        }
    }
    Verdict::Holds { visited: states.len() }
}

fn newly_held(before: &State, after: &State) -> Option<usize> {
    let held = |state: &State, a: usize| state.attempts[a].phase == Phase::Held;
    (0..ATTEMPTS).find(|a| held(after, *a) && !held(before, *a))
}

/// The same state with its nodes in a canonical order: they are alike, so their order does not matter.
fn canonical(protocol: &Protocol, minds: &mut Minds, state: &State) -> State {
    let column = |i: usize| (state.nodes[i], state.attempts.map(|attempt| attempt.wires[i]));
    let columns: [_; NODES] = std::array::from_fn(column);
    let mut order: [usize; NODES] = std::array::from_fn(|i| i);
    order[..protocol.nodes].sort_unstable_by_key(|i| (&columns[*i], *i));
    let mut sorted = *state;
    let mut names = [0, 1, 2, 3];
    for (i, from) in order.into_iter().enumerate().take(protocol.nodes) {
        names[from] = i as u8;
        sorted.nodes[i] = state.nodes[from];
        for (to, attempt) in sorted.attempts.iter_mut().zip(&state.attempts) {
            to.wires[i] = attempt.wires[from];
        }
    }
    sorted.attempts.iter_mut().for_each(|attempt| attempt.mind = minds.reorder(attempt.mind, names));
    sorted
}

/// The steps that lead to `end`, in words. Nodes are numbered anew in each state.
fn trace(protocol: &Protocol, minds: &mut Minds, states: &[(State, u32)], last: usize, end: &State) -> Vec<String> {
    let mut way = vec![last];
    while let Some(parent) = way.last().filter(|at| **at != 0).map(|at| states[*at].1 as usize) {
        way.push(parent);
    }
    let mut way: Vec<State> = way.into_iter().rev().map(|at| states[at].0).collect();
    way.push(canonical(protocol, minds, end));
    let mut named = |pair: &[State]| {
        let mut steps = Steps::all(protocol, minds, &pair[0]).into_iter();
        let step = steps.find(|step| canonical(protocol, minds, &step.next) == pair[1]).expect("the step exists");
        let nodes: Vec<String> = pair[1].nodes[..protocol.nodes]
            .iter()
            .map(|node| match node.owner {
                0 => format!("-:{}", node.counter),
                owner => format!("{}:{}", owner - 1, node.counter),
            })
            .collect();
        format!("{:<48} [{}]", step.label, nodes.join(" "))
    };
    way.windows(2).map(&mut named).collect()
}

/// Which states are known: their places in the list, in an open table.
#[derive(Default)]
struct Known {
    /// Place + 1, or 0.
    table: Vec<u32>,
    len: usize,
}

impl Known {
    /// Whether the state is new; then its place is the end of the list.
    fn insert(&mut self, states: &[(State, u32)], state: &State) -> bool {
        if self.len * 2 >= self.table.len() {
            self.grow(states);
        }
        let mut at = self.first(state);
        while self.table[at] != 0 {
            if states[self.table[at] as usize - 1].0 == *state {
                return false;
            }
            at = (at + 1) & (self.table.len() - 1);
        }
        self.len += 1;
        self.table[at] = u32::try_from(self.len).expect("fewer states than 2^32");
        true
    }

    fn first(&self, state: &State) -> usize {
        BuildHasherDefault::<Mix>::default().hash_one(state) as usize & (self.table.len() - 1)
    }

    fn grow(&mut self, states: &[(State, u32)]) {
        self.table = vec![0; (self.table.len() * 2).max(1024)];
        for (place, (state, _)) in states.iter().enumerate().take(self.len) {
            let mut at = self.first(state);
            while self.table[at] != 0 {
                at = (at + 1) & (self.table.len() - 1);
            }
            self.table[at] = u32::try_from(place + 1).expect("fewer states than 2^32");
        }
    }
}

/// A fast hash; the states are compared in full.
#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u8(*byte));
    }

    fn write_u8(&mut self, byte: u8) {
        self.write_u64(byte.into());
    }

    fn write_u16(&mut self, number: u16) {
        self.write_u64(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    fn write_isize(&mut self, number: isize) {
        self.write_u64(number as u64);
    }
}
