//! The program's end, ours, and those who outlive it.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tenure_testkit::eventually;

use crate::support::{Running, World, dies, is_alive, millis, patience, script_args, state};

/// consul#2999: the exit code of the child was not passed on.
#[test]
fn the_programs_exit_code_is_ours() {
    let world = World::new();
    for code in [0, 1, 7, 75, 79, 255] {
        let ended = world.run_script(&["-q"], &format!("exit {code}"));
        assert_eq!((ended.code, ended.err.as_str()), (Some(code), ""));
    }
    let ended = world.run(&["--format", "json", "run", "job", "--", "sh", "-c", "exit 75"]);
    assert_eq!(ended.json()["outcome"], "ran", "a program's own 75 differs from a busy lock");
    assert_eq!(ended.json()["child"]["exit"], 75);
}

#[test]
fn a_death_by_a_signal_is_128_and_its_number() {
    let world = World::new();
    for (signal, code) in [("TERM", 143), ("KILL", 137), ("INT", 130)] {
        assert_eq!(world.run_script(&[], &format!("kill -{signal} $$")).code, Some(code));
    }
    let running = world.start_script(&[], "echo pid $$; exec sleep 60");
    let child = running.number("pid");
    rustix::process::kill_process(rustix::process::Pid::from_raw(child).unwrap(), Signal::KILL).unwrap();
    assert_eq!(running.ended().code, Some(137), "kill -9 of the child");
    world.becomes_free();
}

#[test]
fn a_program_that_is_not_there_or_cannot_be_run_has_its_codes() {
    let world = World::new();
    std::fs::write(world.file("plain"), "no program").unwrap();
    for (program, code, word) in [("./nowhere", 127, "No such file"), ("./plain", 126, "Permission denied")] {
        let ended = world.run(&["--format", "json", "run", "job", "--", program]);
        assert_eq!(ended.code, Some(code));
        assert!(ended.err.contains(word), "{ended:?}");
        assert_eq!(ended.json()["outcome"], "not_runnable");
        assert!(ended.json()["child"].is_null());
    }
    world.becomes_free();
}

#[test]
fn the_program_learns_the_lock_and_the_fence_and_has_our_standard_input() {
    let world = World::new();
    let mut command =
        world.command(&script_args(&[], "cat; echo $TENURE_LOCK $TENURE_FENCE; ls -l /proc/self/fd | grep -c socket"));
    let mut running = Running::of(command.stdin(Stdio::piped()));
    running.write("from outside\n");
    let ended = running.ended();
    let lines: Vec<&str> = ended.out.lines().collect();
    assert_eq!(lines[0], "from outside");
    assert!(lines[1].starts_with("job 1"), "{lines:?}");
    assert_eq!(lines[2], "0", "nothing of ours stays open in it");
    let first: u64 = lines[1].split(' ').nth(1).unwrap().parse().unwrap();
    let next = world.run_script(&[], "echo $TENURE_FENCE").out.trim().parse::<u64>().unwrap();
    assert!(next > first);
}

/// consul#797, #3754, #2489, #1210: the child was left running after TERM, HUP, QUIT.
#[test]
fn signals_reach_the_whole_group_of_the_program() {
    let world = World::new();
    let signals = [Signal::TERM, Signal::HUP, Signal::QUIT, Signal::INT, Signal::USR1, Signal::USR2];
    for signal in signals {
        // A grandchild in the same group; the shell itself waits for it.
        let running = world.start_script(&[], "sh -c 'echo grandchild $$; exec sleep 60' & echo pid $$; wait");
        let (child, grandchild) = (running.number("pid"), running.number("grandchild"));
        running.signal(signal);
        assert_eq!(running.ended().code, Some(128 + signal.as_raw()));
        assert!(!is_alive(child) && !is_alive(grandchild), "{signal:?}");
    }
    world.becomes_free();
}

#[test]
fn a_program_that_ends_in_its_own_way_after_term_is_given_the_time() {
    let world = World::new();
    let running = world
        .start_script(&[], "trap 'echo cleaning; sleep 0.3; exit 3' TERM; echo ready; while :; do sleep 0.02; done");
    running.says("ready");
    running.signal(Signal::TERM);
    running.says("cleaning");
    assert!(!world.is_free(), "it is still at work");
    assert_eq!(running.ended().code, Some(3));
}

#[test]
fn a_second_term_kills() {
    let world = World::new();
    let running = world.start_script(&[], "trap 'echo deaf' TERM; echo ready; while :; do sleep 0.02; done");
    running.says("ready");
    running.signal(Signal::TERM);
    running.says("deaf");
    running.signal(Signal::TERM);
    assert_eq!(running.ended().code, Some(137));
}

/// etcd#8365, #8875, #10117: a crash held the lock for long, or for ever. Here `kill -9` of ours ends the program at once,
/// nobody renews, and the lock is free after its ttl.
#[test]
fn nothing_outlives_us_and_the_lock_is_free_after_its_ttl() {
    killed(&World::new(), millis(400));
}

pub(crate) fn killed(world: &World, ttl: Duration) {
    let lease = format!("{}ms", ttl.as_millis());
    let running = world.start_script(&["--ttl", &lease], "echo pid $$; exec sleep 60");
    let child = running.number("pid");
    let waiter = world.start(&["run", "job", "--", "echo", "took", "over"]);
    waiter.says("waiting");
    running.signal(Signal::KILL);
    let killed = Instant::now();
    dies(child);
    waiter.says("took over");
    assert!(killed.elapsed() < ttl + patience(millis(1100)), "{:?}", killed.elapsed());
    assert_eq!(waiter.ended().code, Some(0));
}

const LEAVES_ONE: &str = "sh -c 'echo left $$; exec sleep 60' & while ! [ -e go ]; do sleep 0.02; done; exit 5";

#[test]
fn what_the_program_leaves_is_killed_by_default() {
    let world = World::new();
    let running = world.start_script(&[], LEAVES_ONE);
    let left = running.number("left");
    std::fs::write(world.file("go"), "").unwrap();
    let ended = running.ended();
    assert_eq!(ended.code, Some(5));
    assert!(ended.err.contains("left 1 process behind"), "{ended:?}");
    assert!(!is_alive(left));
}

#[test]
fn what_ignores_term_is_killed_after_term_before() {
    let world = World::new();
    let deaf = "sh -c 'trap \"\" TERM; echo left $$; while :; do sleep 0.02; done' & while ! [ -e go ]; do sleep 0.02; done; exit 5";
    let running = world.start_script(&["--term-before", "100ms"], deaf);
    let left = running.number("left");
    std::fs::write(world.file("go"), "").unwrap();
    assert_eq!(running.ended().code, Some(5));
    assert!(!is_alive(left));
}

/// Daemons that leave the group and the session are seen as well: this program is the subreaper.
#[test]
fn a_daemon_is_waited_for_or_killed() {
    daemons(&World::new());
}

pub(crate) fn daemons(world: &World) {
    let daemon =
        "setsid sh -c 'echo left $$; while ! [ -e end ]; do sleep 0.02; done' & while ! [ -e go ]; do sleep 0.02; done";
    let running = world.start_script(&["--on-exit", "wait"], daemon);
    let left = running.number("left");
    std::fs::write(world.file("go"), "").unwrap();
    running.says("the lock is held for ");
    assert!(is_alive(left) && !world.is_free());
    std::fs::write(world.file("end"), "").unwrap();
    assert_eq!(running.ended().code, Some(0));
    assert!(!is_alive(left));
    for file in ["go", "end"] {
        std::fs::remove_file(world.file(file)).unwrap();
    }

    let running = world.start_script(&[], daemon);
    let left = running.number("left");
    std::fs::write(world.file("go"), "").unwrap();
    assert_eq!(running.ended().code, Some(0));
    assert!(!is_alive(left), "killed");
}

/// flock: a background process inherits the descriptor and holds the lock on.
#[test]
fn a_process_that_is_left_alone_does_not_hold_the_lock() {
    let world = World::new();
    let running = world.start_script(&["--on-exit", "leave"], LEAVES_ONE);
    let left = running.number("left");
    std::fs::write(world.file("go"), "").unwrap();
    let mut running = running;
    eventually("its end", || (!running.is_running()).then_some(())).unwrap();
    assert!(is_alive(left));
    assert!(world.is_free());
    rustix::process::kill_process(rustix::process::Pid::from_raw(left).unwrap(), Signal::KILL).unwrap();
}

/// Wrappers for cron jobs: a job that is longer than the ttl ran twice.
#[test]
fn a_job_may_take_longer_than_the_ttl() {
    let world = World::new();
    let job = world.start_script(&["--ttl", "1s"], "echo begun; while ! [ -e go ]; do sleep 0.02; done");
    job.says("begun");
    let begun = Instant::now();
    while begun.elapsed() < millis(3_000) {
        assert!(!world.is_free(), "after {:?}", begun.elapsed());
    }
    std::fs::write(world.file("go"), "").unwrap();
    assert_eq!(job.ended().code, Some(0));
}

/// ShedLock's `lockAtLeastFor`: so long, and no longer.
#[test]
fn a_short_job_may_hold_the_lock_for_as_long_as_clocks_are_apart() {
    let world = World::new();
    let job = world.start_script(&["--at-least", "1500ms", "--ttl", "2m"], "echo begun");
    job.says("begun").says("the lock is held for another");
    let begun = Instant::now();
    assert!(!world.is_free());
    assert_eq!(job.ended().code, Some(0));
    assert!(begun.elapsed() >= millis(1_000) && world.is_free());
    // A signal ends the command, and not the lock.
    let job = world.start_script(&["--at-least", "1m", "--ttl", "2m"], "true");
    job.says("the lock is held for another").signal(Signal::TERM);
    assert_eq!(job.ended().code, Some(0));
    assert!(!world.is_free());
}

/// As process 1 of a container: signals are heard, orphans are reaped, and the end of the program is the end.
#[test]
fn it_works_as_process_1() {
    let world = World::new();
    let may = Command::new("unshare").args(["-rpf", "--mount-proc", "true"]).stderr(Stdio::null()).status();
    if !may.is_ok_and(|status| status.success()) {
        eprintln!("left out: this machine lets nobody make a PID namespace");
        return;
    }
    let namespace = |script: &str| {
        let mut command = Command::new("unshare");
        let words = script_args(&[], script);
        // The outer program passes no signals on; the inner one is signalled by its number outside.
        world.prepare(command.args(["-rpf", "--kill-child", "--mount-proc", env!("CARGO_BIN_EXE_tenure")]).args(words));
        Running::of(command.process_group(0))
    };
    // An orphan that ends: its zombie would be ours. The shell looks for zombies until there is none.
    let orphans = "echo self $PPID; (sh -c 'exec sleep 0.05' &); sleep 0.1; while grep -q '^State:.Z' /proc/[0-9]*/status; do sleep 0.02; done; exit 4";
    let ended = namespace(orphans).ended();
    assert_eq!(ended.code, Some(4), "{ended:?}");
    assert!(ended.out.contains("self 1\n"), "{ended:?}");
    let running = namespace("trap 'echo heard; exit 6' TERM; echo ready; while :; do sleep 0.02; done");
    running.says("ready");
    let outer = running.pid();
    let inner = eventually("the process inside", || {
        let children = std::fs::read_to_string(format!("/proc/{outer}/task/{outer}/children")).ok()?;
        children.split_whitespace().next()?.parse::<i32>().ok()
    });
    let inner = inner.unwrap();
    assert!(state(inner).is_some());
    rustix::process::kill_process(rustix::process::Pid::from_raw(inner).unwrap(), Signal::TERM).unwrap();
    assert_eq!(running.ended().code, Some(6));
}

/// Children that were there before this program became what it is are nobody's to kill.
#[test]
fn children_of_whoever_was_here_before_are_left_alone() {
    let world = World::new();
    let mut command = Command::new("sh");
    let line = format!("sleep 60 & echo before $!; exec {} run job -- true", env!("CARGO_BIN_EXE_tenure"));
    world.prepare(command.args(["-c", &line]));
    let mut running = Running::of(&mut command);
    let before = running.number("before");
    eventually("its end", || (!running.is_running()).then_some(())).unwrap();
    assert!(is_alive(before));
    rustix::process::kill_process(rustix::process::Pid::from_raw(before).unwrap(), Signal::KILL).unwrap();
}
