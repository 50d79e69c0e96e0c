//! Whole clients over a store in memory, under virtual time: on links that delay, lose, repeat and reorder frames, with
//! clients that are paused, killed and closed, with a store that forgets and whose clock runs at another rate, and with
//! futures that are dropped anywhere. An outside observer compares what guards believe with what the store has.
//!
//! `TENURE_SCHEDULES` sets how many schedules are played (with a million, add `--release`), and `TENURE_SEED` the first
//! seed: with a number of 1 it plays one schedule, and tells what happens.

#![allow(clippy::print_stdout, reason = "tells how much was looked at")]

mod end;
mod guard;
mod judge;
mod live;
mod plan;
mod play;
mod rng;
mod store;
mod wire;

use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};

use judge::Tally;
use plan::Plan;
use play::{Mistakes, Played, play};
use store::Flaw;

/// How many schedules are played unless told otherwise.
const SCHEDULES: u64 = 10_000;
/// How many times a shorter schedule is played to see whether it fails as well.
const TRIES: usize = 5;

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().map_or(default, |text| text.parse().expect("a number"))
}

/// Plays schedules on two threads until one fails. Returns what they come to, and the one that failed.
fn play_all(first: u64, schedules: u64, mistakes: Mistakes) -> (Tally, Option<Plan>) {
    let (next, failed) = (AtomicUsize::new(0), std::sync::Mutex::new(None));
    let worker = || {
        let mut all = Tally::default();
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed) as u64;
            if i >= schedules || failed.lock().unwrap().is_some() {
                return all;
            }
            let plan = Plan::of_seed(first + i);
            let Played { tally, wrong, .. } = play(&plan, mistakes, false);
            all.add(&tally);
            if wrong.is_some() {
                failed.lock().unwrap().get_or_insert(plan);
            }
        }
    };
    let mut total = Tally::default();
    std::thread::scope(|scope| {
        let threads = [scope.spawn(worker), scope.spawn(worker)];
        threads.into_iter().for_each(|thread| total.add(&thread.join().expect("the schedule does not panic")));
    });
    (total, failed.into_inner().unwrap())
}

/// The schedule as far as it is needed to fail, and what happens in it.
fn explained(plan: &Plan, mistakes: Mistakes) -> String {
    let fails = |plan: &Plan| (0..TRIES).find_map(|_| play(plan, mistakes, true).wrong.is_some().then_some(()));
    let mut shortest = plan.clone();
    while let Some(shorter) = shortest.shorter().into_iter().find(|plan| fails(plan).is_some()) {
        shortest = shorter;
    }
    let mut text = format!("{shortest}");
    let failing = (0..TRIES * 10).map(|_| play(&shortest, mistakes, true)).find(|played| played.wrong.is_some());
    match failing {
        Some(played) => played.trace.iter().for_each(|line| writeln!(text, "{line}").unwrap()),
        None => text.push_str("it does not fail again\n"),
    }
    text
}

#[test]
fn no_schedule_breaks_a_promise() {
    let (first, schedules) = (number("TENURE_SEED", 1), number("TENURE_SCHEDULES", SCHEDULES));
    if schedules == 1 {
        let Played { wrong, trace, .. } = play(&Plan::of_seed(first), Mistakes::default(), true);
        println!("{}{}", Plan::of_seed(first), trace.join("\n"));
        assert_eq!(wrong, None);
        return;
    }
    let (tally, failed) = play_all(first, schedules, Mistakes::default());
    println!("{tally:?}");
    if let Some(plan) = failed {
        println!("TENURE_SEED={}: {:?}", plan.seed, play(&plan, Mistakes::default(), false).wrong);
        panic!("TENURE_SEED={}\n{}", plan.seed, explained(&plan, Mistakes::default()));
    }
    assert!(tally.grants > schedules * 3, "the schedules grant too little to prove anything");
    assert!(tally.lost * 10 > schedules && tally.dropped * 10 > schedules, "too little goes wrong in them");
}

/// The same worlds with a mistake in them: where they find nothing, the schedules above prove nothing.
#[test]
fn mistakes_are_found() {
    let flaws = Flaw::ALL.map(|flaw| Mistakes { flaw: Some(flaw), ..Mistakes::default() });
    let drift = Mistakes { no_drift: true, ..Mistakes::default() };
    let mut unseen = Vec::new();
    for mistakes in flaws.into_iter().chain([drift]) {
        let (tally, failed) = play_all(1, SCHEDULES, mistakes);
        let Some(plan) = failed else {
            unseen.push(mistakes);
            continue;
        };
        let wrong = play(&plan, mistakes, false).wrong.unwrap_or_else(|| "not again".into());
        println!("{mistakes:?}: after {} schedules: {wrong}", tally.schedules);
    }
    assert!(unseen.is_empty(), "nothing noticed {unseen:?}");
}
