//! What operators do with locks: looked at, watched, taken away.

use std::time::Instant;

use rustix::process::Signal;

use crate::support::{World, is_alive, millis, patience};

#[test]
fn inspect_tells_who_holds_a_lock_and_how_many_wait() {
    inspected(&World::new());
}

pub(crate) fn inspected(world: &World) {
    let free = world.run(&["inspect", "job"]);
    assert_eq!(free.code, Some(1));
    assert!(free.out.contains("state     free"), "{free:?}");
    let holder = world.start_script(&["--label", "nightly"], "echo fence $TENURE_FENCE; exec sleep 60");
    let fence = holder.word("fence");
    let waiter = world.start_script(&[], "true");
    waiter.says("waiting");
    let held = world.run(&["inspect", "job"]);
    assert_eq!(held.code, Some(0));
    for line in ["holder    nightly", &format!("fence     {fence}"), "waiting   1"] {
        assert!(held.out.contains(line), "{line}: {held:?}");
    }
    let seen = world.run(&["--format", "json", "inspect", "job"]).json();
    assert_eq!((&seen["held"], &seen["waiters"]), (&true.into(), &1.into()));
    assert_eq!(seen["holder"]["fence"].to_string(), fence);
    assert!(seen["holder"]["remaining_ms"].as_u64().unwrap() > 0);
    holder.signal(Signal::TERM);
    assert_eq!((holder.ended().code, waiter.ended().code), (Some(143), Some(0)));
}

/// Locks of this world, as `ls` tells them.
fn lists_the_locks_that_are_held(world: &World) {
    let none = world.run(&["ls"]);
    assert_eq!((none.code, &*none.out), (Some(0), ""), "{none:?}");
    let holder = world.start_script(&["--label", "nightly"], "echo fence $TENURE_FENCE; exec sleep 60");
    let fence = holder.word("fence");
    let other = world.start(&["run", "j*b%", "--", "sh", "-c", "echo started; exec sleep 60"]);
    other.says("started");
    let waiter = world.start_script(&[], "true");
    waiter.says("waiting");
    let all = world.run(&["ls"]);
    let lines: Vec<&str> = all.out.lines().collect();
    assert_eq!((all.code, lines.len()), (Some(0), 3), "{all:?}");
    assert!(lines[0].starts_with("NAME") && lines[1..].iter().any(|line| line.starts_with("j*b% ")), "{all:?}");
    let job: Vec<&str> = lines.iter().find(|line| line.starts_with("job ")).unwrap().split_whitespace().collect();
    assert_eq!((job[1], job.last()), ("nightly", Some(&"1")), "{all:?}");
    let starred = world.run(&["--format", "json", "ls", "j*"]).json();
    assert_eq!((&starred["name"], &starred["name_hex"]), (&"j*b%".into(), &"6a2a6225".into()));
    assert_eq!(world.run(&["--format", "json", "ls", "j*"]).out.lines().count(), 1, "the star stands for itself");
    let seen = world.run(&["--format", "json", "ls", "--name-hex", "6a6f"]).json();
    assert_eq!((&seen["name"], &seen["waiters"], &seen["owner"]), (&"job".into(), &1.into(), &().into()));
    assert_eq!(seen["holder"]["fence"].to_string(), fence);
    assert!(seen["holder"]["remaining_ms"].as_u64().unwrap() > 0);
    assert_eq!(world.run(&["ls", "nobody/"]).out, "");
}

#[test]
fn ls_lists_the_locks_that_are_held() {
    lists_the_locks_that_are_held(&World::new());
}

#[cfg(feature = "redis")]
#[test]
fn ls_lists_the_locks_of_a_redis_server() {
    let server = tenure_testkit::RedisServer::start(tenure_testkit::RedisOptions::new()).unwrap();
    lists_the_locks_that_are_held(&World::on(server.url()));
}

/// A forced release is a proof of the loss: TERM, and a second later KILL.
#[test]
fn a_forced_release_ends_the_program_and_frees_nobody_elses_lock() {
    freed_by_force(&World::new(), "600ms");
}

pub(crate) fn freed_by_force(world: &World, ttl: &str) {
    let deaf = "trap 'echo told' TERM; echo pid $$; while :; do sleep 0.02; done";
    let first = world.start_script(&["--ttl", ttl], deaf);
    let pid = first.number("pid");
    let second = world.start_script(&[], "echo second; while ! [ -e go ]; do sleep 0.02; done");
    second.says("waiting");
    let freed = world.run(&["--format", "json", "force-release", "--yes", "job"]);
    assert_eq!((freed.code, freed.json()["outcome"].as_str()), (Some(0), Some("released")), "{freed:?}");
    let begun = Instant::now();
    second.says("second");
    first.says("told");
    let ended = first.ended();
    assert_eq!(ended.code, Some(79), "{ended:?}");
    assert!(ended.err.contains("the lock is lost (the backend no longer knows it)"), "{ended:?}");
    assert!(begun.elapsed() < patience(millis(2500)), "{:?}", begun.elapsed());
    assert!(!is_alive(pid));
    assert!(!world.is_free(), "a late release of the first leaves the second alone");
    std::fs::write(world.file("go"), "").unwrap();
    assert_eq!(second.ended().code, Some(0));
}

/// An operator who was slow does not free the next holder.
#[test]
fn a_fence_guards_against_freeing_the_next_holder() {
    let world = World::new();
    let holder = world.start_script(&[], "echo fence $TENURE_FENCE; exec sleep 60");
    let fence = holder.word("fence");
    let before = (fence.parse::<u64>().unwrap() - 1).to_string();
    let late = world.run(&["force-release", "--fence", &before, "job"]);
    assert_eq!(late.code, Some(75));
    assert!(late.err.contains("somebody else holds job by now"), "{late:?}");
    let silent = world.run(&["force-release", "job"]);
    assert_eq!(silent.code, Some(64), "nobody to ask: {silent:?}");
    assert!(silent.err.contains("say --yes"), "{silent:?}");
    assert!(!world.is_free());
    assert_eq!(world.run(&["force-release", "--fence", &fence, "job"]).code, Some(0));
    assert_eq!(world.run(&["force-release", "--fence", &fence, "job"]).code, Some(1), "free already");
}

#[test]
fn watch_shows_every_holder_until_it_is_interrupted() {
    let world = World::new();
    let watch = world.start(&["watch", "--every", "20ms", "job"]);
    watch.says("nobody holds it");
    let holder = world.start_script(&["--label", "somebody"], "exec sleep 60");
    watch.says("held by somebody");
    holder.signal(Signal::TERM);
    holder.ended();
    let json = world.start(&["--format", "json", "watch", "--every", "20ms", "job"]);
    json.says("\"holder\":null");
    for watch in [watch, json] {
        watch.signal(Signal::INT);
        assert_eq!(watch.ended().code, Some(130));
    }
}

#[test]
fn doctor_tells_by_its_exit_code_how_bad_it_is() {
    let world = World::new();
    let doctor = world.run(&["doctor"]);
    assert_eq!(doctor.code, Some(1), "{doctor:?}");
    assert!(doctor.out.lines().any(|line| line.starts_with("note    ")), "{doctor:?}");
    let report = world.run(&["--format", "json", "doctor"]).json();
    assert_eq!((report["driver"].as_str(), report["concern"].as_str()), (Some("sqlite"), Some("note")));
    assert!(report["findings"].as_array().unwrap().len() > 3);
}
