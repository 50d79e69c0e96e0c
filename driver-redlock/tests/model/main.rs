//! An exhaustive search through the protocol of fenced elections, in small configurations.
//!
//! The protocol as it is built must hold in every interleaving; every tempting simplification of it must be found
//! broken, which also shows that the search can find something. `cargo test -p tenure-redlock --test model --
//! --nocapture` prints how many states were visited. With `TENURE_MODEL_FULL` set, configurations of millions of states
//! are searched, too, one of them only as far as 8 GB of memory go; then add `--release`.

#![allow(clippy::print_stdout, reason = "tells how much was looked at")]

mod protocol;
mod search;

use protocol::{Hints, Memory, Protocol, WriteBack};
use search::{Verdict, search};

/// The protocol as it is built, with two attempts on three nodes, any message late, any lease gone at any time.
const BUILT: Protocol = Protocol {
    nodes: 3,
    attempts: 2,
    write_back: WriteBack::Conditional,
    hints: Hints::None,
    timed: false,
    repeats: false,
    heals: false,
    memory: Memory::Kept,
    crashes: 0,
    renewal_needs_majority: true,
};

/// Counters from which the nodes start: alike, one ahead, one behind.
const STARTS: [[u8; 4]; 3] = [[0, 0, 0, 0], [0, 0, 1, 1], [0, 1, 1, 1]];

fn holds(what: &str, protocol: Protocol, starts: &[[u8; 4]]) {
    let mut states = 0;
    for start in starts {
        match search(&protocol, *start) {
            Verdict::Holds { visited } => states += visited,
            Verdict::Unfinished { .. } => panic!("{what}: the search has outgrown its bound"),
            Verdict::Broken { why, trace } => panic!("{what}: {why}\n{}", trace.join("\n")),
        }
    }
    println!("{what}: holds in {states} states");
}

fn is_broken(what: &str, protocol: Protocol, starts: &[[u8; 4]]) -> Vec<String> {
    let broken = starts.iter().find_map(|start| match search(&protocol, *start) {
        Verdict::Broken { why, trace } => Some((why, trace)),
        Verdict::Holds { .. } | Verdict::Unfinished { .. } => None,
    });
    let Some((why, trace)) = broken else { panic!("{what}: expected to be broken, and no trace was found") };
    println!("{what}: {why}\n  {}", trace.join("\n  "));
    trace
}

#[test]
fn the_protocol_holds_without_any_assumption_on_time() {
    holds("conditional raise", BUILT, &STARTS);
    holds("two nodes", Protocol { nodes: 2, attempts: 3, ..BUILT }, &STARTS[..1]);
    holds("one node", Protocol { nodes: 1, attempts: 3, ..BUILT }, &STARTS[..1]);
}

#[test]
fn the_protocol_holds_with_leases_that_last_as_long_as_promised() {
    let timed = Protocol { timed: true, ..BUILT };
    holds("timed", timed, &STARTS);
    holds("timed, four nodes", Protocol { nodes: 4, ..timed }, &STARTS[..1]);
    holds("timed, renewal heals", Protocol { heals: true, ..timed }, &STARTS);
}

#[test]
fn proposals_of_any_kind_do_no_harm() {
    holds("proposals from clocks that disagree", Protocol { hints: Hints::Wild, timed: true, ..BUILT }, &STARTS[..2]);
}

#[test]
fn frames_that_a_client_library_repeats_do_no_harm() {
    let repeated = Protocol { repeats: true, ..BUILT };
    holds("frames repeated, two nodes", Protocol { nodes: 2, ..repeated }, &STARTS[..2]);
    if std::env::var_os("TENURE_MODEL_FULL").is_some() {
        holds("frames repeated, timed", Protocol { timed: true, ..repeated }, &STARTS[..1]);
        // More states than memory has room for: searched as far as it goes.
        match search(&repeated, STARTS[0]) {
            Verdict::Broken { why, trace } => panic!("frames repeated: {why}\n{}", trace.join("\n")),
            Verdict::Holds { visited } => println!("frames repeated: holds in {visited} states"),
            Verdict::Unfinished { visited, steps } => {
                println!("frames repeated: nothing wrong within {steps} steps, {visited} states and no end");
            }
        }
    }
}

#[test]
fn a_node_that_restarts_empty_does_no_harm_when_it_waits_and_proposals_grow() {
    let crashing = Protocol { timed: true, hints: Hints::Growing, memory: Memory::LostWithWait, crashes: 1, ..BUILT };
    holds("restart with wait", crashing, &STARTS[..2]);
    holds("restart with wait, healed by renewal", Protocol { heals: true, ..crashing }, &STARTS[..1]);
}

#[test]
fn without_write_back_fences_repeat() {
    is_broken("no write-back", Protocol { write_back: WriteBack::None, ..BUILT }, &STARTS);
    is_broken("no write-back, timed", Protocol { write_back: WriteBack::None, timed: true, ..BUILT }, &STARTS);
}

#[test]
fn an_unconditional_write_back_is_broken_even_with_perfect_clocks() {
    let tempting = Protocol { write_back: WriteBack::Unconditional, timed: true, ..BUILT };
    is_broken("unconditional write-back", tempting, &STARTS);
}

#[test]
fn a_write_back_that_checks_only_the_owner_is_broken() {
    is_broken("owner-only write-back", Protocol { write_back: WriteBack::OwnerOnly, ..BUILT }, &STARTS);
}

#[test]
fn an_instant_restart_is_broken_whatever_is_proposed() {
    let instant = Protocol { timed: true, memory: Memory::Lost, crashes: 1, ..BUILT };
    is_broken("instant restart", instant, &STARTS);
    is_broken("instant restart, growing proposals", Protocol { hints: Hints::Growing, ..instant }, &STARTS);
}

#[test]
fn a_wait_without_growing_proposals_saves_exclusion_but_not_fences() {
    let forgetful = Protocol { timed: true, memory: Memory::LostWithWait, crashes: 1, ..BUILT };
    is_broken("restart with wait, no proposals", forgetful, &STARTS);
}

#[test]
fn a_renewal_by_a_minority_is_broken() {
    let minority = Protocol {
        timed: true,
        hints: Hints::Growing,
        memory: Memory::LostWithWait,
        crashes: 2,
        heals: true,
        renewal_needs_majority: false,
        ..BUILT
    };
    is_broken("renewal by whatever nodes are left", minority, &STARTS[..1]);
}
