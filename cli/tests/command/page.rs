//! The examples of `docs/cli.md`, each run as it stands there.

use std::process::Command;

use crate::support::{Running, World};

/// A command and what it prints, standard error included.
struct Example {
    command: String,
    expected: Vec<String>,
}

/// The examples of the page in order: lines of blocks of `console` that begin with `$ `, and the lines below them.
fn examples(page: &str) -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    let mut inside = false;
    for line in page.lines() {
        match (inside, line) {
            (false, "```console") => inside = true,
            (true, "```") => inside = false,
            (true, line) => match line.strip_prefix("$ ") {
                Some(command) => examples.push(Example { command: command.to_owned(), expected: Vec::new() }),
                None => examples.last_mut().unwrap().expected.push(line.to_owned()),
            },
            (false, _) => {}
        }
    }
    examples
}

/// `[..]` stands for anything within a line, a line `…` for any lines.
fn matches(expected: &[String], seen: &[&str]) -> bool {
    match expected.split_first() {
        None => seen.is_empty(),
        Some((first, rest)) if first == "…" => (0..=seen.len()).any(|skipped| matches(rest, &seen[skipped..])),
        Some((first, rest)) => {
            seen.split_first().is_some_and(|(line, below)| like(first, line) && matches(rest, below))
        }
    }
}

fn like(pattern: &str, line: &str) -> bool {
    let mut parts = pattern.split("[..]");
    let Some(mut line) = parts.next().and_then(|first| line.strip_prefix(first)) else { return false };
    let rest: Vec<&str> = parts.collect();
    let Some((last, between)) = rest.split_last() else { return line.is_empty() };
    for part in between {
        let Some((_, after)) = line.split_once(part) else { return false };
        line = after;
    }
    line.ends_with(last)
}

#[test]
fn the_examples_of_the_page_are_true() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/cli.md")).unwrap();
    let world = World::new();
    let examples = examples(&page);
    assert!(examples.len() >= 15);
    for Example { command, expected } in examples {
        let mut shell = Command::new("sh");
        world.prepare(
            shell.args(["-c", &format!("exec 2>&1; {command}")]).env("PATH", crate::terminal::path_with_tenure()),
        );
        let ended = Running::of(&mut shell).ended();
        let seen: Vec<&str> = ended.out.lines().collect();
        assert!(matches(&expected, &seen), "{command}\nprinted\n{}\ninstead of\n{}", ended.out, expected.join("\n"));
    }
}

#[test]
fn patterns_match_what_they_say() {
    assert!(like("a[..]c", "abc") && like("[..]", "") && like("a", "a") && like("a[..]b[..]", "a1b2"));
    assert!(!like("a", "ab") && !like("a[..]c", "ab") && !like("a[..]b[..]c", "acb"));
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    assert!(matches(&lines("a\n…\nz"), &["a", "b", "z"]) && !matches(&lines("a"), &["a", "b"]));
}
