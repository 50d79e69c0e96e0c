//! The page of the first ten minutes: its very commands, in its order, in a shell for each terminal.

use std::path::Path;
use std::process::Command;

use crate::support::{Ended, Running, World};

/// The blocks of commands, in order.
fn blocks(page: &str) -> Vec<&str> {
    let begins = page.split("```sh\n").skip(1);
    begins.map(|rest| rest.split_once("```").expect("a block has an end").0).collect()
}

fn type_in(world: &World, block: &str) -> Running {
    let mut shell = Command::new("bash");
    world.prepare(shell.args(["-c", block]).env("PATH", crate::terminal::path_with_tenure()));
    Running::of(&mut shell)
}

/// The tour as it was built with all examples; cargo builds it where it was not.
fn tour(world: &World, line: &str) -> Ended {
    let folder = Path::new(env!("CARGO_BIN_EXE_tenure")).parent().unwrap();
    let built = folder.join("examples/quickstart");
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let line = if built.is_file() { built.display().to_string() } else { format!("cd {root} && exec {line}") };
    let mut shell = Command::new("bash");
    world.prepare(shell.args(["-c", &line]));
    let output = shell.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ended { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
}

fn fence(out: &str) -> u64 {
    out.trim().rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn the_first_ten_minutes_are_as_the_page_says() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/ten-minutes.md")).unwrap();
    let [start, first, second, worst, fit] = blocks(&page)[..] else { panic!("the page has other blocks") };
    let world = World::new();

    let (example, install) = start.trim().split_once('\n').unwrap();
    assert_eq!(install, "cargo install --locked --path cli", "this program stands for that");
    assert!(example.starts_with("cargo run ") && example.ends_with("--example quickstart"));
    let tour = tour(&world, example);
    assert_eq!(tour.code, Some(0), "{tour:?}");
    assert!(tour.out.contains("Both clients are closed; nothing is left behind."), "{tour:?}");

    let first = type_in(&world, first);
    first.says("first, fence ");
    let second = type_in(&world, second);
    second.says("waiting: held by ");
    let worst = type_in(&world, worst).ended();
    assert_eq!(worst.code, Some(0), "{worst:?}");
    assert!(worst.out.lines().any(|line| line.starts_with("nightly")), "tenure ls: {worst:?}");
    assert!(worst.out.contains("state     held") && worst.out.contains("waiting   1"), "{worst:?}");
    let first = first.ended();
    assert!(matches!(first.code, None | Some(137)), "{first:?}");
    second.says("second, fence ");
    let second = second.ended();
    assert_eq!(second.code, Some(0), "{second:?}");
    assert!(fence(&second.out) > fence(&first.out), "{first:?} {second:?}");

    let fit = type_in(&world, fit).ended();
    assert!(fit.out.contains("note    ") && fit.out.contains("hand-over "), "{fit:?}");
}
