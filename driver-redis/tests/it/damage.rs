//! Damage by a foreign hand to the keys of locks and queues: it is told by the key's name, at once, and harms nobody else.

use std::time::Duration;

use crate::common::queue::{ack, message, one, payloads, push, queue, receive, up_to};
use crate::common::{Client, LONG, attempt, hold, server, waiter};
use tenure_core::driver::{
    DeadSelection, Delay, DelayQueue, DelayQueueExt as _, ForceReleased, Listed, Released, Renewed, Rest,
};
use tenure_core::queue::QueueLimits;
use tenure_core::{Error, ErrorKind, Result};
use tenure_testkit::{RedisServer, RespClient};

/// Puts a value of a type that none of these keys has.
fn another_type(server: &RedisServer, key: &str) {
    server.cli(&["DEL", key]).unwrap();
    server.cli(&["SETBIT", key, "0", "1"]).unwrap();
    if server.cli(&["TYPE", key]).unwrap().text() == "string" && has_text(key) {
        server.cli(&["DEL", key]).unwrap();
        server.cli(&["RPUSH", key, "foreign"]).unwrap();
    }
    server.cli(&["PEXPIRE", key, "600000"]).unwrap();
}

/// Whether the key holds a string by right.
fn has_text(key: &str) -> bool {
    [":{fence}", "}:f", "}:n"].iter().any(|end| key.ends_with(end))
}

#[track_caller]
fn is_named(error: &Error, key: &str) {
    assert_eq!(error.kind(), ErrorKind::Damaged, "{key}: {error}");
    assert!(error.message().contains(&format!("\"{key}\"")), "{key}: {error}");
}

async fn in_time<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, work).await.expect("reported in a bounded time")
}

#[tokio::test]
async fn a_lock_with_a_damaged_key_is_named_and_others_continue() {
    let server = server();
    let c = Client::of(&server).await;
    for (i, key) in ["{tenure:NAME}:q", "{tenure:NAME}:w", "{tenure:NAME}:a"].iter().enumerate() {
        let lock = format!("lock {i}").replace(' ', "-");
        let key = key.replace("NAME", &lock);
        let holder = attempt(&lock);
        c.grant(&holder).await;
        c.busy(&waiter(&lock)).await;
        another_type(&server, &key);
        let asking = waiter(&lock);
        if key.ends_with(":a") {
            // Nobody reads it but who ends a lease.
        } else {
            is_named(&c.locks.acquire(&asking).await.unwrap_err(), &key);
        }
        if let Err(error) = in_time(c.locks.release(&hold(&holder))).await {
            is_named(&error, &key);
            assert!(!error.was_not_applied());
        }
        c.grant(&attempt(&format!("neighbour-{i}"))).await;
        server.cli(&["DEL", &key]).unwrap();
        c.locks.force_release(&holder.name, None).await.unwrap();
        server.cli(&["DEL", &format!("{{tenure:{lock}}}:q")]).unwrap();
        c.grant(&attempt(&lock)).await;
    }
}

#[tokio::test]
async fn a_damaged_fence_counter_is_named_by_locks_of_both_kinds() {
    let server = server();
    let c = Client::of(&server).await;
    let key = "tenure:{fence}";
    let mut damages: Vec<Vec<&str>> =
        ["", "abc", "99999999999999999999", "nan", "1.5e300"].map(|value| vec!["SET", key, value]).into();
    damages.push(vec!["RPUSH", key, "foreign"]);
    for damage in damages {
        server.cli(&["DEL", key]).unwrap();
        server.cli(&damage).unwrap();
        is_named(&c.locks.acquire(&attempt("plain")).await.unwrap_err(), key);
        let owner = tenure_core::OwnerId::new();
        is_named(&c.reentrant.enter(&owner, &attempt("entered")).await.unwrap_err(), key);
    }
    server.cli(&["DEL", key]).unwrap();
    c.grant(&attempt("plain")).await;
}

/// Strings and hashes of others are their locks. Anything else is none: nobody waits for it, and who releases or renews has lost.
#[tokio::test]
async fn a_lock_of_another_type_is_damage_and_not_a_holder() {
    let server = server();
    let c = Client::of(&server).await;
    for damage in
        [&["RPUSH", "tenure:lock", "x"][..], &["SADD", "tenure:lock", "x"], &["ZADD", "tenure:lock", "1", "x"]]
    {
        server.cli(&["FLUSHALL"]).unwrap();
        let (held, owner) = (attempt("lock"), tenure_core::OwnerId::new());
        c.grant(&held).await;
        server.cli(&["DEL", "tenure:lock"]).unwrap();
        server.cli(damage).unwrap();
        is_named(&c.locks.acquire(&attempt("lock")).await.unwrap_err(), "tenure:lock");
        is_named(&c.locks.acquire(&waiter("lock")).await.unwrap_err(), "tenure:lock");
        is_named(&c.reentrant.enter(&owner, &attempt("lock")).await.unwrap_err(), "tenure:lock");
        is_named(&c.reentrant.enter(&owner, &waiter("lock")).await.unwrap_err(), "tenure:lock");
        is_named(&c.locks.inspect(&held.name).await.unwrap_err(), "tenure:lock");
        assert_eq!(crate::common::keys(&server), ["tenure:lock", "tenure:{fence}"], "nobody is in line");
        assert_eq!(c.locks.renew(held.ttl, &[hold(&held)]).await.remove(0).unwrap(), Renewed::Lost);
        assert_eq!(c.locks.release(&hold(&held)).await.unwrap(), Released::NotHeld);
        c.locks.abandon(&hold(&held)).await.unwrap();
        assert_eq!(c.locks.force_release(&held.name, None).await.unwrap(), ForceReleased::Released);
        c.grant(&attempt("lock")).await;
    }
}

/// A waiter's terms that nobody can read are as good as none: it is woken, and asks.
#[tokio::test]
async fn damaged_terms_of_a_waiter_stop_nobody() {
    let server = server();
    let c = Client::of(&server).await;
    let (holder, behind) = (attempt("lock"), waiter("lock"));
    c.grant(&holder).await;
    let mut watch = c.watch(&behind).await;
    c.busy(&behind).await;
    let member = server.cli(&["ZRANGE", "{tenure:lock}:q", "0", "0"]).unwrap().items()[0].text();
    server.cli(&["HSET", "{tenure:lock}:a", &member, "foreign"]).unwrap();
    server.cli(&["PEXPIRE", "{tenure:lock}:a", "60000"]).unwrap();
    c.locks.release(&hold(&holder)).await.unwrap();
    assert!(crate::common::woken(&mut watch).await);
    c.grant(&behind).await;
}

/// A re-entrant hold of which a part is gone is damaged, and can be ended.
#[tokio::test]
async fn a_reentrant_hold_that_was_cut_is_named() {
    let server = server();
    let c = Client::of(&server).await;
    let owner = tenure_core::OwnerId::new();
    for (damage, shown) in
        [(&["HDEL", "tenure:lock", "f"][..], ""), (&["HSET", "tenure:lock", "f", "foreign"], "\"foreign\"")]
    {
        let first = attempt("lock");
        c.enter(&owner, &first).await;
        server.cli(damage).unwrap();
        let error = c.reentrant.enter(&owner, &attempt("lock")).await.unwrap_err();
        is_named(&error, "tenure:lock");
        assert!(error.message().contains(shown), "{error}");
        c.locks.inspect(&first.name).await.unwrap();
        c.locks.force_release(&first.name, None).await.unwrap();
    }
}

#[tokio::test]
async fn a_damaged_queue_of_a_lock_fails_its_waiters() {
    let server = server();
    let config = tenure_redis::RedisConfig::from_url(&server.unix_url()).unwrap();
    let backend = tenure_core::driver::Backend::from(tenure_redis::RedisDriver::connect(config).await.unwrap());
    let client = tenure_core::Client::builder(backend).build().unwrap();
    let other = Client::of(&server).await;
    for end in ["q", "w"] {
        let lock = format!("lock-{end}");
        other.grant(&attempt(&lock)).await;
        let key = format!("{{tenure:{lock}}}:{end}");
        let waits = client.lock(lock.as_str());
        let waits = tokio::spawn(async move { waits.acquire().await.map(drop) });
        while server.cli(&["EXISTS", &key]).unwrap().int() != Some(1) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        another_type(&server, &key);
        is_named(&in_time(waits).await.unwrap().unwrap_err(), &key);
        server.cli(&["DEL", &key]).unwrap();
        other.locks.force_release(&crate::common::name(&lock), None).await.unwrap();
    }
}

/// Every operation of a queue; what failed.
async fn all_of_them(q: &dyn DelayQueue, jobs: &tenure_core::queue::QueueName) -> Vec<(&'static str, Error)> {
    let id = tenure_core::queue::MessageId::assigned(1);
    let known = crate::common::queue::named("known");
    let limits = QueueLimits::none().in_flight(5).unwrap();
    let mut failed = Vec::new();
    let mut note = |what, result: Result<()>| failed.extend(result.err().map(|error| (what, error)));
    note("push", q.push(jobs, &[message("new", 0)]).await.map(drop));
    note(
        "push known",
        q.push(jobs, &[crate::common::queue::known_as("known", 9_000, message("known", 0))]).await.map(drop),
    );
    note("get", q.get(jobs, &id).await.map(drop));
    note("list", q.list(jobs, Listed::Waiting, None, 9).await.map(drop));
    note("reschedule", q.reschedule(jobs, &known, Delay::ZERO).await.map(drop));
    note("receive", q.receive(&up_to(jobs, 100)).await.map(drop));
    note("cancel", q.cancel(jobs, &known).await.map(drop));
    note("stats", q.stats(jobs).await.map(drop));
    note("pause", q.pause(jobs).await);
    note("limit", q.limit(jobs, &limits).await);
    note("resume", q.resume(jobs).await);
    note("purge", q.purge(jobs, 100, None).await.map(drop));
    note("dead_list", q.dead_list(jobs, None, 9).await.map(drop));
    note("dead_redrive", q.dead_redrive(jobs, &DeadSelection::Oldest(9), Delay::ZERO).await.map(drop));
    note("dead_purge", q.dead_purge(jobs, &DeadSelection::Oldest(9)).await.map(drop));
    note("watch", q.watch(jobs).await.map(drop));
    failed
}

#[tokio::test]
async fn a_queue_with_a_key_of_another_type_is_named_and_others_continue() {
    let server = server();
    let q = Client::of(&server).await.queues;
    let (jobs, fine) = (queue("jobs"), queue("fine"));
    for suffix in "tmrodishjncl".chars() {
        server.cli(&["FLUSHALL"]).unwrap();
        let key = format!("{{tenure:dq:jobs}}:{suffix}");
        q.limit(&jobs, &QueueLimits::none().in_flight(5).unwrap()).await.unwrap();
        push(&*q, &jobs, message("waits", 0)).await;
        another_type(&server, &key);
        for (what, error) in in_time(all_of_them(&*q, &jobs)).await {
            assert!(error.message().contains("delete") || error.kind() != ErrorKind::Damaged, "{what}: {error}");
            is_named(&error, &key);
        }
        push(&*q, &fine, message("fine", 0)).await;
        assert!(in_time(q.list_queues(None, 9)).await.unwrap().queues.contains(&fine), "{key}");
        let delivery = one(&*q, &fine).await;
        ack(&*q, &fine, &delivery).await;
    }
    // The list of all queues.
    server.cli(&["FLUSHALL"]).unwrap();
    another_type(&server, "tenure:{dq}");
    is_named(&q.list_queues(None, 9).await.unwrap_err(), "tenure:{dq}");
}

/// What is no name of a queue is passed over in the list of queues, on whichever page.
#[tokio::test]
async fn a_name_that_cannot_be_read_hides_no_other_queue() {
    let server = server();
    let q = Client::of(&server).await.queues;
    let names = ["a", "b", "c", "z"].map(queue);
    for name in &names {
        push(&*q, name, message("waits", 0)).await;
    }
    let mut raw = RespClient::tcp(server.port()).unwrap();
    let long = vec![b'b'; 1000];
    for name in [&b""[..], b"a\x00b", b"b\xff", &long, b"\xff\xfe"] {
        raw.call(&[b"ZADD", &b"tenure:{dq}"[..], b"0", name]).unwrap();
    }
    for size in 1..9 {
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let page = q.list_queues(after, size).await.unwrap();
            assert!(page.queues.len() <= size);
            after = page.queues.last().cloned();
            seen.extend(page.queues);
            if page.rest == Rest::None {
                break;
            }
        }
        seen.retain(|name| names.contains(name));
        assert_eq!(seen, names, "by {size}");
    }
}

/// Nothing is handed out, and counted as an attempt, by a run that fails after that.
#[tokio::test]
async fn messages_do_not_age_while_their_queue_is_damaged() {
    let server = server();
    let q = Client::of(&server).await.queues;
    let jobs = queue("jobs");
    for suffix in "tmroihjncl".chars() {
        server.cli(&["FLUSHALL"]).unwrap();
        let key = format!("{{tenure:dq:jobs}}:{suffix}");
        q.limit(&jobs, &QueueLimits::none().in_flight(50).unwrap()).await.unwrap();
        push(&*q, &jobs, message("waits", 0)).await;
        let _watch = q.watch(&jobs).await.unwrap();
        let _ = server.cli(&["RENAME", &key, "{tenure:dq:jobs}:kept"]);
        another_type(&server, &key);
        for max in [1, 2] {
            if let Err(error) = q.receive(&up_to(&jobs, max)).await {
                is_named(&error, &key);
            } else {
                assert!(!"tmonc".contains(suffix), "{key}");
            }
        }
        server.cli(&["DEL", &key]).unwrap();
        let _ = server.cli(&["RENAME", "{tenure:dq:jobs}:kept", &key]);
        if "tmonc".contains(suffix) {
            let again = receive(&*q, &jobs, 9).await.deliveries;
            assert_eq!(payloads(&again), ["waits"], "{key}");
            assert_eq!(again[0].attempt, 1, "{key}");
        }
    }
}

#[tokio::test]
async fn counters_of_a_queue_that_cannot_be_read_are_named() {
    let server = server();
    let q = Client::of(&server).await.queues;
    let (jobs, fine) = (queue("jobs"), queue("fine"));
    let key = "{tenure:dq:jobs}:n";
    push(&*q, &fine, message("fine", 0)).await;
    for counters in [
        "",
        "foreign",
        "1;2;3",
        "1;2;3;4",
        "99999999999999999999;0;0;0;",
        "0;99999999999999999999;0;0;",
        "0;0;99999999999999999999;0;",
        "0;0;0;4503599627370000;",
        "0;0;0;-1;",
        "0;0;0;0;i",
        "0;0;0;0;i0",
        "0;0;0;0;r1,2",
        "0;0;0;0;r0,0,0",
        "0;0;0;0;r5,1000,99999999999999999999",
        "0;0;0;0;x",
        "0;0;0;0;\u{1b}|\"\n",
    ] {
        server.cli(&["SET", key, counters]).unwrap();
        let failed = in_time(all_of_them(&*q, &jobs)).await;
        for (what, error) in &failed {
            assert!(error.was_not_applied(), "{what}: {error}");
            is_named(error, key);
            assert!(!error.to_string().contains(char::is_control), "{error:?}");
        }
        assert_eq!(failed.len(), 16, "{counters}: {failed:?}");
        assert_eq!(server.cli(&["GET", key]).unwrap().text(), counters, "it stays as it is");
        assert!(q.list_queues(None, 9).await.unwrap().queues.contains(&fine));
    }
    server.cli(&["DEL", key]).unwrap();
    assert!(all_of_them(&*q, &jobs).await.is_empty());
}
