//! The lock is lost while the program runs: the program is dead before anybody else has the lock.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use tenure_testkit::eventually;

use crate::support::{Ended, World, is_alive, patience};

/// A program that does not hear TERM, and writes down when it was alive.
const DEAF: &str = "trap 'date +%s%N > reported' TERM; echo pid $$; while :; do date +%s%N >> alive; done";

fn nanos(text: &str) -> u128 {
    text.lines().filter_map(|line| line.trim().parse().ok()).next_back().unwrap_or(0)
}

/// The server answers nobody while a deaf program runs under a lock of 2 s, and another one waits. The first is asked to end
/// (TERM) while its lease lasts, and dead before the second begins, which has a greater fence.
pub(crate) fn outage(world: &World, stop: impl FnOnce(), resume: impl FnOnce()) -> (Ended, Ended) {
    let holder = world.start_script(&["--ttl", "2s"], &format!("echo fence $TENURE_FENCE; {DEAF}"));
    let pid = holder.number("pid");
    let waiter = world.start(&["run", "job", "--", "sh", "-c", "date +%s%N > begun; echo fence $TENURE_FENCE"]);
    waiter.says("waiting");
    stop();
    let stopped = Instant::now();
    let first = holder.ended();
    let took = stopped.elapsed();
    assert!(!is_alive(pid));
    assert_eq!(first.code, Some(79), "{first:?}");
    assert!(first.err.contains("could not be renewed; sending TERM to the program"), "{first:?}");
    assert!(first.err.contains("the lock ends; sending KILL to the program"), "{first:?}");
    assert!(took < patience(Duration::from_millis(3500)), "{took:?}");
    resume();
    let second = waiter.ended();
    assert_eq!(second.code, Some(0), "{second:?}");
    let (alive, reported, begun) =
        (nanos(&world.text("alive")), nanos(&world.text("reported")), nanos(&world.text("begun")));
    assert!(reported > 0 && alive >= reported, "TERM came first: {reported}, {alive}");
    assert!(begun > alive, "both were at work: {alive}, {begun}");
    assert!(fence(&second) > fence(&first), "{second:?}");
    (first, second)
}

fn fence(ended: &Ended) -> u64 {
    ended.out.split("fence ").nth(1).and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// consul#9788: TERM came to the child 90 s after the loss. etcd#7983: nobody knew what happens on a loss.
#[test]
fn the_program_is_dead_before_the_lock_ends() {
    let world = World::new();
    let path = world.url().strip_prefix("sqlite://").unwrap().to_owned();
    let shut = std::cell::RefCell::new(None);
    outage(
        &world,
        || {
            let file = rusqlite::Connection::open(path).unwrap();
            file.busy_timeout(Duration::from_secs(20)).unwrap();
            file.execute_batch("BEGIN IMMEDIATE").unwrap(); // nobody else can write: no renewal is answered
            *shut.borrow_mut() = Some(file);
        },
        || drop(shut.borrow_mut().take()),
    );
}

/// A renewal that succeeds in time ends the worry: nothing is sent to the program.
#[test]
fn a_short_outage_is_a_line_and_no_more() {
    let world = World::new();
    let path = world.url().strip_prefix("sqlite://").unwrap().to_owned();
    let holder = world.start_script(
        &["--ttl", "3s"],
        "trap 'echo reported' TERM; echo ready; while ! [ -e go ]; do sleep 0.02; done",
    );
    holder.says("ready");
    let file = rusqlite::Connection::open(path).unwrap();
    file.busy_timeout(Duration::from_secs(20)).unwrap();
    file.execute_batch("BEGIN IMMEDIATE").unwrap();
    holder.says("cannot be renewed at the moment");
    drop(file);
    holder.says("the lock is renewed again");
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(3) {
        assert!(!world.is_free()); // for longer than the lease would have lasted
        std::thread::sleep(Duration::from_millis(100));
    }
    std::fs::write(world.file("go"), "").unwrap();
    let ended = holder.ended();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(!ended.out.contains("reported"));
}

#[test]
fn the_cap_on_holding_ends_the_program() {
    let world = World::new();
    let begun = Instant::now();
    let ended = world.run_script(&["--max-hold", "800ms", "--term-before", "300ms"], DEAF);
    assert_eq!(ended.code, Some(79), "{ended:?}");
    assert!(begun.elapsed() >= Duration::from_millis(700));
    let (alive, reported) = (nanos(&world.text("alive")), nanos(&world.text("reported")));
    assert!(reported > 0 && alive > reported, "{reported} {alive}");
    world.becomes_free();
}

/// A program that hears TERM has its own way to end; the exit code is 79 all the same.
#[test]
fn whatever_the_program_says_a_loss_is_79() {
    let world = World::new();
    let polite = "trap 'exit 0' TERM; echo ready; while :; do sleep 0.02; done";
    let ended = world.run_script(&["--max-hold", "500ms", "--term-before", "300ms"], polite);
    assert_eq!(ended.code, Some(79), "{ended:?}");
    assert!(ended.err.contains("it ended with exit code 0"), "{ended:?}");
}

/// Stopped for longer than its lease, this program kills before it does anything else.
#[test]
fn who_was_stopped_for_too_long_kills_first() {
    let world = World::new();
    let holder = world.start_script(&["--ttl", "2s"], "echo pid $$; exec sleep 60");
    let pid = holder.number("pid");
    holder.signal(Signal::STOP);
    let other = world.run(&["run", "job", "--", "true"]); // the lease ends, as the page says: a fence is for this
    assert_eq!(other.code, Some(0));
    holder.signal(Signal::CONT);
    let ended = holder.ended();
    assert_eq!(ended.code, Some(79), "{ended:?}");
    eventually("the child's end", || (!is_alive(pid)).then_some(())).unwrap();
}
