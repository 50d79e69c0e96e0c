//! Results on standard output: a disk that is full, a reader that has gone.

use std::fs::{File, OpenOptions};
use std::process::Stdio;

use crate::support::World;

/// What prints a result while the lock `job` is held and the queue `mails` has a message.
const PRINTING: &[&[&str]] = &[
    &["ls"],
    &["inspect", "job"],
    &["doctor"],
    &["bench", "--for", "20ms"],
    &["queue", "list", "mails"],
    &["queue", "stats"],
    &["queue", "peek", "mails"],
    &["queue", "push", "mails", "another"],
    &["queue", "purge", "--yes", "empty"],
    &["man"],
    &["completions", "bash"],
    &["--version"],
    &["run", "--help"],
];

fn with_something_to_print() -> (World, crate::support::Running) {
    let world = World::new();
    assert_eq!(world.run(&["queue", "push", "mails", "hello"]).code, Some(0));
    let holder = world.start_script(&[], "echo begun; exec sleep 60");
    holder.says("begun");
    (world, holder)
}

fn ended_with(world: &World, args: &[&str], output: Stdio) -> (Option<i32>, String) {
    let ended = world.command(args).stdout(output).output().unwrap();
    (ended.status.code(), String::from_utf8_lossy(&ended.stderr).into_owned())
}

/// A job that keeps the list of locks must not believe in an empty one.
#[test]
fn a_result_that_cannot_be_written_is_an_error() {
    let (world, _holder) = with_something_to_print();
    for format in ["text", "json"] {
        for args in PRINTING {
            let full: File = OpenOptions::new().write(true).open("/dev/full").unwrap();
            let args = [&["--format", format], *args].concat();
            let (code, err) = ended_with(&world, &args, full.into());
            assert_eq!(code, Some(74), "{args:?}: {err}");
            let text = "error: the result cannot be written to standard output: No space left on device";
            assert!(err.contains(text), "{args:?}: {err}");
        }
    }
    std::fs::write(world.file("file"), "").unwrap();
    let pages = world.run(&["man", "file/pages"]);
    assert_eq!(pages.code, Some(74), "{pages:?}");
}

/// As a program that a shell sees killed by SIGPIPE.
#[test]
fn a_closed_pipe_ends_the_work_without_a_word() {
    let (world, _holder) = with_something_to_print();
    for format in ["text", "json"] {
        for args in PRINTING {
            let (reader, writer) = std::io::pipe().unwrap();
            drop(reader);
            let args = [&["--format", format, "--quiet"], *args].concat();
            assert_eq!(ended_with(&world, &args, writer.into()), (Some(141), String::new()), "{args:?}");
        }
    }
}
