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
    let deaf = "trap 'echo reported' TERM; echo pid $$; while :; do sleep 0.02; done";
    let first = world.start_script(&["--ttl", ttl], deaf);
    let pid = first.number("pid");
    let second = world.start_script(&[], "echo second; while ! [ -e go ]; do sleep 0.02; done");
    second.says("waiting");
    let freed = world.run(&["--format", "json", "force-release", "--yes", "job"]);
    assert_eq!((freed.code, freed.json()["outcome"].as_str()), (Some(0), Some("released")), "{freed:?}");
    let begun = Instant::now();
    second.says("second");
    first.says("reported");
    let ended = first.ended();
    assert_eq!(ended.code, Some(79), "{ended:?}");
    assert!(ended.err.contains("the lock is lost (the backend no longer knows it)"), "{ended:?}");
    assert!(begun.elapsed() < patience(millis(4000)), "{:?}", begun.elapsed());
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
    assert!(late.err.contains("another client holds job by now"), "{late:?}");
    let silent = world.run(&["force-release", "job"]);
    assert_eq!(silent.code, Some(64), "nobody to ask: {silent:?}");
    assert!(silent.err.contains("use --yes"), "{silent:?}");
    assert!(!world.is_free());
    assert_eq!(world.run(&["force-release", "--fence", &fence, "job"]).code, Some(0));
    assert_eq!(world.run(&["force-release", "--fence", &fence, "job"]).code, Some(1), "free already");
}

#[test]
fn watch_shows_every_holder_until_it_is_interrupted() {
    let world = World::new();
    let watch = world.start(&["watch", "--every", "20ms", "job"]);
    watch.says("it is free");
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
    // A service starts although there are notes.
    assert_eq!(world.run(&["doctor", "--fail-on", "danger"]).code, Some(0));
    assert_eq!(world.run(&["doctor", "--fail-on", "note"]).code, Some(1));
    assert_eq!(world.run(&["doctor", "--fail-on", "nothing"]).code, Some(64));
}

#[test]
fn ping_tells_whether_the_backend_answers() {
    let world = World::new();
    let ended = world.run(&["ping"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.out.starts_with("sqlite answers: connected in ") && ended.out.contains(" ms"), "{ended:?}");
    let answer = world.run(&["--format", "json", "ping"]).json();
    assert!(answer["round_trip_us"].as_u64().unwrap() > 0, "{answer}");
    let away = World::on("redis://127.0.0.1:1/");
    assert_eq!(away.run(&["ping"]).code, Some(69));
    let begun = Instant::now();
    let ended = away.run(&["ping", "--wait", "600ms"]);
    assert_eq!(ended.code, Some(69), "{ended:?}");
    assert!(begun.elapsed() >= millis(300) && begun.elapsed() < patience(millis(3000)), "{:?}", begun.elapsed());
    let wrong = World::on("sqlite:locks.db?max_waiter=1").run(&["ping", "--wait", "1m"]);
    assert_eq!(wrong.code, Some(78), "waiting does not help: {wrong:?}");
}

/// A service that starts with the machine waits for the server.
#[cfg(feature = "redis")]
#[test]
fn ping_waits_for_a_server() {
    let mut server = tenure_testkit::RedisServer::start(tenure_testkit::RedisOptions::new()).unwrap();
    let world = World::on(server.url());
    server.kill().unwrap();
    let mut waiting = world.start(&["ping", "--wait", "60s"]);
    std::thread::sleep(millis(300));
    assert!(waiting.is_running());
    server.restart().unwrap();
    assert_eq!(waiting.ended().code, Some(0));
}

#[cfg(feature = "postgres")]
#[test]
fn a_database_has_what_it_needs_by_the_schema_that_is_printed() {
    use tenure_testkit::{PostgresOptions, PostgresServer};
    let server = PostgresServer::start(PostgresOptions::new()).unwrap();
    let world = World::on(server.url("postgres"));
    let without = world.run(&["ls"]);
    assert_eq!(without.code, Some(78), "{without:?}");
    assert!(without.err.contains("tenure schema postgres"), "{without:?}");
    let schema = world.run(&["schema", "postgres", "--logged"]);
    assert_eq!(schema.code, Some(0), "{schema:?}");
    server.script("postgres", &schema.out).unwrap();
    let used = world.run(&["run", "job", "--", "true"]);
    assert_eq!(used.code, Some(0), "{used:?}");
    let doctor = world.run(&["doctor"]);
    assert!(doctor.out.contains("locks are logged"), "{doctor:?}");
    for complaint in ["autovacuum does not keep up", "a standby grants nothing", "or later is needed"] {
        let fine = doctor.out.lines().filter(|line| line.starts_with("fine"));
        assert_eq!(fine.filter(|line| line.contains(complaint)).count(), 0, "{doctor:?}");
    }
}

#[test]
fn a_schema_that_was_left_out_says_how_to_install_it() {
    let world = World::on("nonsense");
    for (database, is_built) in [("postgres", cfg!(feature = "postgres")), ("mysql", cfg!(feature = "mysql"))] {
        let schema = world.run(&["schema", database]);
        assert_eq!(schema.code, Some(if is_built { 0 } else { 78 }), "{schema:?}");
        assert!(schema.out.contains("CREATE") || schema.err.contains(&format!("--features {database}")), "{schema:?}");
    }
    assert_eq!(world.run(&["schema", "mysql", "--logged"]).code, Some(64));
}

#[test]
fn as_many_programs_run_as_there_are_permits() {
    let world = World::new();
    let holders = ["1/3", "2/3"].map(|permits| {
        let holder = world.start_script(&["--permits", permits, "--label", permits], "echo holds; exec sleep 60");
        holder.says("holds");
        holder
    });
    let busy = world.run(&["run", "--no-wait", "--permits", "3", "job", "--", "true"]);
    assert!(busy.code == Some(75) && busy.err.contains("3 of 3 permits are held"), "{busy:?}");
    let seen = world.run(&["inspect", "--semaphore", "job"]);
    assert!(seen.code == Some(0) && seen.out.contains("2 of 3; held by 2/3"), "{seen:?}");
    let seen = world.run(&["--format", "json", "inspect", "--semaphore", "job"]).json();
    assert_eq!((&seen["used"], &seen["holders"][0]["weight"], &seen["waiters"]), (&3.into(), &1.into(), &0.into()));
    holders[0].signal(Signal::TERM);
    let ran = world.run(&["run", "--permits", "3", "job", "--", "echo", "ran"]);
    assert!(ran.code == Some(0) && ran.out == "ran\n", "{ran:?}");
    assert_eq!(world.run(&["run", "--no-wait", "job", "--", "true"]).code, Some(0), "the lock of this name is free");
    assert_eq!(world.run(&["run", "--permits", "4/3", "job", "--", "true"]).code, Some(64));
}

#[test]
fn programs_read_together_and_write_alone() {
    let world = World::new();
    let reader = world.start_script(&["--read", "--label", "one"], "echo holds; exec sleep 60");
    reader.says("holds");
    assert_eq!(world.run(&["run", "--no-wait", "--read", "job", "--", "true"]).code, Some(0));
    let busy = world.run(&["run", "--no-wait", "--write", "job", "--", "true"]);
    assert!(busy.code == Some(75) && busy.err.contains("held by one") && busy.err.contains("reading"), "{busy:?}");
    reader.signal(Signal::TERM);
    let written = world.run(&["run", "--write", "job", "--", env!("CARGO_BIN_EXE_tenure"), "inspect", "--rw", "job"]);
    assert!(written.code == Some(0) && written.out.contains("writes; held by"), "{written:?}");
}
