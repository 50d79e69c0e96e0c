//! Random operations on a delay queue, in Redis and in memory: every answer is compared, every fourth time the figures of the
//! queue as well, and after every step the server's own state with what has to hold of it whatever happened.
//!
//! Both clocks stand still but for the script: a failing seed fails again, and is shown shortened.
//!
//! | variable | meaning |
//! |---|---|
//! | `TENURE_MODEL_STEPS` | how many steps to take, 100,000 unless told |
//! | `TENURE_MODEL_SEED` | the first seed, 0 unless told |

#![allow(clippy::print_stdout, reason = "figures, and the operations that fail, are for people")]

mod faults;
mod lab;
mod state;

use std::time::{Duration, Instant};

use crate::common::server_with;
use crate::common::wire::{Edit, Fate, fate};
use faults::SEEDED;
use lab::Bench;
use tenure_core::driver::Settlement;
use tenure_models::queue::{self, Move, Op, Wrong};
use tenure_models::{number, shortened};
use tenure_testkit::{RedisOptions, RedisServer};

/// How many steps a fault has to be noticed in.
const SOON: u64 = 12_000;

/// Runs scripts until so many steps were compared; otherwise tells which seed failed first.
fn search(bench: &mut Bench<'_>, first: u64, steps: u64) -> Result<u64, (u64, Wrong)> {
    let mut done = 0;
    for seed in first.. {
        done += bench.draw(seed).map_err(|wrong| (done + wrong.moves.len() as u64, wrong))? as u64;
        if done >= steps {
            break;
        }
    }
    Ok(done)
}

#[test]
fn random_operations_answer_as_in_memory() {
    let server = server_with(RedisOptions::new().movable_clock());
    let mut bench = Bench::at(&server, None);
    let (first, started) = (number("TENURE_MODEL_SEED", 0), Instant::now());
    match search(&mut bench, first, number("TENURE_MODEL_STEPS", 100_000)) {
        Ok(steps) => println!("{steps} steps agree, compared in {:.1?}", started.elapsed()),
        Err((at, wrong)) => {
            let moves = shortened(&wrong.moves, |moves| bench.repeat(moves).is_err());
            let last = bench.repeat(&moves).expect_err("it failed before");
            let shown: Vec<String> = moves.iter().map(|one| format!("  {one:?}\n")).collect();
            panic!("from seed {first} on, at step {at}: {}\n{}", last.what, shown.concat());
        }
    }
}

/// Seeds that once found a difference.
const ONCE_DIFFERENT: &[u64] = &[1_000_812, 11_160];

#[test]
fn seeds_that_once_differed_agree() {
    let server = server_with(RedisOptions::new().movable_clock());
    let mut bench = Bench::at(&server, None);
    for &seed in ONCE_DIFFERENT {
        bench.draw(seed).unwrap_or_else(|wrong| panic!("seed {seed}, at step {}: {}", wrong.moves.len(), wrong.what));
    }
}

/// It let the next one of its key go when it died. Otherwise two of a key wait side by side, and the second one may die
/// while the first one is in flight.
#[test]
fn a_dead_letter_that_is_removed_or_comes_back_lets_no_other_go() {
    let server = server_with(RedisOptions::new().movable_clock());
    let mut bench = Bench::at(&server, None);
    let (long, short) = (queue::lease(3), queue::lease(1));
    let dead = Settlement::Dead { reason: None };
    for gone in [Op::DeadPurge(1), Op::RedriveOldest(1, queue::delay(5))] {
        let ops = [
            Op::Push(vec![queue::keyed(None)]),
            Op::Receive(vec![], 1, long),
            Op::Settle(vec![(0, dead.clone())]),
            Op::Push(vec![queue::keyed(None), queue::keyed(None), queue::keyed(Some(queue::delay(1)))]),
            Op::Receive(vec![], 3, short),
            Op::Settle(vec![(1, Settlement::Ack)]),
            gone,
            Op::Receive(vec![], 1, long),
            Op::Pass(queue::UNIT * 2),
            Op::Receive(vec![], 1, long),
        ];
        let moves = ops.map(|op| Move { after: Duration::from_millis(1), op });
        bench.repeat(&moves).unwrap_or_else(|wrong| panic!("{}", wrong.what));
    }
}

/// What notices a fault, and at which step.
fn noticed(server: &RedisServer, edit: &Edit) -> Fate {
    let mut bench = Bench::at(server, Some(edit));
    search(&mut bench, 0, SOON).map_err(|(at, wrong)| (at, wrong.what))
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
