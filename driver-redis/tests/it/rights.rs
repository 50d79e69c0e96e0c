//! The least rights that the driver works with, and what is said when one is missing.

use crate::common::queue::{
    ack, because, key, known_as, lease, message, named, one, push, queue, receive, settle, up_to,
};
use crate::common::{
    Client, LONG, PLACES, Server, attempt, commands, entry, hold, keys, server, ttl, user, waiter, woken,
};
use tenure_core::driver::{
    DeadSelection, Delay, DelayQueueExt as _, Extension, Handing, Queueing, ReentrantHold, Settled, Settlement,
};
use tenure_core::{ErrorKind, OwnerId};
use tenure_redis::RedisDriver;
use tenure_testkit::eventually;

#[tokio::test]
async fn every_operation_works_with_the_documented_rights() {
    let server = server();
    let client = Client::at(&user(&server, &PLACES, &commands())).await;
    let owner = OwnerId::new();
    let (plain, next, outer, inner) = (attempt("a"), waiter("a"), attempt("r"), attempt("r"));
    client.grant(&plain).await;
    let mut watch = client.watch(&next).await;
    client.busy(&next).await;
    client.locks.inspect(&next.name).await.unwrap();
    client.locks.renew(ttl(60_000), &[hold(&plain)]).await.remove(0).unwrap();
    client.locks.release(&hold(&plain)).await.unwrap();
    assert!(woken(&mut watch).await);
    client.locks.abandon(&hold(&next)).await.unwrap();
    client.locks.force_release(&next.name, None).await.unwrap();
    let grant = client.enter(&owner, &outer).await;
    client.enter(&owner, &inner).await;
    client.busy(&waiter("r")).await;
    client.locks.inspect(&outer.name).await.unwrap();
    let held = ReentrantHold::new(outer.name.clone(), owner, grant.fence);
    client.reentrant.renew(ttl(60_000), &[held]).await.remove(0).unwrap();
    client.reentrant.abandon(&entry(&owner, &inner)).await.unwrap();
    client.reentrant.exit(&entry(&owner, &outer)).await.unwrap();
}

#[tokio::test]
async fn every_operation_of_queues_works_with_the_documented_rights() {
    let server = server();
    let client = Client::at(&user(&server, &PLACES, &commands())).await;
    let (q, jobs) = (&*client.queues, queue("jobs"));
    let mut watch = q.watch(&jobs).await.unwrap();
    let keyed = |text| message(text, 0).with_key(key("k"));
    let named_one = known_as("name", 60_000, message("named", 0));
    let batch = [keyed("a"), keyed("b"), named_one, known_as("later", 0, message("", 60_000))];
    q.push(&jobs, &batch).await.unwrap();
    assert!(woken(&mut watch).await);
    let received = receive(q, &jobs, 9).await.deliveries;
    assert_eq!(received.len(), 2);
    let retry = Settlement::Retry { after: Delay::ZERO, reason: because("x") };
    assert_eq!(settle(q, &jobs, received[0].receipt, retry).await, Settled::Done);
    assert_eq!(ack(q, &jobs, &received[1]).await, Settled::Done);
    let held = one(q, &jobs).await;
    q.extend(&jobs, &[Extension::new(held.receipt, lease(60_000))]).await.unwrap();
    let dead = Settlement::Dead { reason: None };
    assert_eq!(settle(q, &jobs, held.receipt, dead).await, Settled::Dead);
    assert_eq!(q.dead_list(&jobs, None, 9).await.unwrap().letters.len(), 1);
    q.dead_redrive(&jobs, &DeadSelection::Oldest(9), Delay::ZERO).await.unwrap();
    q.dead_purge(&jobs, &DeadSelection::Oldest(9)).await.unwrap();
    q.reschedule(&jobs, &named("later"), Delay::ZERO).await.unwrap();
    q.get(&jobs, &named("later")).await.unwrap().unwrap();
    q.cancel(&jobs, &named("later")).await.unwrap();
    q.pause(&jobs).await.unwrap();
    assert_eq!(q.list_queues(None, 9).await.unwrap().queues, std::slice::from_ref(&jobs));
    q.resume(&jobs).await.unwrap();
    assert_eq!(q.stats(&jobs).await.unwrap().ready, 2);
    assert_eq!(q.purge(&jobs, 9, None).await.unwrap().removed, 2);
}

#[tokio::test]
async fn a_right_that_a_queue_needs_and_loses_is_named() {
    let server = server();
    let client = Client::at(&user(&server, &PLACES, &commands())).await;
    let (q, jobs) = (&*client.queues, queue("jobs"));
    push(q, &jobs, message("a", 0)).await;
    for (rule, word) in [("-zadd", "+zadd"), ("-time", "+time"), ("~other:*", "~tenure:*")] {
        let rules: &[&str] = if rule.starts_with('~') { &["resetkeys", rule] } else { &[rule] };
        server.cli(&[&["ACL", "SETUSER", "u"], rules].concat()).unwrap();
        let errors =
            [q.push(&jobs, &[message("b", 0)]).await.unwrap_err(), q.receive(&up_to(&jobs, 1)).await.unwrap_err()];
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::Denied, "{rule}: {error}");
            assert!(error.message().contains(word), "{rule}: {error}");
        }
        server.cli(&[&["ACL", "SETUSER", "u", "resetkeys"], &PLACES[..2], &["+zadd", "+time"]].concat()).unwrap();
    }
    assert_eq!(one(q, &jobs).await.payload.as_bytes(), b"a", "a refused script did nothing");
}

#[tokio::test]
async fn each_missing_command_is_named() {
    let server = server();
    for missing in commands() {
        let rest: Vec<&str> = commands().into_iter().filter(|command| *command != missing).collect();
        let url = user(&server, &PLACES, &rest);
        let outcome = RedisDriver::connect(&url).await;
        if ["+ping", "+info"].contains(&missing) {
            assert!(outcome.is_ok(), "{missing} is optional: a refused ping is an answer too");
            continue;
        }
        let error = outcome.expect_err(missing);
        assert_eq!(error.kind(), ErrorKind::Denied, "{missing}: {error}");
        assert!(error.message().contains(missing), "{missing}: {error}");
    }
}

#[tokio::test]
async fn what_could_not_be_checked_is_noted() {
    let server = server();
    let rest: Vec<&str> = commands().into_iter().filter(|command| *command != "+info").collect();
    let driver = RedisDriver::connect(&user(&server, &PLACES, &rest)).await.unwrap();
    assert!(driver.notes().remarks()[0].contains("info"), "{:?}", driver.notes());
    let driver = RedisDriver::connect(&user(&server, &PLACES, &commands())).await.unwrap();
    assert!(driver.notes().remarks().is_empty(), "{:?}", driver.notes());
    assert!(driver.notes().server_version().is_some());
}

#[tokio::test]
async fn only_the_list_of_held_locks_needs_the_right_to_scan() {
    let server = server();
    let url = user(&server, &PLACES, &commands());
    let client = tenure_core::Client::new(RedisDriver::connect(&url).await.unwrap());
    let _guard = client.lock("jobs/a").acquire().await.unwrap();
    let mut held = client.held_locks("jobs/");
    let error = held.next().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(error.message().contains("+scan"), "{error}");
    server.cli(&["ACL", "SETUSER", "u", "+scan"]).unwrap();
    assert_eq!(held.next().await.unwrap().unwrap().name.as_bytes(), b"jobs/a", "asked for again");
}

/// Keys that somebody else keeps under the prefix, and a foreign client's lock.
#[tokio::test]
async fn the_list_leaves_out_what_is_no_lock() {
    let server = server();
    let client = tenure_core::Client::new(RedisDriver::connect(&server.url()).await.unwrap());
    let _guard = client.lock("a").acquire().await.unwrap();
    server.cli(&["RPUSH", "tenure:list", "x"]).unwrap();
    server.cli(&["PEXPIRE", "tenure:list", "60000"]).unwrap();
    server.cli(&["SET", "tenure:%zz", "x", "PX", "60000"]).unwrap();
    server.cli(&["SET", "tenure:foreign", "x", "PX", "60000"]).unwrap();
    let (mut held, mut seen) = (client.held_locks(""), std::collections::BTreeMap::new());
    while let Some(lock) = held.next().await.unwrap() {
        seen.insert(lock.name.to_string(), lock.holder);
    }
    assert_eq!(seen.keys().collect::<Vec<_>>(), ["a", "foreign"]);
    assert!(seen["a"].fence.is_some() && seen["foreign"].fence.is_none() && seen["foreign"].remaining.is_some());
}

#[tokio::test]
async fn missing_keys_and_channels_are_named() {
    let server = server();
    for missing in PLACES {
        let rest: Vec<&str> = PLACES.into_iter().filter(|place| *place != missing).collect();
        let error = RedisDriver::connect(&user(&server, &rest, &commands())).await.expect_err(missing);
        assert_eq!(error.kind(), ErrorKind::Denied, "{missing}: {error}");
        assert!(error.message().contains(missing), "{missing}: {error}");
    }
}

#[tokio::test]
async fn a_right_that_is_taken_away_later_is_named_and_not_taken_for_contention() {
    let server = server();
    let client = Client::at(&user(&server, &PLACES, &commands())).await;
    let owner = OwnerId::new();
    let (plain, outer) = (attempt("a"), attempt("r"));
    client.grant(&plain).await;
    client.enter(&owner, &outer).await;
    let take = |rule: &str| server.cli(&["ACL", "SETUSER", "u", rule]).unwrap();
    let expect = |error: tenure_core::Error, word: &str| {
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert!(error.message().contains(word), "{word}: {error}");
    };
    take("-get");
    expect(client.locks.acquire(&attempt("a")).await.unwrap_err(), "+get");
    expect(client.locks.release(&hold(&plain)).await.unwrap_err(), "+get");
    expect(client.locks.abandon(&hold(&plain)).await.unwrap_err(), "+get");
    take("-mget");
    expect(client.locks.renew(ttl(60_000), &[hold(&plain)]).await.remove(0).unwrap_err(), "+mget");
    take("-hget");
    expect(client.reentrant.exit(&entry(&owner, &outer)).await.unwrap_err(), "+hget");
    take("-hmget");
    expect(client.reentrant.enter(&owner, &outer).await.unwrap_err(), "+hmget");
    take("-evalsha");
    expect(client.locks.release(&hold(&plain)).await.unwrap_err(), "+evalsha");
}

#[tokio::test]
async fn without_the_right_to_let_keys_end_no_key_stays() {
    let server = server();
    let client = Client::at(&user(&server, &PLACES, &commands())).await;
    client.grant(&attempt("held")).await;
    server.cli(&["ACL", "SETUSER", "u", "-pexpire"]).unwrap();
    let direct = Queueing::Join { presence: LONG, accepts: Handing::Direct };
    let errors = [
        client.reentrant.enter(&OwnerId::new(), &attempt("free")).await.unwrap_err(),
        client.locks.acquire(&attempt("held").with_queue(direct)).await.unwrap_err(),
        client.reentrant.enter(&OwnerId::new(), &waiter("held")).await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert!(error.message().contains("+pexpire") && !error.was_not_applied(), "{error}");
    }
    assert_eq!(keys(&server), ["tenure:held", "tenure:{fence}"]);
}

/// A script that is refused its last command has made the entry before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_script_did_before_it_was_refused_a_command_is_undone() {
    let server = server();
    let url = user(&server, &PLACES, &commands());
    let client = tenure_core::Client::new(RedisDriver::connect(&url).await.unwrap());
    let owner = OwnerId::new();
    let outer = client.reentrant("r", &owner).ttl(LONG).acquire().await.unwrap();
    server.cli(&["ACL", "SETUSER", "u", "-zrem"]).unwrap(); // what an entry does once it is made
    let inner = client.reentrant("r", &owner).acquire().await;
    assert_eq!(inner.unwrap_err().kind(), ErrorKind::Denied);
    server.cli(&["ACL", "SETUSER", "u", "+zrem"]).unwrap();
    eventually("the entry to be undone", || (depth(&server) == 1).then_some(())).unwrap();
    assert_eq!(outer.release().await.unwrap(), 0);
}

/// How many entries the lock `r` has.
fn depth(server: &Server) -> i64 {
    server.cli(&["HLEN", "tenure:r"]).unwrap().int().unwrap() - 4
}

#[test]
fn the_documented_rules_are_these() {
    let readme = include_str!("../../README.md");
    for rule in commands().into_iter().chain(PLACES) {
        assert!(readme.contains(rule), "{rule}");
    }
}

/// Redis 6.2 gives a new user all channels, unless it is told otherwise; a rule for some of them is refused then.
#[tokio::test]
async fn the_documented_line_is_accepted_where_new_users_may_use_all_channels() {
    let server =
        crate::common::server_with(tenure_testkit::RedisOptions::new().setting("acl-pubsub-default", "allchannels"));
    let readme = include_str!("../../README.md");
    let line = readme.split_once("ACL SETUSER locks ").and_then(|(_, rest)| rest.split_once("```")).unwrap().0;
    let words: Vec<&str> = ["ACL", "SETUSER", "locks"].into_iter().chain(line.split_whitespace()).collect();
    server.cli(&words).unwrap();
    let client = Client::at(&format!("redis://locks:password@127.0.0.1:{}", server.port())).await;
    client.grant(&attempt("a")).await;
}
