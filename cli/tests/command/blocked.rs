//! Nothing that keeps a lease waits for a reader: not messages to a full pipe or a full disk, nor results that are not read.

use std::fs::{File, OpenOptions};
use std::io::{PipeReader, PipeWriter, Read as _, Write as _};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::process::Signal;
use tenure_testkit::eventually;

use crate::support::{Running, World, dies, is_alive, millis, patience, script_args};

/// A full pipe, and its other end, which is not read.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
    for size in [4096, 1] {
        while writer.write(&vec![b'x'; size]).is_ok() {}
    }
    fcntl_setfl(&writer, OFlags::empty()).unwrap();
    (reader, writer)
}

fn full_disk() -> File {
    OpenOptions::new().write(true).open("/dev/full").unwrap()
}

/// The lock is taken away: five sentences later the program is dead, although none of them can be written.
#[test]
fn a_lost_lock_ends_the_program_although_no_message_can_be_written() {
    let (_reader, pipe) = full_pipe();
    for errors in [Stdio::from(pipe), Stdio::from(full_disk())] {
        let world = World::new();
        let deaf = "trap '' TERM; echo $$ > pid; while :; do sleep 0.05; done";
        let mut holder = world.command(&script_args(&["--ttl", "1s"], deaf)).stderr(errors).spawn().unwrap();
        let pid = eventually("the program", || world.text("pid").trim().parse().ok()).unwrap();
        assert_eq!(world.run(&["force-release", "--yes", "job"]).code, Some(0));
        dies(pid);
        let status = eventually("the end", || holder.try_wait().unwrap()).unwrap();
        assert_eq!(status.code(), Some(79));
    }
}

/// One program fills the pipe and waits for its reader; the message of the other is extended, handled and acknowledged.
#[test]
fn a_program_whose_words_nobody_reads_holds_up_no_other() {
    let world = World::new();
    for message in ["talks", "works"] {
        assert_eq!(world.run(&["queue", "push", "mails", message]).code, Some(0));
    }
    let script = "read word; [ $word = talks ] && exec head -c 9000000 /dev/zero >&2; \
                  echo $TENURE_ATTEMPT >> begun; sleep 5; echo > done";
    let (_reader, pipe) = full_pipe();
    let options = ["queue", "run", "--lease", "2s", "--concurrency", "2", "mails", "--", "sh", "-c", script];
    let mut worker = world.command(&options).stderr(pipe).spawn().unwrap();
    eventually("the work", || world.file("done").exists().then_some(())).unwrap();
    let stats = || world.run(&["--format", "json", "queue", "stats", "mails"]).json()["in_flight"].as_u64();
    eventually("the acknowledgement", || (stats() == Some(1)).then_some(())).unwrap();
    assert_eq!(world.text("begun"), "1\n");
    worker.kill().unwrap();
    worker.wait().unwrap();
}

/// Results wait for their reader, and leases do not.
#[test]
fn results_that_nobody_reads_hold_up_no_lease() {
    let world = World::new();
    for message in ["quick", "slow"] {
        assert_eq!(world.run(&["queue", "push", "mails", message]).code, Some(0));
    }
    let script = "read word; [ $word = quick ] && exit 0; echo $TENURE_ATTEMPT >> begun; sleep 5; echo > done";
    let (reader, pipe) = full_pipe();
    let mut command = world.command(&["--format", "json", "queue", "run", "--lease", "2s", "--concurrency", "2"]);
    command.args(["mails", "--", "sh", "-c", script]).stdout(pipe);
    let mut worker = command.spawn().unwrap();
    eventually("the work", || world.file("done").exists().then_some(())).unwrap();
    assert_eq!(world.text("begun"), "1\n");
    drop(reader); // a closed pipe ends the worker, as SIGPIPE would
    let status = eventually("the end", || worker.try_wait().unwrap()).unwrap();
    assert_eq!(status.code(), Some(141));
}

#[test]
fn a_result_that_cannot_be_written_is_an_error() {
    let world = World::new();
    let mut command = world.command(&["--format", "json", "run", "job", "--", "true"]);
    let output = command.stdout(full_disk()).output().unwrap();
    assert_eq!(output.status.code(), Some(74));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot be written to standard output"), "{output:?}");
}

/// The program's output may end anywhere; the result is elsewhere.
#[test]
fn a_report_is_apart_from_what_the_program_prints() {
    let world = World::new();
    let ended =
        world.run_script(&["--report", "result.json"], "printf 'no end of line'; ls /proc/self/fd | wc -l > open");
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), "no end of line"), "{ended:?}");
    let result: serde_json::Value = serde_json::from_str(&world.text("result.json")).unwrap();
    assert_eq!(result["outcome"], "ran");
    // To a descriptor, which the program does not inherit.
    let line = format!(
        "exec {} run --report 3 job -- sh -c 'ls /proc/self/fd | wc -l > fewer' 3> third",
        env!("CARGO_BIN_EXE_tenure")
    );
    let mut shell = std::process::Command::new("sh");
    world.prepare(shell.args(["-c", &line]));
    assert_eq!(Running::of(&mut shell).ended().code, Some(0));
    assert!(world.text("third").contains("\"outcome\":\"ran\""), "{}", world.text("third"));
    assert_eq!(world.text("fewer"), world.text("open"));
    let wrong = world.run_script(&["--report", "9"], "true");
    assert_eq!(wrong.code, Some(64), "{wrong:?}");
}

/// The reader is stopped: TERM is heard, and the program is dead.
#[test]
fn signals_are_heard_while_messages_find_no_reader() {
    let world = World::new();
    let (_reader, pipe) = full_pipe();
    // What the shell runs ignores the signal: it would report its end to the full pipe.
    let deaf = "trap 'echo > reported' TERM; echo $$ > pid; while :; do (trap '' TERM; exec sleep 0.05); done";
    let mut holder = world.command(&script_args(&[], deaf)).stderr(pipe).spawn().unwrap();
    let pid = eventually("the program", || world.text("pid").trim().parse().ok()).unwrap();
    let own = rustix::process::Pid::from_child(&holder);
    let begun = Instant::now();
    rustix::process::kill_process(own, Signal::TERM).unwrap();
    eventually("the first signal", || world.file("reported").exists().then_some(())).unwrap();
    rustix::process::kill_process(own, Signal::TERM).unwrap();
    eventually("the end", || holder.try_wait().unwrap()).unwrap();
    assert!(!is_alive(pid) && begun.elapsed() < patience(Duration::from_secs(5)));
}

/// More messages than have room: the rest is counted, and the number is printed once the pipe is read.
#[test]
fn messages_that_find_no_room_are_counted() {
    let world = World::new();
    let all = 300_u32;
    let lines = "x\n".repeat(all as usize);
    std::fs::write(world.file("messages"), lines).unwrap();
    let push = ["queue", "push", "--lines", "--file", "messages", "--attempts", "1", "mails"];
    assert_eq!(world.run(&push).code, Some(0));
    let (mut reader, pipe) = full_pipe();
    let mut worker = world.command(&["queue", "run", "--concurrency", "8", "mails", "--", "false"]);
    worker.stderr(pipe);
    let mut running = worker.spawn().unwrap();
    drop(worker); // and with it a writer of the pipe
    let dead = || {
        thread::sleep(millis(250)); // to look takes a process
        world.run(&["--format", "json", "queue", "stats", "mails"]).json()["dead"].as_u64()
    };
    eventually("the last message", || (dead() == Some(all.into())).then_some(())).unwrap();
    let reading = thread::spawn(move || {
        let mut text = Vec::new();
        reader.read_to_end(&mut text).map(|_| text)
    });
    rustix::process::kill_process(rustix::process::Pid::from_child(&running), Signal::TERM).unwrap();
    assert_eq!(running.wait().unwrap().code(), Some(0));
    let text = reading.join().unwrap().unwrap();
    let text = String::from_utf8_lossy(&text);
    let (mut left_out, mut written) = (0, 0);
    for line in text.split("tenure: ").skip(1) {
        match line.split_once(" message") {
            Some((count, rest)) if rest.contains("dropped here") => left_out += count.parse::<u32>().unwrap(),
            _ => written += 1,
        }
    }
    // One for each message, and one for the signal.
    assert!(left_out > 0 && left_out + written == all + 1, "{left_out} beside {written}");
}
