//! Random schedules of requests for permits by three clients, of which one does not hear, against a Redis server and the
//! rule of core. Every answer, every wake-up and what an operator sees are compared, to the microsecond; and after every step
//! the server's keys have to fit each other.
//!
//! Both clocks stand still but for the schedule: a failing seed fails again, and is shown shortened.
//!
//! | variable | meaning |
//! |---|---|
//! | `TENURE_MODEL_STEPS` | how many steps to take, 40,000 unless set |
//! | `TENURE_MODEL_SEED` | the first seed, 0 unless set |

#![allow(clippy::print_stdout, reason = "figures, and the schedule that fails, are for people")]

mod faults;
mod lab;
mod rule;
mod schedule;
mod server;

use std::time::Instant;

use crate::common::server_with;
use crate::common::wire::{Edit, fate};
use faults::SEEDED;
use lab::{Bench, Wrong};
use schedule::Schedule;
use tenure_models::{number, shortened};
use tenure_testkit::RedisOptions;

/// The shortest part of a schedule that fails, and the difference.
fn shown(bench: &mut Bench<'_>, schedule: &Schedule, wrong: &Wrong) -> String {
    let with = |moves: &[_]| Schedule { moves: moves.to_vec(), ..schedule.clone() };
    let moves = shortened(&schedule.moves[..=wrong.at], |moves| bench.run(&with(moves)).is_err());
    let what = bench.run(&with(&moves)).err().map_or_else(|| wrong.what.clone(), |last| last.what);
    let mut text = format!("{what}\n  {:?} {:?}\n", schedule.kind, schedule.fences);
    for (who, asker) in schedule.askers.iter().enumerate() {
        text += &format!("  {who} {asker:?}\n");
    }
    for one in moves {
        text += &format!("  {one:?}\n");
    }
    text
}

/// Runs schedules until so many steps were compared; otherwise returns the one that failed first.
fn search(bench: &mut Bench<'_>, first: u64, steps: u64) -> Result<u64, (u64, Schedule, Wrong)> {
    let mut done = 0;
    for seed in first.. {
        let schedule = Schedule::draw(seed);
        match bench.run(&schedule) {
            Ok(compared) => done += compared,
            Err(wrong) => return Err((seed, schedule, wrong)),
        }
        if done >= steps {
            break;
        }
    }
    Ok(done)
}

#[test]
fn the_scripts_of_permits_answer_as_the_rule_does() {
    let server = server_with(RedisOptions::new().movable_clock());
    let mut bench = Bench::at(&server, None);
    let started = Instant::now();
    match search(&mut bench, number("TENURE_MODEL_SEED", 0), number("TENURE_MODEL_STEPS", 40_000)) {
        Ok(steps) => println!("{steps} steps agree, {:?}, compared in {:.1?}", bench.totals(), started.elapsed()),
        Err((seed, schedule, wrong)) => panic!("seed {seed}: {}", shown(&mut bench, &schedule, &wrong)),
    }
}

/// In how many steps a fault has to be noticed.
const SOON: u64 = 40_000;

#[test]
fn faults_that_were_put_into_the_scripts_of_permits_are_noticed() {
    let server = server_with(RedisOptions::new().movable_clock());
    let noticed = |edit: &Edit| {
        let mut bench = Bench::at(&server, Some(edit));
        let found = search(&mut bench, 0, SOON);
        found.map_err(|(seed, schedule, wrong)| (seed * schedule.moves.len() as u64 + wrong.at as u64, wrong.what))
    };
    let mut missed = Vec::new();
    for fault in SEEDED {
        match fate(|| noticed(&fault.edit())) {
            Err((at, what)) => println!("| {} | {at} | {what} |", fault.name),
            Ok(_) => missed.push(fault.name),
        }
    }
    assert!(missed.is_empty(), "not noticed: {missed:#?}");
}
