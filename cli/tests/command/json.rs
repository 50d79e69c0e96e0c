//! Answers for programs: objects whose fields are on `docs/cli-json.md`, failures included.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use serde_json::Value;

use crate::support::{Ended, Running, World};

/// The fields that each section of the page lists, by its heading.
fn sections(page: &str) -> BTreeMap<&str, BTreeSet<&str>> {
    let sections = page.split("\n## ").skip(1).map(|section| {
        let (heading, text) = section.split_once('\n').unwrap();
        let rows = text.lines().filter(|line| line.starts_with("| `"));
        (heading.trim_matches('`'), rows.flat_map(|row| row.split('`').skip(1).step_by(2)).collect())
    });
    sections.collect()
}

fn fields(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields_of) => fields_of.iter().for_each(|(name, value)| {
            found.insert(name.clone());
            fields(value, found);
        }),
        Value::Array(values) => values.iter().for_each(|value| fields(value, found)),
        _ => {}
    }
}

fn json(world: &World, command: &str) -> Ended {
    let words: Vec<&str> = ["--format", "json"].into_iter().chain(command.split_whitespace()).collect();
    world.run(&words)
}

#[test]
fn every_answer_is_on_the_page() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/cli-json.md")).unwrap();
    let sections = sections(&page);
    let world = World::new();
    let holder = world.start_script(&[], "echo begun; exec sleep 60");
    holder.says("begun");
    let answered = [
        ("run", "run other -- true"),
        ("run", "run --no-wait job -- true"),
        ("inspect", "inspect job"),
        ("inspect", "inspect nothing"),
        ("ls", "ls"),
        ("force-release", "force-release --fence 99999 job"),
        ("force-release", "force-release --yes job"),
        ("doctor", "doctor"),
        ("ping", "ping"),
        ("queue push", "queue push --id bad --attempts 1 mails hello"),
        ("queue push", "queue push --id bad mails hello"),
        ("queue push", "queue push mails --key a --delay 1h hello"),
        ("queue stats", "queue stats"),
        ("queue stats", "queue stats mails"),
        ("queue list", "queue list mails"),
        ("queue peek", "queue peek mails"),
        ("queue peek", "queue peek mails nothing"),
        ("queue pause", "queue pause mails"),
        ("queue pause", "queue resume mails"),
        ("queue run", "queue run --drain mails -- false"),
        ("queue dead", "queue dead mails"),
        ("queue requeue", "queue requeue mails nothing"),
        ("queue dead-purge", "queue dead-purge --yes --all mails"),
        ("queue cancel", "queue cancel mails nothing"),
        ("queue cancel", "queue cancel mails #2"),
        ("queue purge", "queue purge --yes mails"),
        ("bench", "bench --for 20ms"),
    ];
    for (heading, command) in answered {
        let ended = json(&world, command);
        let values: Vec<Value> = ended.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(!values.is_empty(), "{command}: {ended:?}");
        let mut found = BTreeSet::new();
        values.iter().for_each(|value| fields(value, &mut found));
        let list = if heading == "queue peek" { "queue list" } else { heading };
        let listed = &sections[format!("tenure {list}").as_str()];
        for field in found {
            let known = listed.contains(field.as_str()) || sections["Everywhere"].contains(field.as_str());
            assert!(known, "{field} of {command} is not on the page");
        }
    }
}

#[test]
fn operators_get_objects() {
    let world = World::new();
    for (command, answer) in [
        ("queue pause mails", r#"{"queue":"mails","paused":true}"#),
        ("queue resume mails", r#"{"queue":"mails","paused":false}"#),
        ("queue push mails hello --id a", r#"{"outcome":"stored","id":"a"}"#),
        ("queue cancel mails a", r#"{"queue":"mails","id":"a","outcome":"removed"}"#),
        ("queue cancel mails a", r#"{"queue":"mails","id":"a","outcome":"not_found"}"#),
        ("queue peek mails a", "null"),
        ("queue push mails hello", r##"{"outcome":"stored","id":"#2"}"##),
        ("queue purge --yes mails", r#"{"queue":"mails","removed":1}"#),
        ("queue requeue mails a", r#"{"queue":"mails","requeued":0}"#),
        ("queue dead-purge --yes --all mails", r#"{"queue":"mails","removed":0}"#),
    ] {
        let ended = json(&world, command);
        assert_eq!(ended.out.trim_end(), answer, "{command}: {ended:?}");
    }
}

#[test]
fn failures_are_objects_too() {
    let world = World::new();
    let away = World::on("redis://127.0.0.1:1/");
    for (world, command, exit, text) in [
        (&away, "ls", 69, "unavailable"),
        (&away, "queue stats", 69, "unavailable"),
        (&world, "inspect --name-hex 0g", 64, "two hexadecimal digits"),
        (&world, "queue cancel mails #x", 64, "an id that begins with #"),
        (&world, "frobnicate", 64, "frobnicate"),
        (&world, "run --ttl 10 job -- true", 64, "has no unit"),
    ] {
        let ended = json(world, command);
        let error = ended.json()["error"].clone();
        assert_eq!((ended.code, error["exit"].as_i64()), (Some(exit), Some(exit.into())), "{command}: {ended:?}");
        assert!(error["text"].as_str().unwrap().contains(text), "{command}: {ended:?}");
        assert!(ended.err.contains("error:") && ended.err.contains(text), "for people as well: {ended:?}");
    }
    assert_eq!(world.run(&["frobnicate", "--", "--format", "json"]).out, "", "these are words of a program");
}

/// Names and ids that cannot be printed come with digits, which can be given back.
#[test]
fn what_cannot_be_printed_can_be_given_back() {
    let world = World::new();
    let bytes = |bytes: &'static [u8]| OsStr::from_bytes(bytes);
    let words = |text: &'static str| text.split(' ').map(OsStr::new).collect::<Vec<_>>();
    let push = [words("queue push --id"), vec![bytes(b"\xff\n"), bytes(b"m\xfe")], words("hello")];
    assert_eq!(world.run(&push.concat()).code, Some(0));
    let stats = json(&world, "queue stats").json();
    assert_eq!((&stats["queue"], &stats["queue_hex"]), (&"m\\xfe".into(), &"6dfe".into()));
    let listed = json(&world, "queue list --name-hex 6dfe").json();
    assert_eq!((&listed["id"], &listed["id_hex"]), (&"\\xff\\n".into(), &"ff0a".into()));
    let cancelled = json(&world, "queue cancel --name-hex --id-hex 6dfe ff0a").json();
    assert_eq!(cancelled["outcome"], "removed");

    let run = [words("run"), vec![bytes(b"j\xff")], words("-- sh -c"), vec![OsStr::new("echo begun; exec sleep 60")]];
    let holder = Running::of(&mut world.command(&run.concat()));
    holder.says("begun");
    let seen = json(&world, "inspect --name-hex 6aff").json();
    assert_eq!((&seen["name"], &seen["name_hex"], &seen["held"]), (&"j\\xff".into(), &"6aff".into(), &true.into()));
    let busy = json(&world, "run --no-wait --name-hex 6aff true").json();
    assert_eq!((&busy["name"], &busy["name_hex"]), (&"j\\xff".into(), &"6aff".into()));
    let freed = json(&world, "force-release --yes --name-hex 6aff").json();
    assert_eq!((&freed["outcome"], &freed["name_hex"]), (&"released".into(), &"6aff".into()));
}

/// A user's `#1` is another message than the first one without a name.
#[test]
fn an_id_that_looks_like_a_number_is_distinguished() {
    let world = World::new();
    assert_eq!(world.run(&["queue", "push", "--id", "#1", "mails", "named"]).out, "stored ##1\n");
    assert_eq!(world.run(&["queue", "push", "mails", "numbered"]).out, "stored #2\n");
    assert_eq!(world.run(&["queue", "peek", "mails", "#1"]).code, Some(1));
    assert_eq!(world.run(&["queue", "peek", "mails", "##1"]).out, "named");
    assert_eq!(world.run(&["queue", "peek", "mails", "#2"]).out, "numbered");
    assert_eq!(world.run(&["queue", "cancel", "mails", "##1"]).code, Some(0));
}
