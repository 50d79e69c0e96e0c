//! What is measured and proved on a backend of the user's.

use std::time::Instant;

use rustix::process::Signal;

use crate::support::{World, millis, patience};

fn steps(out: &str) -> Vec<serde_json::Value> {
    out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn bench_measures_every_step_and_leaves_no_name_behind() {
    let world = World::new();
    let begun = Instant::now();
    let ended = world.run(&["--format", "json", "bench", "--for", "200ms"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.err.contains("measuring sqlite, 200ms for each step"), "{ended:?}");
    let took = begun.elapsed();
    assert!(took >= millis(600), "three steps of 200 ms: {took:?}");
    let steps = steps(&ended.out);
    let names: Vec<&str> = steps.iter().map(|step| step["step"].as_str().unwrap()).collect();
    assert_eq!(names, ["free pair", "hand-over", "message"]);
    for step in &steps {
        let figure = |name: &str| step[name].as_f64().unwrap();
        assert!(figure("count") >= 2.0, "{step}");
        assert!(figure("median_us") > 1.0 && figure("p99_us") >= figure("median_us"), "{step}");
        // One after the other: as many in a second as its latency allows.
        assert!(figure("per_second") <= 1e6 / figure("median_us") * 2.0, "{step}");
        let spent = figure("count") / figure("per_second");
        assert!((spent > 0.1 || step["step"] == "hand-over") && spent < took.as_secs_f64(), "{spent} s: {step}");
    }
    assert_eq!(world.run(&["queue", "stats"]).out.lines().count(), 1, "the head of the table alone");
    let file = rusqlite::Connection::open(world.url().strip_prefix("sqlite://").unwrap()).unwrap();
    for table in ["hold", "waiter", "message"] {
        let left: i64 = file.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap();
        assert!(left == 0 || table == "hold", "{left} rows are left in {table}");
    }
}

#[test]
fn bench_works_in_memory_and_stops_when_asked() {
    let world = World::on("memory:");
    let ended = world.run(&["bench", "--for", "50ms"]);
    assert_eq!((ended.code, ended.out.lines().count()), (Some(0), 4), "{ended:?}");
    let world = World::new();
    let running = world.start(&["bench", "--for", "1h"]);
    running.says("measuring");
    running.signal(Signal::INT);
    let begun = Instant::now();
    assert_eq!(running.ended().code, Some(130));
    assert!(begun.elapsed() < patience(millis(4000)), "{:?}", begun.elapsed());
    let ended = world.run(&["bench", "--for", "0s"]);
    assert_eq!(ended.code, Some(64), "{ended:?}");
}

#[test]
fn bench_of_a_server_that_is_not_there_is_69() {
    assert_eq!(World::on("redis://127.0.0.1:1/").run(&["bench"]).code, Some(69));
}

#[cfg(feature = "conformance")]
#[test]
fn the_suite_runs_over_a_url_also_with_other_processes() {
    let world = World::new();
    let filters = ["--filter", "inspect/shows", "--filter", "process/", "--filter", "driver/", "--filter", "floor"];
    let ended = world.run(&[&["conformance"], &filters[..]].concat());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.err.contains("they write names that begin with tc-"), "{ended:?}");
    for line in ["passed    inspect/shows-the-holder", "passed    process/", "left out  fence/beyond-a-floor"] {
        assert!(ended.out.contains(line), "{line}: {ended:?}");
    }
    let json = world.run(&[&["--format", "json", "conformance"], &filters[..2]].concat()).json();
    assert_eq!((json["failed"].as_u64(), json["passed"].as_u64()), (Some(0), Some(1)), "{json}");
    assert_eq!(json["backend"], "sqlite");
}

#[cfg(feature = "conformance")]
#[test]
fn the_suite_lists_what_it_would_run_and_refuses_a_filter_of_nothing() {
    let world = World::on("memory:");
    let listed = world.run(&["conformance", "--list"]);
    assert!(listed.out.lines().count() > 200 && listed.err.is_empty(), "{listed:?}");
    assert!(listed.out.contains("process/") && listed.out.contains("(left out: "), "{listed:?}");
    let nothing = world.run(&["conformance", "--filter", "no such case"]);
    assert_eq!(nothing.code, Some(64));
    let left_out = world.run(&["conformance", "--filter", "fence/beyond-a-floor"]);
    assert_eq!(left_out.code, Some(1), "nothing ran: {left_out:?}");
    let away = World::on("redis://127.0.0.1:1/").run(&["conformance"]);
    assert_eq!(away.code, Some(69), "{away:?}");
}

/// A backend that loses what it granted fails: here somebody frees every lock of the suite, again and again.
#[cfg(feature = "conformance")]
#[test]
fn a_case_that_fails_is_exit_1() {
    let world = World::new();
    let file = rusqlite::Connection::open(world.url().strip_prefix("sqlite://").unwrap()).unwrap();
    file.busy_timeout(std::time::Duration::from_secs(5)).unwrap();
    assert_eq!(world.run(&["run", "job", "--", "true"]).code, Some(0), "the file has its tables");
    file.execute_batch("CREATE TRIGGER forgets AFTER INSERT ON hold BEGIN DELETE FROM hold; END;").unwrap();
    let ended = world.run(&["conformance", "--filter", "inspect/shows-the-holder"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.out.contains("FAILED    inspect/shows-the-holder"), "{ended:?}");
}

#[cfg(not(feature = "conformance"))]
#[test]
fn without_the_suite_the_command_says_so() {
    let ended = World::new().run(&["conformance", "--list"]);
    assert_eq!(ended.code, Some(64));
    assert!(ended.err.contains("the Cargo feature \"conformance\""), "{ended:?}");
}
