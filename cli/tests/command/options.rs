//! Arguments, messages and exit codes.

use crate::support::World;

#[test]
fn wrong_usage_is_64_and_says_what_is_wrong() {
    let world = World::new();
    for (args, word) in [
        (&["run", "--ttl", "10", "job", "--", "true"][..], "write 10s, 10m or 10ms"),
        (&["run", "job"], "PROGRAM"),
        (&["run", "--no-wait", "--wait", "1s", "job", "--", "true"], "cannot be used with"),
        (&["run", "--name-hex", "0g", "--", "true"], "two hexadecimal digits"),
        (&["run", "--ttl", "1s", "--term-before", "900ms", "job", "--", "true"], "more than half of the ttl"),
        (&["run", "--ttl", "1ms", "job", "--", "true"], "ttl"),
        (&["run", "", "--", "true"], "empty"),
        (&["frobnicate"], "frobnicate"),
    ] {
        let ended = world.run(args);
        assert_eq!(ended.code, Some(64), "{args:?}: {ended:?}");
        assert!(ended.err.contains(word), "{args:?}: {ended:?}");
        assert_eq!(ended.out, "");
    }
}

#[test]
fn a_wrong_url_is_78_and_a_server_that_is_not_there_69() {
    let world = World::new();
    for (url, code, word) in [
        ("nonsense", 78, "no scheme"),
        ("sqlite:locks.db?max_waiter=1", 78, "max_waiter"),
        ("redis://127.0.0.1:1/", 69, "unavailable"),
    ] {
        let mut command = world.command(&["--format", "json", "run", "job", "--", "true"]);
        let ended = crate::support::Running::of(command.env("TENURE_URL", url)).ended();
        assert_eq!(ended.code, Some(code), "{ended:?}");
        assert!(ended.err.contains(word), "{ended:?}");
        assert_eq!(ended.json()["outcome"], "failed");
    }
}

#[test]
fn a_password_is_neither_taken_from_an_argument_nor_repeated() {
    let world = World::new();
    let ended = world.run(&["--url", "redis://me:hunter2@127.0.0.1:1/", "run", "job", "--", "true"]);
    assert_eq!(ended.code, Some(64), "{ended:?}");
    assert!(ended.err.contains("TENURE_URL") && !ended.err.contains("hunter2"), "{ended:?}");
    let mut command = world.command(&["run", "job", "--", "true"]);
    let ended = crate::support::Running::of(command.env("TENURE_URL", "redis://me:hunter2@127.0.0.1:1/")).ended();
    assert_eq!(ended.code, Some(69), "{ended:?}");
    assert!(!ended.err.contains("hunter2"), "{ended:?}");
}

#[test]
fn without_a_url_the_file_of_the_user_is_the_backend() {
    let world = World::new();
    let mut command = world.command(&["run", "job", "--", "true"]);
    command.env_remove("TENURE_URL").env("XDG_STATE_HOME", world.file("state"));
    assert_eq!(crate::support::Running::of(&mut command).ended().code, Some(0));
    assert!(world.file("state/tenure/locks.db").exists());
}

#[test]
fn a_name_is_bytes() {
    let world = World::new();
    let ended = world.run(&["run", "--name-hex", "6a6f62", "--", "sh", "-c", "echo $TENURE_LOCK"]);
    assert_eq!(ended.out.trim(), "job");
    let ended = world.run(&["run", "--name-hex", "6a00", "--", "sh", "-c", "echo $TENURE_LOCK_HEX"]);
    assert_eq!(ended.out.trim(), "6a00");
}
