//! An exhaustive search through the protocol of fenced elections, in small configurations.
//!
//! The client's decisions are the driver's own code: the search steps [`quorum`](crate::quorum) and
//! [`attempt_state`](crate::attempt_state) as the driver steps them, so a bug in them appears as a trace of the search. The real
//! protocol must hold in every interleaving. The search must find every tempting simplification broken, which also
//! shows that it can find errors. `cargo test -p tenure-redlock --lib model -- --nocapture` prints how many states were
//! visited. With `TENURE_MODEL_FULL` set, it also searches configurations of many millions of states, some of them only
//! as far as 8 GB of memory allow; then add `--release`.

#![allow(clippy::print_stdout, reason = "tells how much was looked at")]

mod mind;
mod protocol;
mod search;
mod steps;

use protocol::{Hints, Memory, Protocol, WriteBack};
use search::{Verdict, search};

/// The protocol as it is built, with two attempts on three nodes, any message late, any lease gone at any time.
const BUILT: Protocol = Protocol {
    nodes: 3,
    attempts: 2,
    write_back: WriteBack::Conditional,
    hints: Hints::None,
    timed: false,
    late: true,
    faults: false,
    repeats: false,
    again: false,
    heals: false,
    undoes: false,
    forces: false,
    memory: Memory::Kept,
    crashes: 0,
    renewal_needs_majority: true,
};

/// Counters from which the nodes start: alike, one ahead, one behind.
const STARTS: [[u8; 4]; 3] = [[0, 0, 0, 0], [0, 0, 1, 1], [0, 1, 1, 1]];

/// Where a search is given up: what memory has room for.
const MOST_STATES: usize = 40_000_000;

fn holds(what: &str, protocol: Protocol, starts: &[[u8; 4]]) {
    let (mut states, since) = (0, std::time::Instant::now());
    for start in starts {
        match search(&protocol, *start, MOST_STATES) {
            Verdict::Holds { visited } => states += visited,
            Verdict::Unfinished { .. } => panic!("{what}: the search has outgrown its bound"),
            Verdict::Broken { why, trace } => panic!("{what}: {why}\n{}", trace.join("\n")),
        }
    }
    println!("{what}: holds in {states} states, {:.1} s", since.elapsed().as_secs_f64());
}

/// Searches as far as memory has room.
fn holds_so_far(what: &str, protocol: Protocol, start: [u8; 4]) {
    match search(&protocol, start, MOST_STATES) {
        Verdict::Broken { why, trace } => panic!("{what}: {why}\n{}", trace.join("\n")),
        Verdict::Holds { visited } => println!("{what}: holds in {visited} states"),
        Verdict::Unfinished { visited, steps } => {
            println!("{what}: nothing wrong within {steps} steps, {visited} states and no end");
        }
    }
}

fn is_broken(what: &str, protocol: Protocol, starts: &[[u8; 4]]) {
    let broken = starts.iter().find_map(|start| match search(&protocol, *start, MOST_STATES) {
        Verdict::Broken { why, trace } => Some((why, trace)),
        Verdict::Holds { .. } | Verdict::Unfinished { .. } => None,
    });
    let Some((why, trace)) = broken else { panic!("{what}: expected to be broken, and no trace was found") };
    println!("{what}: {why}\n  {}", trace.join("\n  "));
}

fn is_full() -> bool {
    std::env::var_os("TENURE_MODEL_FULL").is_some()
}

const TIMED: Protocol = Protocol { timed: true, ..BUILT };
/// Three attempts: answers that report a change are received at once.
const THREE: Protocol = Protocol { attempts: 3, late: false, ..TIMED };
/// Restarts that forget, with all that makes them harmless.
const CRASHING: Protocol = Protocol { hints: Hints::Growing, memory: Memory::LostWithWait, crashes: 1, ..TIMED };

#[test]
fn the_protocol_holds_without_any_assumption_on_time() {
    holds("conditional raise", BUILT, &STARTS);
    holds("two nodes", Protocol { nodes: 2, attempts: 3, ..BUILT }, &STARTS[..1]);
    holds("one node", Protocol { nodes: 1, attempts: 3, ..BUILT }, &STARTS[..1]);
}

#[test]
fn the_protocol_holds_with_leases_that_last_as_long_as_promised() {
    holds("timed", TIMED, &STARTS);
    holds("timed, four nodes", Protocol { nodes: 4, late: false, ..TIMED }, &STARTS[..1]);
    holds("timed, three attempts", THREE, &STARTS[..1]);
}

#[test]
fn renewals_that_take_nodes_back_early_or_late_do_no_harm() {
    holds("renewal heals", Protocol { heals: true, late: false, ..TIMED }, &STARTS[..1]);
}

#[test]
fn proposals_of_any_kind_do_no_harm() {
    holds("proposals from clocks that disagree", Protocol { hints: Hints::Wild, late: false, ..TIMED }, &STARTS[..2]);
}

#[test]
fn requests_that_go_unanswered_do_no_harm() {
    holds("faults", Protocol { faults: true, late: false, ..TIMED }, &STARTS);
    holds("asked again", Protocol { again: true, late: false, ..TIMED }, &STARTS[..2]);
}

#[test]
fn a_node_that_undid_a_token_never_serves_it_again() {
    let undone = Protocol { attempts: 1, undoes: true, faults: true, heals: true, timed: false, ..BUILT };
    holds("undone", undone, &STARTS[..1]);
    holds("undone, two attempts", Protocol { attempts: 2, undoes: true, nodes: 2, ..BUILT }, &STARTS[..2]);
}

#[test]
fn an_operator_who_forces_a_release_breaks_no_order_of_fences() {
    holds("forced release", Protocol { forces: true, late: false, ..TIMED }, &STARTS);
}

#[test]
fn frames_that_a_client_library_repeats_do_no_harm() {
    let repeated = Protocol { repeats: true, ..BUILT };
    holds("frames repeated, two nodes", Protocol { nodes: 2, ..repeated }, &STARTS[..2]);
    if is_full() {
        holds_so_far("frames repeated, timed", Protocol { timed: true, ..repeated }, STARTS[0]);
        holds_so_far("frames repeated", repeated, STARTS[0]);
    }
}

#[test]
fn a_node_that_restarts_empty_does_no_harm_when_it_waits_and_proposals_grow() {
    let crashing = Protocol { late: false, ..CRASHING };
    holds("restart with wait", crashing, &STARTS[..2]);
    if is_full() {
        holds_so_far("restart with wait, healed by renewal", Protocol { heals: true, ..crashing }, STARTS[0]);
    }
}

#[test]
fn without_write_back_fences_repeat() {
    is_broken("no write-back", Protocol { write_back: WriteBack::None, ..BUILT }, &STARTS);
    is_broken("no write-back, timed", Protocol { write_back: WriteBack::None, ..TIMED }, &STARTS);
}

#[test]
fn an_unconditional_write_back_is_broken_even_with_perfect_clocks() {
    is_broken("unconditional write-back", Protocol { write_back: WriteBack::Unconditional, ..TIMED }, &STARTS);
}

#[test]
fn a_write_back_that_checks_only_the_owner_is_broken() {
    is_broken("owner-only write-back", Protocol { write_back: WriteBack::OwnerOnly, repeats: true, ..BUILT }, &STARTS);
}

#[test]
fn an_instant_restart_is_broken_whatever_is_proposed() {
    let instant = Protocol { memory: Memory::Lost, crashes: 1, ..TIMED };
    is_broken("instant restart", instant, &STARTS);
    is_broken("instant restart, growing proposals", Protocol { hints: Hints::Growing, ..instant }, &STARTS);
}

#[test]
fn a_wait_without_growing_proposals_saves_exclusion_but_not_fences() {
    is_broken("restart with wait, no proposals", Protocol { hints: Hints::None, ..CRASHING }, &STARTS);
}

#[test]
fn a_renewal_by_a_minority_is_broken() {
    let minority = Protocol { crashes: 2, heals: true, late: false, renewal_needs_majority: false, ..CRASHING };
    is_broken("renewal by whatever nodes are left", minority, &STARTS[..1]);
}
