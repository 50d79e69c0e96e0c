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

/// As `flock`, `nice` and `env` take a program: what follows its name belongs to it.
#[test]
fn a_program_needs_no_dashes_before_it() {
    let world = World::new();
    for (words, out) in [
        ("run job echo --quiet -- --ttl x", "--quiet -- --ttl x"),
        ("run job -- echo --quiet -- x", "--quiet -- x"),
        ("run --ttl 5s job echo a", "a"),
        ("run job --ttl 5s echo a", "a"),
    ] {
        let ended = world.run(&words.split(' ').collect::<Vec<_>>());
        assert_eq!((ended.code, ended.out.trim()), (Some(0), out), "{words}: {ended:?}");
    }
    let misspelt = world.run(&["run", "job", "--no-weight", "true"]);
    assert_eq!(misspelt.code, Some(64), "no program has that name: {misspelt:?}");
    assert_eq!(world.run(&["queue", "push", "mails", "hello"]).code, Some(0));
    let drained = world.run(&["queue", "run", "--drain", "mails", "sh", "-c", "cat"]);
    assert_eq!((drained.code, &*drained.out), (Some(0), "hello"), "{drained:?}");
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
fn the_doctor_says_which_file_the_environment_means() {
    let world = World::new();
    let doctor = |state: Option<&str>, home: Option<&str>| {
        let mut command = world.command(&["doctor"]);
        command.env_remove("TENURE_URL").env_remove("XDG_STATE_HOME").env_remove("HOME");
        command.envs(state.map(|folder| ("XDG_STATE_HOME", world.file(folder))));
        command.envs(home.map(|folder| ("HOME", world.file(folder))));
        crate::support::Running::of(&mut command).ended()
    };
    for (state, home, file) in [
        (Some("state"), Some("home"), "state/tenure/locks.db"),
        (None, Some("home"), "home/.local/state/tenure/locks.db"),
    ] {
        let ended = doctor(state, home);
        let file = world.file(file).display().to_string();
        assert!(!ended.out.is_empty() && ended.out.lines().all(|line| line.contains(&file)), "{ended:?}");
    }
    let ended = doctor(None, None);
    assert_eq!(ended.code, Some(78), "{ended:?}");
    assert!(ended.err.contains("XDG_STATE_HOME") && ended.err.contains("sqlite:PATH"), "{ended:?}");
}

#[test]
fn a_name_is_bytes() {
    let world = World::new();
    let ended = world.run(&["run", "--name-hex", "6a6f62", "--", "sh", "-c", "echo $TENURE_LOCK"]);
    assert_eq!(ended.out.trim(), "job");
    let ended = world.run(&["run", "--name-hex", "6a00", "--", "sh", "-c", "echo $TENURE_LOCK_HEX"]);
    assert_eq!(ended.out.trim(), "6a00");
}

#[test]
fn a_url_whose_driver_was_left_out_says_how_to_install_it() {
    let built = [
        ("etcd://127.0.0.1:1/", cfg!(feature = "etcd"), "etcd"),
        ("fred+redis://127.0.0.1:1/", cfg!(feature = "fred"), "fred"),
        ("mysql://me@127.0.0.1:1/db", cfg!(feature = "mysql"), "mysql"),
        ("postgres://me@127.0.0.1:1/db", cfg!(feature = "postgres"), "postgres"),
        ("redis://127.0.0.1:1/", cfg!(feature = "redis"), "redis"),
    ];
    for (url, is_built, feature) in built {
        let ended = World::on(url).run(&["ls"]);
        let help = format!("cargo install --locked --path cli --features {feature}");
        assert_eq!(ended.code, Some(if is_built { 69 } else { 78 }), "{ended:?}");
        assert_eq!(ended.err.contains(&help), !is_built, "{ended:?}");
    }
}

/// `docs/configuration.md` has the table of these variables.
#[test]
fn every_setting_of_a_client_may_be_a_variable_and_arguments_win() {
    let world = World::new();
    let lease = |ttl: Option<&str>, args: &[&str]| {
        let script = "\"$TENURE_PROGRAM\" --format json inspect job";
        let mut command = world.command(&[&["run"], args, &["job", "--", "sh", "-c", script]].concat());
        command.env("TENURE_PROGRAM", env!("CARGO_BIN_EXE_tenure")).envs(ttl.map(|ttl| ("TENURE_TTL", ttl)));
        let ended = crate::support::Running::of(&mut command).ended();
        ended.json()["holder"]["remaining_ms"].as_u64().unwrap_or_else(|| panic!("{ended:?}"))
    };
    let secs = |from: u64, to: u64| from * 1000..=to * 1000;
    assert!(secs(10, 30).contains(&lease(None, &[])), "the default");
    assert!(secs(90, 120).contains(&lease(Some("2m"), &[])), "the variable");
    assert!(secs(40, 60).contains(&lease(Some("2m"), &["--ttl", "1m"])), "an argument");
    for (variable, value, word) in [
        ("TENURE_TTL", "10", "TENURE_TTL has no unit"),
        ("TENURE_OP_TIMEOUT", "1h", "TENURE_OP_TIMEOUT"),
        ("TENURE_PRESENCE", "x", "TENURE_PRESENCE"),
        ("TENURE_PARKED_TURN", "x", "TENURE_PARKED_TURN"),
        ("TENURE_DRIFT_RATE", "2", "TENURE_DRIFT_RATE"),
        ("TENURE_DRIFT_FIXED", "1h", "TENURE_DRIFT_FIXED"),
        ("TENURE_MAX_HOLDS", "0", "TENURE_MAX_HOLDS"),
        ("TENURE_HOLDERS_PER_GRANT", "65", "TENURE_HOLDERS_PER_GRANT"),
        ("TENURE_CONFIRMATION", "never", "TENURE_CONFIRMATION"),
    ] {
        let mut command = world.command(&["ls"]);
        let ended = crate::support::Running::of(command.env(variable, value)).ended();
        assert_eq!(ended.code, Some(78), "{variable}: {ended:?}");
        assert!(ended.err.contains(word), "{variable}: {ended:?}");
    }
    let mut command = world.command(&["man"]);
    let page = crate::support::Running::of(command.env("TENURE_TTL", "10")).ended();
    assert_eq!(page.code, Some(0), "the manual needs no backend");
}
