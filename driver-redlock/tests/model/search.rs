//! Breadth-first search through all states; a trace of the shortest way to the first one that is wrong.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::protocol::{NODES, Node, Phase, Protocol, State};

pub(crate) enum Verdict {
    Holds {
        visited: usize,
    },
    /// Nothing wrong was found in all states that so many steps lead to, and there are more.
    Unfinished {
        visited: usize,
        steps: usize,
    },
    Broken {
        why: String,
        trace: Vec<String>,
    },
}

/// Where a search is given up: what memory has room for, at less than 200 bytes a state.
const MOST_STATES: usize = 40_000_000;

/// Searches from nodes with these counters.
pub(crate) fn search(protocol: &Protocol, counters: [u8; NODES]) -> Verdict {
    let mut start = State::default();
    for (node, counter) in start.nodes.iter_mut().zip(counters).take(protocol.nodes) {
        *node = Node { counter, ..Node::default() };
    }
    let start = protocol.canonical(&start);
    let mut known: HashMap<State, (), BuildHasherDefault<Mix>> = HashMap::default();
    let mut states = vec![(start, 0_u32)];
    known.insert(start, ());
    let (mut at, mut steps, mut next_step) = (0, 0, 1);
    while at < states.len() {
        if at == next_step {
            (steps, next_step) = (steps + 1, states.len());
        }
        let state = states[at].0;
        for (_, next) in protocol.steps(&state) {
            if let Some(why) = newly_held(&state, &next).and_then(|b| protocol.violation(&next, b)) {
                return Verdict::Broken { why, trace: trace(protocol, &states, at, &next) };
            }
            let next = protocol.canonical(&next);
            if known.insert(next, ()).is_none() {
                states.push((next, u32::try_from(at).expect("fewer states than 2^32")));
            }
        }
        at += 1;
        if states.len() > MOST_STATES {
            return Verdict::Unfinished { visited: states.len(), steps };
        }
    }
    Verdict::Holds { visited: states.len() }
}

fn newly_held(before: &State, after: &State) -> Option<usize> {
    let held = |state: &State, a: usize| state.attempts[a].phase == Phase::Held;
    (0..after.attempts.len()).find(|a| held(after, *a) && !held(before, *a))
}

/// The steps that lead to `end`, in words. Nodes are numbered anew in each state.
fn trace(protocol: &Protocol, states: &[(State, u32)], last: usize, end: &State) -> Vec<String> {
    let mut way = vec![last];
    while let Some(parent) = way.last().filter(|at| **at != 0).map(|at| states[*at].1 as usize) {
        way.push(parent);
    }
    let mut way: Vec<State> = way.into_iter().rev().map(|at| states[at].0).collect();
    way.push(protocol.canonical(end));
    let named = |pair: &[State]| {
        let mut steps = protocol.steps(&pair[0]).into_iter();
        let (name, _) = steps.find(|(_, next)| protocol.canonical(next) == pair[1]).expect("the step exists");
        let nodes: Vec<String> = pair[1].nodes[..protocol.nodes]
            .iter()
            .map(|node| match node.owner {
                0 => format!("-:{}", node.counter),
                owner => format!("{}:{}", owner - 1, node.counter),
            })
            .collect();
        format!("{name:<48} [{}]", nodes.join(" "))
    };
    way.windows(2).map(named).collect()
}

/// A fast hash; the states are compared in full.
#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let word = chunk.iter().fold(0_u64, |word, byte| word << 8 | u64::from(*byte));
            self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
        }
    }

    fn write_u8(&mut self, byte: u8) {
        self.0 = (self.0.rotate_left(5) ^ u64::from(byte)).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    fn write_isize(&mut self, number: isize) {
        self.write_u8(number as u8);
    }
}
