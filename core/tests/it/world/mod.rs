//! Whole clients over a store in memory, under virtual time: on links that delay, lose, repeat and reorder frames, with
//! clients that are paused, killed and closed, with a store that forgets and whose clock runs at another rate, and with
//! futures that are dropped anywhere. An outside observer compares what guards and deliveries believe with what the store has.
//!
//! `TENURE_SCHEDULES` sets how many schedules are played (with a million, add `--release`), and `TENURE_SEED` the first
//! seed: with a number of 1 it plays one schedule, and tells what happens.

#![allow(clippy::print_stdout, reason = "tells how much was looked at")]

mod end;
mod guard;
mod judge;
mod link;
mod live;
mod plan;
mod play;
mod queues;
mod rng;
mod runtimes;
mod store;
mod wire;

use std::fmt::{Debug, Display, Write as _};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use judge::Tally;
use plan::Plan;
use play::{Mistakes, Played};
use queues::plan::QueuePlan;
use queues::play::QueueMistakes;

/// How many schedules of each kind are played unless told otherwise.
const SCHEDULES: u64 = 50_000;
/// Within how many a mistake is found.
const FOUND_WITHIN: u64 = 1_000;
/// How many times a shorter schedule is played to see whether it fails as well.
const TRIES: usize = 5;

/// A kind of schedules.
trait Schedule: Clone + Display + Send {
    type Mistakes: Copy + Debug + Default + Sync;

    fn of_seed(seed: u64) -> Self;
    fn seed(&self) -> u64;
    fn shorter(&self) -> Vec<Self>;
    fn play(&self, mistakes: Self::Mistakes, traces: bool) -> Played;
}

impl Schedule for Plan {
    type Mistakes = Mistakes;

    fn of_seed(seed: u64) -> Self {
        Self::of_seed(seed)
    }

    fn seed(&self) -> u64 {
        self.seed
    }

    fn shorter(&self) -> Vec<Self> {
        self.shorter()
    }

    fn play(&self, mistakes: Mistakes, traces: bool) -> Played {
        play::play(self, mistakes, traces)
    }
}

impl Schedule for QueuePlan {
    type Mistakes = QueueMistakes;

    fn of_seed(seed: u64) -> Self {
        Self::of_seed(seed)
    }

    fn seed(&self) -> u64 {
        self.seed
    }

    fn shorter(&self) -> Vec<Self> {
        self.shorter()
    }

    fn play(&self, mistakes: QueueMistakes, traces: bool) -> Played {
        queues::play::play(self, mistakes, traces)
    }
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().map_or(default, |text| text.parse().expect("a number"))
}

/// Plays schedules on two threads until one fails. Returns what they come to, and the one that failed.
fn play_all<S: Schedule>(first: u64, schedules: u64, mistakes: S::Mistakes) -> (Tally, Option<S>) {
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(None));
    let worker = || {
        let mut all = Tally::default();
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed) as u64;
            if i >= schedules || failed.lock().unwrap().is_some() {
                return all;
            }
            let plan = S::of_seed(first + i);
            let Played { tally, wrong, .. } = plan.play(mistakes, false);
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
fn explained<S: Schedule>(plan: &S) -> String {
    let play = |plan: &S| plan.play(S::Mistakes::default(), true);
    let fails = |plan: &S| (0..TRIES).any(|_| play(plan).wrong.is_some());
    let mut shortest = plan.clone();
    while let Some(shorter) = shortest.shorter().into_iter().find(|plan| fails(plan)) {
        shortest = shorter;
    }
    let mut text = format!("{shortest}");
    let failing = (0..TRIES * 10).map(|_| play(&shortest)).find(|played| played.wrong.is_some());
    match failing {
        Some(played) => played.trace.iter().for_each(|line| writeln!(text, "{line}").unwrap()),
        None => text.push_str("it does not fail again\n"),
    }
    text
}

/// Plays as many schedules as the environment says, and fails with the one that breaks a promise.
fn none_fails<S: Schedule>() {
    let (first, schedules) = (number("TENURE_SEED", 1), number("TENURE_SCHEDULES", SCHEDULES));
    let none = S::Mistakes::default();
    if schedules == 1 {
        let plan = S::of_seed(first);
        let Played { wrong, trace, .. } = plan.play(none, true);
        println!("{plan}{}", trace.join("\n"));
        assert_eq!(wrong, None);
        return;
    }
    let (tally, failed) = play_all::<S>(first, schedules, none);
    println!("{tally:?}");
    if let Some(plan) = failed {
        println!("TENURE_SEED={}: {:?}", plan.seed(), plan.play(none, false).wrong);
        panic!("TENURE_SEED={}\n{}", plan.seed(), explained(&plan));
    }
    assert!(tally.grants > schedules * 3, "the schedules grant too little to prove anything");
    assert!(tally.lost * 10 > schedules && tally.dropped * 10 > schedules, "too little goes wrong in them");
}

/// Plays the same worlds with a mistake in them: where they find nothing, the schedules above prove nothing.
fn all_are_found<S: Schedule>(mistakes: impl IntoIterator<Item = S::Mistakes>) {
    let mut unseen = Vec::new();
    for mistake in mistakes {
        let (tally, failed) = play_all::<S>(1, FOUND_WITHIN, mistake);
        let Some(plan) = failed else {
            unseen.push(mistake);
            continue;
        };
        let wrong = plan.play(mistake, false).wrong.unwrap_or_else(|| "not again".into());
        println!("{mistake:?}: after {} schedules: {wrong}", tally.schedules);
    }
    assert!(unseen.is_empty(), "nothing noticed {unseen:?}");
}

#[test]
fn no_schedule_breaks_a_promise() {
    none_fails::<Plan>();
}

#[test]
fn no_schedule_breaks_a_promise_of_queues() {
    none_fails::<QueuePlan>();
}

#[test]
fn mistakes_are_found() {
    let flaws = store::Flaw::ALL.map(|flaw| Mistakes { flaw: Some(flaw), ..Mistakes::default() });
    let drift = Mistakes { no_drift: true, ..Mistakes::default() };
    let frozen = Mistakes { frozen_runtimes: true, ..Mistakes::default() };
    all_are_found::<Plan>(flaws.into_iter().chain([drift, frozen]));
}

#[test]
fn mistakes_of_queues_are_found() {
    let flaws = queues::store::Flaw::ALL.map(|flaw| QueueMistakes { flaw: Some(flaw), ..QueueMistakes::default() });
    let drift = QueueMistakes { no_drift: true, ..QueueMistakes::default() };
    let frozen = QueueMistakes { frozen_runtimes: true, ..QueueMistakes::default() };
    all_are_found::<QueuePlan>(flaws.into_iter().chain([drift, frozen]));
}
