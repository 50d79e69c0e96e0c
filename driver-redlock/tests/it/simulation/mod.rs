//! Whole clients over stores in memory, under virtual time, on links that delay, drop, repeat and reorder, with nodes
//! that restart empty and clients that fall silent. `TENURE_SCHEDULES` sets how many schedules are played (with ten
//! thousand, add `--release`), and `TENURE_SEED` the first seed (with a number of 1 it repeats one schedule).

#![allow(clippy::print_stdout, reason = "tells how much was looked at")]

mod node;
pub(crate) mod rng;
mod world;

use std::sync::atomic::{AtomicUsize, Ordering};

use world::{Plan, Tally, run};

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().map_or(default, |text| text.parse().expect("a number"))
}

/// Runs schedules on two threads; returns what they come to together, and the violations.
fn run_all(schedules: u64, plan: impl Fn(u64) -> Plan + Sync) -> (Tally, Vec<String>) {
    let first = number("TENURE_SEED", 1);
    let next = AtomicUsize::new(0);
    let worker = || {
        let (mut all, mut violations) = (Tally::default(), Vec::new());
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed) as u64;
            if i >= schedules || violations.len() >= 3 {
                return (all, violations);
            }
            let (tally, wrong) = run(first + i, plan(first + i));
            all.add(&tally);
            violations.extend(wrong.map(|wrong| format!("TENURE_SEED={}: {wrong}", first + i)));
        }
    };
    std::thread::scope(|scope| {
        let threads = [scope.spawn(worker), scope.spawn(worker)];
        let mut total = (Tally::default(), Vec::new());
        for thread in threads {
            let (tally, violations) = thread.join().expect("the schedule does not panic");
            total.0.add(&tally);
            total.1.extend(violations);
        }
        total
    })
}

#[test]
fn no_schedule_breaks_exclusion_or_the_order_of_fences() {
    let (tally, violations) = run_all(number("TENURE_SCHEDULES", 1_000), Plan::of_seed);
    println!("{tally:?}");
    assert!(violations.is_empty(), "{violations:#?}");
    assert!(tally.grants > tally.schedules * 3, "the schedules grant too little to prove anything: {tally:?}");
    assert!(tally.lost > 0 && tally.restarts > 0 && tally.failed > 0, "the faults do not bite: {tally:?}");
}

/// The same worlds with a node that votes again at once after it forgot everything: if this finds nothing, the
/// schedules above prove nothing.
#[test]
fn the_schedules_find_the_double_hold_of_a_node_that_does_not_wait() {
    let impatient = |seed: u64| Plan { restarts: true, wait_after_restart: false, ..Plan::of_seed(seed) };
    let (tally, violations) = run_all(1_000, impatient);
    assert!(!violations.is_empty(), "{tally:?}");
}
