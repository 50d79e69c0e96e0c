//! `tenure queue`: messages from a shell, and a process for each.

use std::io::Write as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tenure_testkit::eventually;

use crate::support::{Ended, Running, World, is_alive};

impl World {
    fn queue(&self, args: &[&str]) -> Ended {
        self.run(&[&["--format", "json", "queue"], args].concat())
    }

    fn push(&self, message: &str, options: &[&str]) {
        let pushed = self.queue(&[&["push"], options, &["mails", message]].concat());
        assert_eq!(pushed.code, Some(0), "{pushed:?}");
    }

    fn worker(&self, options: &[&str], script: &str) -> Running {
        self.start(&[&["queue", "run"], options, &["mails", "--", "sh", "-c", script]].concat())
    }

    fn drained(&self, options: &[&str], script: &str) -> Ended {
        self.worker(&[&["--drain"], options].concat(), script).ended()
    }

    fn stat(&self, which: &str) -> u64 {
        self.queue(&["stats", "mails"]).json()[which].as_u64().unwrap()
    }
}

#[test]
fn a_message_is_the_standard_input_of_a_program_that_learns_the_rest() {
    let world = World::new();
    world.push("hello", &["--id", "bill/7"]);
    let ended =
        world.drained(&[], "cat; echo; echo $TENURE_QUEUE $TENURE_MESSAGE $TENURE_ATTEMPT; test $TENURE_FENCE -gt 0");
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), "hello\nmails bill/7 1\n"), "{ended:?}");
    assert_eq!(world.stat("ready") + world.stat("in_flight") + world.stat("dead"), 0, "acknowledged");
    let again = world.queue(&["push", "--id", "bill/7", "mails", "hello"]).json();
    assert_eq!((again["outcome"].as_str(), again["state"].as_str()), (Some("duplicate"), Some("settled")));
}

#[test]
fn bytes_come_from_files_and_pipes_and_are_exact() {
    let world = World::new();
    let bytes: Vec<u8> = (0..=255).cycle().take(200_000).collect();
    std::fs::write(world.file("message"), &bytes).unwrap();
    assert_eq!(world.queue(&["push", "--file", "message", "mails"]).code, Some(0));
    let mut command = world.command(&["queue", "push", "mails"]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&bytes).unwrap();
    assert!(child.wait().unwrap().success());
    // The first program reads nothing at all of what would fill any pipe.
    let ended = world.drained(&[], "[ -e skipped ] && exec cat > copy || touch skipped");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(std::fs::read(world.file("copy")).unwrap(), bytes);
    assert_eq!(world.queue(&["push", "--file", "nowhere", "mails"]).code, Some(64));
}

#[test]
fn exit_codes_decide_what_becomes_of_a_message() {
    let world = World::new();
    world.push("x", &["--id", "bad", "--attempts", "2"]);
    world.push("y", &["--id", "never"]);
    let script =
        "read line; echo about $line >&2; case $line in y) exit 65;; x) echo 'no such address' >&2; exit 1;; esac";
    let first = world.drained(&["--retry", "20ms"], script);
    assert!(
        first.err.contains("message bad, attempt 1: it ended with exit code 1: no such address; again in"),
        "{first:?}"
    );
    assert!(
        first.err.contains("message never, attempt 1: it ended with exit code 65: about y; it is a dead letter"),
        "{first:?}"
    );
    eventually("the second attempt", || {
        world.drained(&["--retry", "20ms"], script);
        (world.stat("dead") == 2).then_some(())
    })
    .unwrap();
    let dead = world.queue(&["dead", "mails"]);
    let causes: Vec<serde_json::Value> = dead.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((causes[0]["id"].as_str(), causes[0]["cause"].as_str()), (Some("never"), Some("rejected")));
    assert_eq!((causes[1]["id"].as_str(), causes[1]["cause"].as_str()), (Some("bad"), Some("exhausted")));
    assert_eq!(causes[1]["reason"], "it ended with exit code 1: no such address");
    // Again, one by its name; the other is removed.
    assert_eq!(world.queue(&["requeue", "mails", "bad"]).out.trim(), "1");
    assert_eq!(world.queue(&["dead-purge", "--all", "mails"]).code, Some(64), "nobody to ask");
    assert_eq!(world.queue(&["dead-purge", "--yes", "--oldest", "5", "mails"]).out.trim(), "1");
    assert_eq!(world.drained(&[], "cat").out, "x");
    let missing = world.drained(&[], "true");
    assert_eq!(missing.code, Some(0), "an empty queue is drained");
}

#[test]
fn what_operators_see_and_do() {
    let world = World::new();
    world.push("now", &["--id", "a"]);
    world.push("later", &["--delay", "1h", "--id", "b"]);
    world.push("later still", &["--delay", "2h", "--id", "b", "--replace"]);
    let all = world.run(&["queue", "stats"]);
    assert!(all.out.lines().any(|line| line.starts_with("mails") && line.contains("1        1")), "{all:?}");
    assert_eq!(world.queue(&["peek", "mails"]).json()["payload"], "now");
    let peeked = world.run(&["queue", "peek", "mails", "b"]);
    assert_eq!(peeked.out, "later still");
    assert!(peeked.err.contains("due in 1h 59m"), "{peeked:?}");
    let listed = world.run(&["queue", "list", "mails"]);
    assert_eq!(listed.out.lines().map(|line| &line[..1]).collect::<String>(), "ab");
    assert_eq!(world.queue(&["pause", "mails"]).code, Some(0));
    assert_eq!(world.drained(&[], "cat").out, "", "paused");
    assert_eq!(world.queue(&["stats", "mails"]).json()["paused"], true);
    assert_eq!(world.queue(&["resume", "mails"]).code, Some(0));
    assert_eq!(world.queue(&["cancel", "mails", "b"]).code, Some(0));
    assert_eq!(world.queue(&["cancel", "mails", "b"]).code, Some(1));
    assert_eq!(world.queue(&["peek", "mails", "b"]).code, Some(1));
    assert_eq!(world.queue(&["purge", "--yes", "mails"]).out.trim(), "1");
}

#[test]
fn programs_run_at_the_same_time_as_far_as_allowed() {
    let world = World::new();
    for _ in 0..4 {
        world.push("x", &[]);
    }
    // Each waits for one more than may run: together they get there only if two run at a time, and three never do.
    let script = "touch r$TENURE_FENCE; n=0; while [ $n -lt 60 ]; do c=$(ls | grep -c '^r'); [ $c -gt 2 ] && touch toomany; [ $c -eq 2 ] && touch two; n=$((n+1)); [ $c -eq 2 ] && [ $n -gt 5 ] && break; sleep 0.02; done; rm r$TENURE_FENCE";
    let ended = world.drained(&["--concurrency", "2"], script);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(world.file("two").exists() && !world.file("toomany").exists());
}

#[test]
fn the_lease_is_extended_while_the_program_runs() {
    let world = World::new();
    world.push("x", &[]);
    let worker = world.worker(&["--drain", "--lease", "400ms"], "echo begun; while ! [ -e go ]; do sleep 0.02; done");
    worker.says("begun");
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(1) {
        assert_eq!(world.drained(&[], "echo twice").out, "", "after {:?}", begun.elapsed());
    }
    std::fs::write(world.file("go"), "").unwrap();
    assert_eq!(worker.ended().code, Some(0));
}

/// As under `run`: the program is dead before the message is delivered to anybody else.
#[test]
fn a_lost_lease_ends_the_program() {
    let world = World::new();
    world.push("x", &[]);
    let worker = world.worker(&["--lease", "1s"], "trap 'echo told' TERM; echo pid $$; while :; do sleep 0.02; done");
    let pid = worker.number("pid");
    let path = world.url().strip_prefix("sqlite://").unwrap();
    let file = rusqlite::Connection::open(path).unwrap();
    file.busy_timeout(Duration::from_secs(20)).unwrap();
    file.execute_batch("BEGIN IMMEDIATE").unwrap();
    worker.says("told").says("the lease was lost");
    assert!(!is_alive(pid));
    drop(file);
    worker.says("pid"); // it goes on, with the next delivery
    worker.signal(Signal::TERM);
}

#[test]
fn term_lets_programs_finish_and_a_second_one_gives_messages_back() {
    let world = World::new();
    world.push("x", &[]);
    let worker = world.worker(&[], "echo begun; while ! [ -e go ]; do sleep 0.02; done");
    worker.says("begun").signal(Signal::TERM);
    worker.says("the programs finish");
    std::fs::write(world.file("go"), "").unwrap();
    assert_eq!(worker.ended().code, Some(0));
    assert_eq!(world.stat("ready"), 0, "it was acknowledged");

    world.push("y", &["--attempts", "1"]);
    let worker = world.worker(&[], "echo pid $$; exec sleep 60");
    let pid = worker.number("pid");
    worker.signal(Signal::INT);
    worker.says("the programs finish").signal(Signal::INT);
    assert_eq!(worker.ended().code, Some(0));
    assert!(!is_alive(pid));
    assert_eq!((world.stat("ready"), world.stat("dead")), (1, 0), "and was not counted as an attempt");
    assert_eq!(world.drained(&[], "cat").out, "y");
}

#[test]
fn a_worker_that_is_killed_takes_its_program_along_and_the_message_comes_again() {
    let world = World::new();
    world.push("x", &[]);
    let worker = world.worker(&["--lease", "500ms"], "echo pid $$; exec sleep 60");
    let pid = worker.number("pid");
    worker.signal(Signal::KILL);
    crate::support::dies(pid);
    let next = world.worker(&[], "echo attempt $TENURE_ATTEMPT");
    assert_eq!(next.number("attempt"), 2);
    next.signal(Signal::TERM);
    assert_eq!(next.ended().code, Some(0));
}

#[test]
fn what_a_program_leaves_in_its_group_is_killed() {
    let world = World::new();
    world.push("x", &[]);
    let script = "sh -c 'echo left $$; exec sleep 60' & while ! [ -e go ]; do sleep 0.02; done";
    let worker = world.worker(&["--drain"], script);
    let left = worker.number("left");
    std::fs::write(world.file("go"), "").unwrap();
    assert_eq!(worker.ended().code, Some(0));
    assert!(!is_alive(left));
}

#[test]
fn a_program_that_is_not_there_is_a_failed_attempt() {
    let world = World::new();
    world.push("x", &["--attempts", "1"]);
    let ended = world.run(&["queue", "run", "--drain", "mails", "--", "./nowhere"]);
    assert!(ended.err.contains("no process can be started: No such file"), "{ended:?}");
    assert_eq!(world.stat("dead"), 1);
}
