//! Scripts as functions of the server: when they are used, and what happens when they cannot be.

mod common;

use common::{
    Client, FUNCTION_RIGHTS, PLACES, all_calls, attempt, calls, commands, entry, hold, server, server_with, ttl, user,
    waiter, woken,
};
use tenure_core::driver::{ForceReleased, Released, Renewal, Renewed};
use tenure_core::{ErrorKind, OwnerId};
use tenure_redis_support::SCRIPTS;
use tenure_testkit::{RedisOptions, RedisServer, eventually};

/// The libraries that the server has.
fn libraries(server: &RedisServer) -> Vec<String> {
    let list = server.cli(&["FUNCTION", "LIST"]).unwrap();
    let mut names: Vec<String> = list.items().iter().map(|library| library.items()[1].text()).collect();
    names.sort();
    names
}

/// Makes every function known.
fn load_all(server: &RedisServer) {
    for script in SCRIPTS.iter() {
        let loaded = server.cli(&["FUNCTION", "LOAD", "REPLACE", &script.library()]).unwrap();
        assert_eq!(loaded.text(), script.function(), "{}", script.name());
    }
}

/// How scripts were sent since the statistics were reset: as functions, by digest, whole; and loaded.
fn ways(server: &RedisServer) -> [u64; 4] {
    ["fcall", "evalsha", "eval", "function|load"].map(|command| calls(server, command))
}

fn reset(server: &RedisServer) {
    server.cli(&["CONFIG", "RESETSTAT"]).unwrap();
}

#[tokio::test]
async fn a_function_is_loaded_when_it_is_missed_and_serves_every_client() {
    let server = server();
    let client = Client::of(&server).await;
    assert_eq!(libraries(&server), [""; 0], "connecting loads nothing");
    reset(&server);
    let mine = attempt("a");
    client.grant(&mine).await;
    assert_eq!(ways(&server), [2, 0, 0, 1], "missed, loaded, called");
    assert_eq!(client.locks.release(&hold(&mine)).await.unwrap(), Released::Released);
    let known = libraries(&server);
    let of = |name: &str| SCRIPTS.iter().find(|script| script.name() == name).unwrap().function().to_owned();
    assert_eq!(known, [of("acquire"), of("release")]);

    let other = Client::of(&server).await;
    reset(&server);
    let theirs = attempt("a");
    other.grant(&theirs).await;
    other.locks.release(&hold(&theirs)).await.unwrap();
    assert_eq!(ways(&server), [2, 0, 0, 0]);

    server.cli(&["FUNCTION", "FLUSH"]).unwrap();
    other.grant(&theirs).await;
    assert_eq!(libraries(&server), [of("acquire")], "forgotten functions are loaded again");
}

#[tokio::test]
async fn a_restart_keeps_functions_and_a_replica_has_them() {
    let mut server = server_with(RedisOptions::new().append_only());
    let client = Client::of(&server).await;
    client.grant(&attempt("a")).await;
    let known = libraries(&server);
    assert_eq!(known.len(), 1);
    let primary = server.port().to_string();
    let replica = server_with(RedisOptions::new().words(&["--replicaof", "127.0.0.1", &primary]));
    eventually("the replica has the functions", || (libraries(&replica) == known).then_some(())).unwrap();
    server.kill().unwrap();
    server.restart().unwrap();
    assert_eq!(libraries(&server), known);
}

#[tokio::test]
async fn many_may_miss_a_function_at_once() {
    let server = server();
    let mut clients = Vec::new();
    for _ in 0..8 {
        clients.push(Client::of(&server).await);
    }
    let takes =
        clients.iter().enumerate().map(|(i, client)| async move { client.grant(&attempt(&format!("{i}"))).await });
    futures_util::future::join_all(takes).await;
    assert_eq!(libraries(&server).len(), 1);
    assert_eq!(
        calls(&server, "evalsha"),
        8,
        "one for each check of rights; that a library is there already is no failure"
    );
}

#[tokio::test]
async fn functions_can_be_declined() {
    let server = server();
    let client = Client::at(&format!("{}?functions=false", server.url())).await;
    reset(&server);
    let mine = attempt("a");
    client.grant(&mine).await;
    client.locks.release(&hold(&mine)).await.unwrap();
    assert_eq!(ways(&server), [0, 2, 2, 0]);
    assert_eq!(libraries(&server), [""; 0]);
}

#[tokio::test]
async fn who_may_not_use_functions_does_without_and_tries_once() {
    // A refused command is not counted as a call.
    for (rights, asked) in [(&[][..], [0, 2, 2, 0]), (&["+fcall"], [1, 2, 2, 0]), (&["+function|load"], [0, 2, 2, 0])] {
        let server = server();
        let client = Client::at(&user(&server, &PLACES, &[&*commands(), rights].concat())).await;
        reset(&server);
        let mine = attempt("a");
        client.grant(&mine).await;
        client.locks.release(&hold(&mine)).await.unwrap();
        assert_eq!(ways(&server), asked, "{rights:?}");
        assert_eq!(libraries(&server), [""; 0]);
        let log = server.cli(&["ACL", "LOG"]).unwrap();
        let denials: i64 = log.items().iter().map(|entry| entry.items()[1].int().unwrap()).sum();
        assert_eq!(denials, 1, "{rights:?}");
    }
}

#[tokio::test]
async fn a_server_without_the_commands_is_served() {
    for missing in [&["FCALL"][..], &["FUNCTION"], &["FCALL", "FUNCTION"]] {
        let mut options = RedisOptions::new();
        for command in missing {
            options = options.words(&["--rename-command", command, ""]);
        }
        let server = server_with(options);
        let client = Client::of(&server).await;
        for _ in 0..2 {
            let mine = attempt("a");
            client.grant(&mine).await;
            client.locks.release(&hold(&mine)).await.unwrap();
        }
        let [_, evalsha, eval, _] = ways(&server);
        assert_eq!((evalsha, eval), (5, 3), "{missing:?}: with those of the check at the start");
    }
}

#[tokio::test]
async fn a_right_that_a_function_lacks_is_named() {
    let server = server();
    load_all(&server);
    let client = Client::at(&user(&server, &PLACES, &[commands(), FUNCTION_RIGHTS.to_vec()].concat())).await;
    let (owner, plain, outer) = (OwnerId::new(), attempt("a"), attempt("r"));
    client.grant(&plain).await;
    client.enter(&owner, &outer).await;
    reset(&server);
    let take = |rule: &str| server.cli(&["ACL", "SETUSER", "u", rule]).unwrap();
    let expect = |error: tenure_core::Error, word: &str| {
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert!(error.message().contains(word), "{word}: {error}");
    };
    take("-get");
    expect(client.locks.release(&hold(&plain)).await.unwrap_err(), "+get");
    take("-time");
    expect(client.locks.acquire(&attempt("b")).await.unwrap_err(), "+time");
    take("-mget");
    let renewal = Renewal { hold: hold(&plain), ttl: ttl(60_000) };
    expect(client.locks.renew(&[renewal]).await.remove(0).unwrap_err(), "+mget");
    take("-hget");
    expect(client.reentrant.exit(&entry(&owner, &outer)).await.unwrap_err(), "+hget");
    assert_eq!(ways(&server), [4, 0, 0, 0], "what a function lacks, a script lacks as well");
}

#[tokio::test]
async fn a_server_that_takes_no_writes_still_lets_go() {
    for (setting, forbids, asked) in [("maxmemory", "1", 0), ("min-replicas-to-write", "3", 0)] {
        let server = server();
        load_all(&server);
        let client = Client::of(&server).await;
        let (mine, next) = (attempt("a"), waiter("a"));
        client.grant(&mine).await;
        let mut watch = client.watch(&next).await;
        client.busy(&next).await;
        server.cli(&["CONFIG", "SET", setting, forbids]).unwrap();
        reset(&server);
        assert!(client.locks.inspect(&mine.name).await.unwrap().holder.is_some());
        assert_eq!(ways(&server), [asked, 1, 1, 0], "{setting}: refused unread, and read as a script");
        let error = client.locks.acquire(&attempt("b")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{setting}: {error}");
        if setting == "maxmemory" {
            let renewal = Renewal { hold: hold(&mine), ttl: ttl(60_000) };
            let renewed = client.locks.renew(&[renewal]).await.remove(0).unwrap();
            assert!(matches!(renewed, Renewed::Extended { .. }), "{renewed:?}");
            assert_eq!(client.locks.release(&hold(&mine)).await.unwrap(), Released::Released);
            assert!(woken(&mut watch).await, "the turn is given");
        }
        server.cli(&["CONFIG", "SET", setting, "0"]).unwrap();
        assert_eq!(
            client.locks.force_release(&attempt("b").name, None).await.unwrap(),
            ForceReleased::NotHeld,
            "{setting}"
        );
    }
}

#[tokio::test]
async fn a_refusal_inside_a_function_is_the_answer() {
    let server = server();
    load_all(&server);
    let client = Client::of(&server).await;
    let mine = attempt("a");
    server.cli(&["FUNCTION", "DELETE", SCRIPTS[0].function()]).unwrap();
    assert_eq!(SCRIPTS[0].name(), "acquire");
    // A function of that name that has written before it is refused.
    let name = SCRIPTS[0].function();
    let body = "redis.call('INCR', 'tenure:runs') return redis.call('SET', KEYS[1], string.rep('x', 9), 'nonsense')";
    let library = format!("#!lua name={name}\nredis.register_function('{name}', function(KEYS, ARGV) {body} end)");
    server.cli(&["FUNCTION", "LOAD", &library]).unwrap();
    reset(&server);
    let error = client.locks.acquire(&mine).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Indeterminate, "{error}");
    assert_eq!(server.cli(&["GETDEL", "tenure:runs"]).unwrap().text(), "1");
    assert_eq!(ways(&server), [1, 0, 0, 0], "{:?}", all_calls(&server));
}
