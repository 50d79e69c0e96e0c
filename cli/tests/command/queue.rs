//! `tenure queue`: messages from a shell, and a process for each.

use std::io::Write as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tenure_testkit::eventually;

use crate::support::{Ended, Running, World, dies, is_alive};

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

/// One process for many messages, of which only a part is in memory.
#[test]
fn lines_are_messages_and_each_is_stored_as_soon_as_it_is_there() {
    let world = World::new();
    let lines: String = (1..=3000).map(|number| format!("message {number}\n")).collect();
    std::fs::write(world.file("lines"), &lines).unwrap();
    let pushed = world.run(&["queue", "push", "--lines", "--file", "lines", "--attempts", "1", "mails"]);
    assert_eq!((pushed.code, &*pushed.out), (Some(0), "stored 3000\n"), "{pushed:?}");
    assert_eq!(world.stat("ready"), 3000);
    let first = world.queue(&["peek", "mails"]).json();
    assert_eq!((&first["payload"], &first["attempts"]), (&"message 1".into(), &1.into()));

    let mut command = world.command(&["--format", "json", "queue", "push", "--lines", "streamed"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let stored = || world.queue(&["stats", "streamed"]).json()["ready"].as_u64().unwrap();
    input.write_all(b"one\n\nhal").unwrap();
    eventually("two messages, one of them empty", || (stored() == 2).then_some(())).unwrap();
    input.write_all(b"f").unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer, serde_json::json!({ "queue": "streamed", "stored": 3 }), "the last line needs no end");
}

#[test]
fn a_line_that_cannot_be_stored_is_named_with_those_that_are() {
    let world = World::new();
    let mut text = b"one\ntwo\n".to_vec();
    text.resize(text.len() + 17 * 1024 * 1024, b'x');
    text.extend(b"\nfour\n");
    std::fs::write(world.file("lines"), &text).unwrap();
    let pushed = world.run(&["queue", "push", "--lines", "--file", "lines", "mails"]);
    assert_eq!(pushed.code, Some(64), "{pushed:?}");
    assert!(pushed.err.contains("line 3 of lines cannot be stored: it has more than "), "{pushed:?}");
    assert!(pushed.err.contains("lines 1 to 2 are stored"), "{pushed:?}");
    assert_eq!(world.stat("ready"), 2);
    for wrong in [&["--id", "a"][..], &["--file", "nowhere"]] {
        let refused = world.run(&[&["queue", "push", "--lines"], wrong, &["mails"]].concat());
        assert_eq!(refused.code, Some(64), "{refused:?}");
    }
}

/// What is stored does not have to be guessed: `tail -n +2` is the rest.
#[cfg(feature = "redis")]
#[test]
fn lines_before_an_outage_are_named() {
    let mut server = tenure_testkit::RedisServer::start(tenure_testkit::RedisOptions::new()).unwrap();
    let world = World::on(server.url());
    let mut command = world.command(&["queue", "push", "--lines", "mails"]);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"one\n").unwrap();
    eventually("the first message", || (world.stat("ready") == 1).then_some(())).unwrap();
    server.kill().unwrap();
    input.write_all(b"two\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(69), "{err}");
    assert!(err.contains("line 1 is stored; "), "{err}");
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
    assert_eq!(world.queue(&["requeue", "mails", "bad"]).json()["requeued"], 1);
    assert_eq!(world.queue(&["dead-purge", "--all", "mails"]).code, Some(64), "nobody to ask");
    assert_eq!(world.queue(&["dead-purge", "--yes", "--oldest", "5", "mails"]).json()["removed"], 1);
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
    assert_eq!(world.queue(&["purge", "--yes", "mails"]).json()["removed"], 1);
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
    let worker = world.worker(&["--drain", "--lease", "2s"], "echo begun; while ! [ -e go ]; do sleep 0.02; done");
    worker.says("begun");
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(5) {
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
    let worker =
        world.worker(&["--lease", "1s"], "trap 'echo reported' TERM; echo pid $$; while :; do sleep 0.02; done");
    let pid = worker.number("pid");
    let path = world.url().strip_prefix("sqlite://").unwrap();
    let file = rusqlite::Connection::open(path).unwrap();
    file.busy_timeout(Duration::from_secs(20)).unwrap();
    file.execute_batch("BEGIN IMMEDIATE").unwrap();
    worker.says("reported").says("the lease was lost");
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
    let worker = world.worker(&["--lease", "2s"], "echo pid $$; exec sleep 60");
    let pid = worker.number("pid");
    worker.signal(Signal::KILL);
    dies(pid);
    let next = world.worker(&[], "echo attempt $TENURE_ATTEMPT");
    assert_eq!(next.number("attempt"), 2);
    next.signal(Signal::TERM);
    assert_eq!(next.ended().code, Some(0));
}

/// In its group, and in a session of its own: the next message is another's.
#[test]
fn what_a_program_leaves_behind_is_ended() {
    let world = World::new();
    world.push("x", &[]);
    world.push("y", &[]);
    let script = "read word; if [ $word = y ]; then echo other $$; exec sleep 60; fi; \
        sh -c 'echo left $$; exec sleep 60' & setsid sh -c 'echo away $$; exec sleep 60' & \
        while ! [ -e go ]; do sleep 0.02; done";
    let worker = world.worker(&["--concurrency", "2"], script);
    let (left, away, other) = (worker.number("left"), worker.number("away"), worker.number("other"));
    std::fs::write(world.file("go"), "").unwrap();
    dies(left);
    dies(away);
    assert!(is_alive(other));
    worker.signal(Signal::TERM);
    worker.says("the programs finish").signal(Signal::TERM);
    assert_eq!(worker.ended().code, Some(0));
    assert_eq!(world.stat("ready"), 1, "the other message came back");
}

#[test]
fn what_a_program_leaves_behind_runs_on_where_that_is_asked_for() {
    let world = World::new();
    world.push("x", &[]);
    let ended = world.drained(&["--on-exit", "leave"], "sleep 60 > file 2>&1 & echo left $!");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let left: i32 = ended.out.trim().strip_prefix("left ").unwrap().parse().unwrap();
    assert!(is_alive(left));
    let left = rustix::process::Pid::from_raw(left).unwrap();
    rustix::process::kill_process(left, Signal::KILL).unwrap();
}

#[test]
fn other_signals_are_passed_on_to_programs() {
    let world = World::new();
    world.push("x", &[]);
    let worker = world.worker(&["--drain"], "trap 'echo heard; exit 0' USR1; echo begun; while :; do sleep 0.02; done");
    worker.says("begun").signal(Signal::USR1);
    worker.says("heard");
    assert_eq!(worker.ended().code, Some(0));
}

/// It would burn the attempts of every message.
#[test]
fn a_program_that_is_not_there_ends_the_worker_and_costs_no_attempt() {
    let world = World::new();
    world.push("x", &["--attempts", "1"]);
    std::fs::write(world.file("no-program"), "").unwrap();
    for (program, code) in [("./nowhere", 127), ("./no-program", 126)] {
        let ended = world.run(&["queue", "run", "mails", "--", program]);
        assert_eq!(ended.code, Some(code), "{ended:?}");
        assert!(ended.err.contains(&format!("{program} cannot be run: ")), "{ended:?}");
    }
    assert_eq!(world.drained(&[], "echo attempt $TENURE_ATTEMPT").out, "attempt 1\n");
}

/// While a program runs and another could: signals are heard, and a message that comes is handled.
#[test]
fn draining_with_room_for_more_hears_signals_and_sees_new_messages() {
    let world = World::new();
    world.push("x", &[]);
    let worker = world.worker(
        &["--drain", "--concurrency", "2"],
        "read word; echo has $word; while ! [ -e $word ]; do sleep 0.02; done",
    );
    worker.says("has x");
    world.push("y", &[]);
    worker.says("has y").signal(Signal::TERM);
    worker.says("the programs finish");
    std::fs::write(world.file("x"), "").unwrap();
    std::fs::write(world.file("y"), "").unwrap();
    assert_eq!(worker.ended().code, Some(0));
}

/// `docker stop` twice, and once more.
#[test]
fn a_program_that_ignores_term_is_killed_at_the_third_signal() {
    let world = World::new();
    world.push("x", &[]);
    let worker = world.worker(&[], "trap 'echo reported' TERM; echo pid $$; while :; do sleep 0.02; done");
    let pid = worker.number("pid");
    worker.signal(Signal::TERM);
    worker.says("the programs finish").signal(Signal::TERM);
    worker.says("reported").signal(Signal::TERM);
    let ended = worker.ended();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(!is_alive(pid));
    assert_eq!((world.stat("ready"), world.stat("dead")), (1, 0));
}
