//! Random scripts of up to four clients, of which one does not hear, one is re-entrant and one wants leases of fixed length,
//! against a Redis server and in memory. Every answer, every wake-up and what an operator sees are compared; and after
//! every step the server's own state with that of the store, and with what has to hold whatever happened. Every other client
//! releases by one command what nobody waits for.
//!
//! Both clocks stand still but for the script: a failing seed fails again, and is shown shortened.
//!
//! | variable | meaning |
//! |---|---|
//! | `TENURE_MODEL_STEPS` | how many steps to take, 100,000 unless told |
//! | `TENURE_MODEL_SEED` | the first seed, 0 unless told |

#![allow(clippy::print_stdout, reason = "figures, and the script that fails, are for people")]

mod faults;
mod lab;
mod script;
mod side;
mod state;

use std::time::Instant;

use crate::common::server_with;
use crate::common::wire::{Edit, Fate, fate};
use faults::SEEDED;
use lab::{Bench, Wrong};
use script::{Move, Script};
use tenure_models::{number, shortened};
use tenure_testkit::{RedisOptions, RedisServer};

/// The shortest part of a script that fails, and how.
fn shown(bench: &mut Bench<'_>, script: &Script, wrong: Wrong) -> String {
    let with = |moves: &[Move]| Script { moves: moves.to_vec(), ..script.clone() };
    let moves = shortened(&script.moves[..=wrong.at], |moves| bench.run(&with(moves)).is_err());
    let last = bench.run(&with(&moves)).expect_err("it failed before");
    let mut text = format!("{}\n  {:?}\n", last.what, script.setup);
    for (who, asker) in script.askers.iter().enumerate() {
        text += &format!("  {who} {asker:?}\n");
    }
    for one in moves {
        text += &format!("  {one:?}\n");
    }
    text
}

/// Runs scripts until so many steps were compared; otherwise tells what failed first.
fn search(bench: &mut Bench<'_>, first: u64, steps: u64) -> Result<u64, (u64, Script, Wrong)> {
    let mut done = 0;
    for seed in first.. {
        let script = Script::draw(seed);
        match bench.run(&script) {
            Ok(compared) => done += compared,
            Err(wrong) => return Err((seed, script, wrong)),
        }
        if done >= steps {
            break;
        }
    }
    Ok(done)
}

#[test]
fn the_scripts_do_what_the_store_in_memory_does() {
    let server = server_with(RedisOptions::new().movable_clock());
    let mut bench = Bench::at(&server, None);
    let started = Instant::now();
    match search(&mut bench, number("TENURE_MODEL_SEED", 0), number("TENURE_MODEL_STEPS", 100_000)) {
        Ok(steps) => {
            let (by_value, took) = (bench.by_value(), started.elapsed());
            println!("{steps} steps agree, {by_value} releases by one command, compared in {took:.1?}");
            assert!(by_value > 0);
        }
        Err((seed, script, wrong)) => panic!("seed {seed}: {}", shown(&mut bench, &script, wrong)),
    }
}

/// How many steps a fault has to be noticed in.
const SOON: u64 = 20_000;

/// What notices a fault, and at which step.
fn noticed(server: &RedisServer, edit: &Edit) -> Fate {
    let mut bench = Bench::at(server, Some(edit));
    let found = search(&mut bench, 0, SOON);
    found.map_err(|(seed, script, wrong)| (seed * script.moves.len() as u64 + wrong.at as u64, wrong.what))
}

#[test]
fn faults_that_were_put_into_the_scripts_are_noticed() {
    let server = server_with(RedisOptions::new().movable_clock());
    let mut missed = Vec::new();
    for fault in SEEDED {
        match fate(|| noticed(&server, &fault.edit())) {
            Err((at, what)) => println!("| {} | {at} | {what} |", fault.name),
            Ok(_) => missed.push(fault.name),
        }
    }
    assert!(missed.is_empty(), "not noticed: {missed:#?}");
}
