//! Until the program begins: waiting, patience, and signals that come first.

use std::time::Instant;

use rustix::process::Signal;

use crate::support::{World, is_alive, millis, patience};
use tenure_testkit::eventually;

const HOLD: &str = "echo holds; exec sleep 60";

#[test]
fn a_waiter_gets_the_lock_when_its_holder_ends() {
    handed_over(&World::new());
}

pub(crate) fn handed_over(world: &World) {
    let holder = world.start_script(&[], HOLD);
    holder.says("holds");
    let waiter = world.start(&["--format", "json", "run", "job", "--", "true"]);
    waiter.says("waiting: held by");
    holder.signal(Signal::TERM);
    assert_eq!(holder.ended().code, Some(143));
    let ended = waiter.ended();
    assert_eq!((ended.code, ended.json()["outcome"].as_str()), (Some(0), Some("ran")));
    assert!(ended.json()["waited_ms"].as_u64().unwrap() >= 200, "{ended:?}");
}

/// The same words on a backend that keeps a line, wherever it is.
#[test]
fn a_waiter_tells_its_place_in_line() {
    placed(&World::new());
}

pub(crate) fn placed(world: &World) {
    let holder = world.start_script(&[], HOLD);
    holder.says("holds");
    let first = world.start(&["run", "job", "--", "true"]);
    first.says("1st of 1 in line");
    let second = world.start(&["--format", "json", "run", "job", "--", "true"]);
    second.says("2nd of 2 in line");
    let third = world.run(&["--format", "json", "run", "--wait", "700ms", "job", "--", "true"]);
    assert!(third.err.contains("3rd of 3 in line"), "{third:?}");
    assert_eq!((third.code, third.json()["place"].as_u64()), (Some(75), Some(3)));
    second.signal(Signal::TERM);
    let ended = second.ended();
    assert_eq!((ended.code, ended.json()["place"].as_u64()), (Some(143), Some(2)));
    let refused = world.run(&["--format", "json", "run", "--no-wait", "job", "--", "true"]);
    assert!(refused.json()["place"].is_null(), "it did not wait: {refused:?}");
    holder.signal(Signal::TERM);
    assert_eq!(first.ended().code, Some(0));
}

/// flock: busy is exit 1, like a command's own 1.
#[test]
fn busy_is_75_or_what_was_asked_for_and_never_the_programs_own() {
    let world = World::new();
    let holder = world.start_script(&["--label", "the nightly job"], HOLD);
    holder.says("holds");
    let busy = world.run(&["run", "--no-wait", "job", "--", "touch", "ran"]);
    assert_eq!(busy.code, Some(75));
    assert!(busy.err.contains("job is busy: held by the nightly job for "), "{busy:?}");
    let begun = Instant::now();
    let busy = world.run(&["run", "--wait", "150ms", "--busy-exit", "0", "job", "--", "touch", "ran"]);
    assert_eq!(busy.code, Some(0));
    assert!(begun.elapsed() >= millis(150));
    let busy = world.run(&["--format", "json", "-q", "run", "--no-wait", "job", "--", "touch", "ran"]);
    assert_eq!((busy.json()["outcome"].as_str(), busy.json()["exit"].as_i64()), (Some("busy"), Some(75)));
    assert_eq!(busy.err, "", "-q");
    assert!(!world.file("ran").exists());
}

/// consul#4439: a signal while waiting was ignored, so that the service manager had to kill.
#[test]
fn a_signal_while_waiting_gives_the_place_up() {
    given_up(&World::new());
}

pub(crate) fn given_up(world: &World) {
    let holder = world.start_script(&[], HOLD);
    holder.says("holds");
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129), (Signal::QUIT, 131)] {
        let waiter = world.start(&["run", "job", "--", "touch", "ran"]);
        waiter.says("waiting");
        waiter.signal(signal);
        assert_eq!(waiter.ended().code, Some(code));
    }
    holder.signal(Signal::TERM);
    holder.ended();
    let begun = Instant::now();
    assert_eq!(world.run(&["run", "job", "--", "true"]).code, Some(0));
    assert!(begun.elapsed() < patience(millis(2000)), "nobody was left in line");
    assert!(!world.file("ran").exists());
}

/// consul#1155: a program was *started* after TERM, the lock gone already.
#[test]
fn nothing_is_started_after_a_signal_that_came_with_the_grant() {
    let world = World::new();
    for _ in 0..5 {
        let holder = world.start_script(&[], HOLD);
        holder.says("holds");
        let waiter = world.start(&["run", "job", "--", "touch", "ran"]);
        waiter.says("waiting");
        waiter.signal(Signal::STOP);
        eventually("it to stand still", || (crate::support::state(waiter.pid()) == Some('T')).then_some(())).unwrap();
        waiter.signal(Signal::TERM);
        holder.signal(Signal::TERM); // the grant comes while the signal waits
        holder.ended();
        waiter.signal(Signal::CONT);
        assert_eq!(waiter.ended().code, Some(143));
        assert!(!world.file("ran").exists());
        world.becomes_free();
    }
}

/// A signal at any moment of a start either prevents the program, or reaches it.
#[test]
fn a_signal_around_the_start_is_never_lost() {
    let world = World::new();
    for step in 0..24 {
        let started = Instant::now();
        let running = world.start_script(&[], "echo started; sleep 60 & wait");
        while started.elapsed() < millis(step) {
            std::thread::yield_now();
        }
        running.signal(Signal::TERM);
        // By itself where not even the handlers were set, by its code where nothing was run, by the program's otherwise.
        let ended = running.ended();
        assert!(matches!(ended.code, None | Some(143)), "{step}: {ended:?}");
    }
    world.becomes_free();
}

/// `nohup` and shells without job control have signals ignored: they stay so, here and in the program.
#[test]
fn what_was_ignored_before_stays_ignored() {
    let world = World::new();
    let mut command = std::process::Command::new("sh");
    let line =
        format!("trap '' HUP; exec {} run job -- sh -c 'echo pid $$; exec sleep 60'", env!("CARGO_BIN_EXE_tenure"));
    world.prepare(command.args(["-c", &line]));
    let running = crate::support::Running::of(&mut command);
    let pid = running.number("pid");
    running.signal(Signal::HUP);
    running.signal(Signal::USR1); // heard after the other, and passed on: the program's end by it shows that both were seen
    let ended = running.ended();
    assert_eq!(ended.code, Some(128 + Signal::USR1.as_raw()), "{ended:?}");
    assert!(!is_alive(pid));
}

/// The inner one waits for the outer one, which waits for the inner one.
#[test]
fn a_run_inside_a_run_of_the_same_lock_prints_why_it_waits() {
    let world = World::new();
    let inner = format!("{} run --wait 1s job -- true", env!("CARGO_BIN_EXE_tenure"));
    let outer = world.run_script(&[], &inner);
    assert_eq!(outer.code, Some(75), "{outer:?}");
    assert!(outer.err.contains("runs under a lock of this name"), "{outer:?}");
}
