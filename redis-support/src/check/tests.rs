//! Which servers are fit, by their own reports and by the rights that are tried there, and which of several is not.

use std::sync::{Arc, Mutex};

use super::*;
use crate::config::{RedisConfig, Topology};
use crate::link::fake_server::{Scene, called, fit, server, slot_map};
use crate::script::Reply;

fn looked(info: &str, eviction: Eviction) -> Result<Notes> {
    let mut notes = Notes::default();
    look(info, Placement::OneServer, eviction, Replicas::Refused, &mut notes).map(|()| notes)
}

#[test]
fn unfit_servers_are_refused_by_name() {
    for (info, word) in [
        ("redis_version:6.0.16\r\n", "6.0.16"),
        ("redis_mode:cluster\r\n", "cluster"),
        ("server_mode:cluster\r\n", "cluster"),
        ("redis_mode:sentinel\r\n", "sentinel"),
        ("server_mode:sentinel\r\n", "sentinel"),
        ("role:slave\r\n", "replica"),
        ("maxmemory:0\r\nmaxmemory_policy:volatile-lru\r\n", "volatile-lru"),
    ] {
        let error = looked(info, Eviction::Refuse).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Misconfigured);
        assert!(error.message().contains(word), "{error}");
    }
}

#[test]
fn fit_servers_pass_and_leave_their_version() {
    let info = "# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\nrole:master\r\n";
    let notes = looked(info, Eviction::Refuse).unwrap();
    assert_eq!((notes.server_version(), notes.remarks().len()), (Some("7.0.15"), 0));
    let valkey = "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2\r\n";
    assert!(
        has_delifeq(valkey) && !has_delifeq(info) && !has_delifeq("redis_version:9.0.0\r\nvalkey_version:8.1.4\r\n")
    );
    assert_eq!(looked(valkey, Eviction::Refuse).unwrap().server_version(), Some("Valkey 9.1.2"));
    assert_eq!(looked("redis_version:6.2.0\r\nrun_id:\r\n", Eviction::Refuse).unwrap().run_id(), None);
    assert_eq!(looked("run_id:7f\r\n", Eviction::Refuse).unwrap().run_id(), Some("7f"));
    assert_eq!(looked("maxmemory_policy:allkeys-lru\r\n", Eviction::Allow).unwrap().remarks().len(), 1);
}

// Over servers in memory: their answers to `INFO`, and the commands that they refuse when tried.

type Driver = crate::lock::Driver<Scene>;
type Answer = std::result::Result<Reply, ExecError>;

fn text(text: impl Into<Vec<u8>>) -> Reply {
    Reply::Bytes(text.into())
}

/// The answer of the script of rights, with these refusals.
fn refused(refusals: &[(&str, &str)]) -> Answer {
    Ok(Reply::Array(refusals.iter().flat_map(|(command, reported)| [text(*command), text(*reported)]).collect()))
}

/// A driver over these servers, of a cluster if they are two. Only the last of them answers so, by the name of the command.
async fn connected(
    servers: &[&str],
    answer: impl Fn(&str) -> Option<Answer> + Send + Sync + 'static,
) -> (Scene, Result<Driver>) {
    let (fake_server, [a, b]) = (Scene::new(), ["a", "b"].map(server));
    let odd = server(servers.last().unwrap());
    fake_server.answers(move |at, command| {
        let by_name = called(command).map_or(command, |call| call.script);
        match answer(by_name.split(' ').next().unwrap()) {
            Some(answer) if *at == odd => answer,
            _ if command == "CLUSTER SLOTS" => Ok(slot_map(&[(&a, 8_000), (&b, 8_384)])),
            _ => Ok(fit(command).unwrap_or_else(|| panic!("{command}"))),
        }
    });
    let topology = match servers {
        [one] => Topology::Single(server(one)),
        all => Topology::Cluster(all.iter().map(|name| server(name)).collect()),
    };
    let locks = Driver::connect_on(fake_server.clone(), RedisConfig::new(topology)).await;
    (fake_server, locks)
}

const DENIED: &str = "-ERR The user executing the script can't run this command or subcommand";
const NO_KEYS: &str = "-NOPERM this user has no permissions to access one of the keys used as arguments";

#[tokio::test(start_paused = true)]
async fn a_right_that_is_missing_is_named_with_its_rule_and_its_server() {
    let commands = [("GET", DENIED), ("HSET", DENIED), ("GET", DENIED), ("SET", "-OOM no memory")];
    let keys = [("GET", NO_KEYS)];
    let channel = [("PUBLISH", "-NOPERM no permissions to access one of the channels used as arguments")];
    let replica = [("SET", "-READONLY You can't write against a read only replica.")];
    let both = "the user has no right to run get, hset; the rules needed are +get +hset";
    for (refusals, kind, word) in [
        (&commands[..], ErrorKind::Denied, both),
        (&keys, ErrorKind::Denied, "~tenure:*"),
        (&channel, ErrorKind::Denied, "&tenure:*"),
        (&replica, ErrorKind::Misconfigured, "read-only replica"),
    ] {
        for servers in [&["a"][..], &["a", "b"]] {
            let answer = refused(refusals);
            let (_, locks) = connected(servers, move |name| (name == "rights").then(|| answer.clone())).await;
            let error = locks.unwrap_err();
            assert!(error.kind() == kind && error.message().contains(word), "{error}");
            assert_eq!(error.message().contains("b:1"), servers.len() == 2, "{error}");
        }
    }
    for (refusal, kind) in [
        ("READONLY You can't write against a read only replica.", ErrorKind::Misconfigured),
        ("NOPERM no permissions to run the 'evalsha' command", ErrorKind::Denied),
        ("LOADING x", ErrorKind::Unavailable),
    ] {
        // The first is called by its source, the second by its digest: each needs a right of its own.
        for turn in 0..2 {
            let calls = Arc::new(Mutex::new(0));
            let answer = move |name: &str| {
                let mut calls = calls.lock().unwrap();
                *calls += i32::from(name == "rights");
                (name == "rights" && *calls > turn).then(|| Err(ExecError::refused(refusal)))
            };
            assert_eq!(connected(&["a"], answer).await.1.unwrap_err().kind(), kind, "{refusal} {turn}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_refused_for_another_reason_is_remarked_once_and_of_a_cluster_with_the_server() {
    let oom = "-OOM no memory";
    for (servers, remark) in [
        (&["a"][..], "set was refused when it was tried: -OOM no memory"),
        (&["a", "b"], "b:1: set was refused when it was tried: -OOM no memory"),
    ] {
        let answer = move |name: &str| (name == "rights").then(|| refused(&[("SET", oom), ("SET", oom)]));
        let (_, locks) = connected(servers, answer).await;
        assert_eq!(locks.unwrap().notes().remarks(), [remark]);
    }
    let withheld = |name: &str| (name == "INFO").then(|| Err(ExecError::refused("ERR unknown command 'info'")));
    let notes = connected(&["a"], withheld).await.1.unwrap().notes().clone();
    let reported = "info is denied or unknown: version, role and eviction policy were not checked";
    assert_eq!((notes.remarks(), notes.server_version(), notes.run_id()), (&[reported.to_owned()][..], None, None));
    for (error, kind) in [
        (ExecError::refused("LOADING x"), ErrorKind::Unavailable),
        (ExecError::SentUnknown { message: "cut".into(), source: None }, ErrorKind::Unavailable),
        (ExecError::refused("NOAUTH x"), ErrorKind::Denied),
    ] {
        let answer = move |name: &str| (name == "INFO").then(|| Err(error.clone()));
        assert_eq!(connected(&["a"], answer).await.1.unwrap_err().kind(), kind);
    }
}

#[tokio::test(start_paused = true)]
async fn releases_are_one_command_where_every_server_has_it_and_lets_the_user_run_it() {
    const VALKEY: &str = "valkey_version:9.0.0\r\n";
    let probed = async |servers: &'static [&'static str], info: &'static str, answer: Answer| {
        let answer = move |name: &str| match name {
            "INFO" => Some(Ok(text(info))),
            "DELIFEQ" => Some(answer.clone()),
            _ => None,
        };
        let (fake_server, locks) = connected(servers, answer).await;
        let tries = fake_server.sent_that_begin("DELIFEQ ");
        (tries, locks.map(|locks| (locks.notes().deletes_equal(), locks.notes().remarks().len())))
    };
    assert!(matches!(probed(&["a"], VALKEY, Ok(Reply::Int(0))).await, (1, Ok((true, 0)))));
    assert!(matches!(probed(&["a"], "redis_version:9.0.0\r\n", Ok(Reply::Int(0))).await, (0, Ok((false, 0)))));
    assert!(matches!(probed(&["a", "b"], VALKEY, Ok(Reply::Int(0))).await, (0, Ok((false, 0)))), "a has it not");
    let denied = || Err(ExecError::refused("NOPERM no permissions to run the 'delifeq' command"));
    assert!(matches!(probed(&["a"], VALKEY, denied()).await, (1, Ok((false, 1)))));
    assert!(matches!(probed(&["a"], VALKEY, Err(ExecError::refused("OOM x"))).await, (1, Ok((false, 0)))));
    let cut = ExecError::SentUnknown { message: "cut".into(), source: None };
    assert!(matches!(probed(&["a"], VALKEY, Err(cut)).await, (1, Err(_))));
}
