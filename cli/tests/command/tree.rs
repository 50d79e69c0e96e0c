//! All commands: on one screen, on the page, in the manual, and completed by shells.

use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::support::World;

/// Every command, as the helps list them: `queue push`.
fn commands(world: &World) -> Vec<String> {
    let (mut found, mut next) = (Vec::new(), vec![String::new()]);
    while let Some(command) = next.pop() {
        let words: Vec<&str> = command.split_whitespace().chain(["--help"]).collect();
        let help = world.run(&words).out;
        let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
        // What belongs to the line above is indented further.
        let names = listed.filter(|line| !line.starts_with("   ")).filter_map(|line| line.split_whitespace().next());
        let below: Vec<String> = names.map(|name| format!("{command} {name}").trim_start().to_owned()).collect();
        found.extend(below.iter().cloned());
        next.extend(below);
    }
    assert!(found.len() > 20 && found.iter().any(|command| command == "queue push"), "{found:?}");
    found
}

#[test]
fn help_fits_a_screen() {
    let world = World::new();
    let help = world.run(&["--help"]);
    assert_eq!(help.code, Some(0));
    let (lines, columns) = (help.out.lines().count(), help.out.lines().map(|line| line.chars().count()).max().unwrap());
    assert!(lines <= 24 && columns <= 80, "{lines} lines, {columns} columns:\n{}", help.out);
    assert_eq!(world.run(&["-h"]).out, help.out);
    assert_eq!(world.run(&["run", "--help"]).code, Some(0));
    assert!(world.run(&["--version"]).out.starts_with("tenure "));
    assert_eq!(world.run(&["help"]).out, help.out);
    assert_eq!(world.run(&["help", "queue", "push"]).out, world.run(&["queue", "push", "--help"]).out);
    let unknown = world.run(&["help", "queue", "frobnicate"]);
    assert_eq!(unknown.code, Some(64));
    assert!(unknown.err.contains("no command queue frobnicate"), "{unknown:?}");
}

#[test]
fn every_command_has_a_heading_on_the_page() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/cli.md")).unwrap();
    for command in commands(&World::new()) {
        let heading = |line: &str| {
            let title = line.strip_prefix('#')?.trim_start_matches('#').trim();
            title.strip_prefix(&format!("`tenure {command}"))?.starts_with([' ', '`']).then_some(())
        };
        assert!(page.lines().any(|line| heading(line).is_some()), "docs/cli.md has no heading for {command}");
    }
}

#[test]
fn every_command_has_a_page_of_the_manual() {
    let world = World::new();
    assert_eq!(world.run(&["man", "pages"]).code, Some(0));
    let mut expected = vec![String::from("tenure.1")];
    for command in commands(&world) {
        let name = format!("tenure-{}.1", command.replace(' ', "-"));
        let page = world.text(&format!("pages/{name}"));
        for section in
            [".SH NAME", ".SH SYNOPSIS", ".SH DESCRIPTION", ".SH \"EXIT STATUS\"", ".SH ENVIRONMENT", ".SH EXAMPLES"]
        {
            assert!(page.contains(section), "{section} in {name}: {page:?}");
        }
        let called = format!("\\fBtenure {}\\fR", command.replace('-', "\\-"));
        assert!(page.contains(&called), "{called} in {page}");
        expected.push(name);
    }
    let mut written: Vec<String> = std::fs::read_dir(world.file("pages"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    written.sort();
    expected.sort();
    assert_eq!(written, expected);
    let main = world.run(&["man"]).out;
    assert!(main.contains("force\\-release") && !main.contains("__"), "{main}");
    let refused = world.run(&["man", "/proc/nowhere"]);
    assert_eq!(refused.code, Some(74));
    assert!(refused.err.contains("cannot be written to /proc/nowhere"), "{refused:?}");
}

#[test]
fn completions_are_there_for_every_shell_and_bash_reads_its_own() {
    let world = World::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = world.run(&["completions", shell]);
        assert_eq!(script.code, Some(0));
        assert!(script.out.contains("force-release") && script.out.contains("dead-purge"), "{shell}");
        assert!(
            !script.out.contains("__launch") && !script.out.contains("__worker"),
            "{shell}: the program's own words"
        );
    }
    assert_eq!(world.run(&["completions", "cmd"]).code, Some(64));
    let script = world.run(&["completions", "bash"]).out;
    let mut bash = Command::new("bash").arg("-n").stdin(Stdio::piped()).spawn().unwrap();
    bash.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(bash.wait().unwrap().success());
    // What the shell would offer after these words.
    let offered = |words: &str| {
        let words: Vec<&str> = words.split(' ').collect();
        let (all, last, at) = (words.join(" "), words[words.len() - 1], words.len() - 1);
        let ask = format!(
            "COMP_WORDS=({all}); COMP_CWORD={at}; _tenure_or_program tenure {last} {}; echo \"${{COMPREPLY[*]}}\"",
            words[at - 1]
        );
        let shell = Command::new("bash").args(["--norc", "-c", &format!("{script}\n{ask}")]).output().unwrap();
        String::from_utf8(shell.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(offered("tenure queue dead"), "dead dead-purge");
    assert!(offered("tenure run job -- whil").contains("while"), "commands");
    assert_eq!(offered("tenure run job -- ls dea"), "", "files, which bash adds itself");
}

/// The units of systemd that packages ship: their commands are read, and TERM comes once.
#[test]
fn units_call_the_command_as_it_is() {
    let world = World::new();
    for (unit, option, code) in [("tenure-run", "--no-wait", 127), ("tenure-queue", "--drain", 0)] {
        let path = format!("{}/systemd/{unit}@.service", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap();
        assert!(text.lines().any(|line| line == "KillMode=mixed"), "{text}");
        let call = text.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/tenure ")).unwrap();
        // `run` finds no such program, and `queue run` no message.
        let call = call.replace("%i", "nowhere").replace("run nowhere", &format!("run {option} nowhere"));
        let ended = world.run(&call.split(' ').collect::<Vec<_>>());
        assert_eq!(ended.code, Some(code), "{call}: {ended:?}");
    }
}
