//! Permits: what they cost in commands, out of memory, with damaged keys and with the least rights.

use std::time::Duration;

use crate::common::{
    Client, PLACES, all_calls, attempt, busy, commands, granted, hold, keys, name, server, ttl, user, waiter,
};
use tenure_core::driver::{
    AcquireRequest, Family, ForceReleased, Handing, PermitChange, PermitHold, PermitRequest, Queueing, Released,
    Renewed, Share, Signal,
};
use tenure_core::{Error, ErrorKind};
use tenure_testkit::RedisServer;

const NAME: &str = "n";

const fn of(weight: u32, capacity: u32) -> Share {
    Share { weight, capacity }
}

fn asking(share: Share, lock: AcquireRequest) -> PermitRequest {
    PermitRequest::new(Family::Semaphore, share, lock)
}

fn held(request: &PermitRequest) -> PermitHold {
    PermitHold::new(request.family, request.lock.name.clone(), request.lock.token)
}

fn counted(server: &RedisServer, expected: &[(&str, u64)]) {
    let expected = expected.iter().map(|(command, count)| ((*command).to_owned(), *count)).collect();
    assert_eq!(all_calls(server), expected);
}

#[tokio::test]
async fn a_pair_without_waiters_is_two_scripts() {
    const PAIRS: u64 = 20;
    let server = server();
    let client = Client::of(&server).await;
    let pair = async || {
        let request = asking(of(1, 3), attempt(NAME));
        granted(client.permits.acquire(&request).await.unwrap());
        assert_eq!(client.permits.release(&held(&request)).await.unwrap(), Released::Released);
    };
    pair().await; // now the server knows the scripts
    server.cli(&["CONFIG", "RESETSTAT"]).unwrap();
    for _ in 0..PAIRS {
        pair().await;
    }
    let once = ["set", "hset", "zscore", "del"].map(|command| (command, PAIRS));
    let twice = ["evalsha", "time", "exists", "hmget", "zadd"].map(|command| (command, 2 * PAIRS));
    counted(&server, &[&once[..], &twice, &[("pexpire", 3 * PAIRS)]].concat());
    assert_eq!(keys(&server), ["{tenure:n}:s:f"], "only the counter is left, which ends by itself");

    let other = asking(of(1, 3), attempt(NAME));
    granted(client.permits.acquire(&other).await.unwrap());
    pair().await;
    server.cli(&["CONFIG", "RESETSTAT"]).unwrap();
    pair().await;
    let once = ["set", "zscore", "zrange", "pttl", "hdel"].map(|command| (command, 1));
    let twice = ["evalsha", "time", "exists", "hmget", "zadd", "zrem", "hset"].map(|command| (command, 2));
    counted(&server, &[&once[..], &twice].concat());
}

#[tokio::test]
async fn renewals_of_many_names_are_one_script() {
    const LEASES: u64 = 60;
    let server = server();
    let client = Client::of(&server).await;
    let mut holds = Vec::new();
    for i in 0..LEASES {
        let request = asking(of(1, 1), attempt(&format!("n{i}")));
        granted(client.permits.acquire(&request).await.unwrap());
        holds.push(held(&request));
    }
    let lost = held(&asking(of(1, 1), attempt("n1")));
    holds.push(lost);
    client.permits.renew(ttl(10_000), &holds[..1]).await.remove(0).unwrap(); // now the server knows the script
    server.cli(&["CONFIG", "RESETSTAT"]).unwrap();
    let mut renewed = client.permits.renew(ttl(100_000), &holds).await;
    assert_eq!(renewed.pop().unwrap().unwrap(), Renewed::Lost);
    assert!(renewed.into_iter().all(|one| one.unwrap() == Renewed::Extended { ttl: Duration::from_secs(100) }));
    // Each lease is much longer than before, so the lives of its keys are looked at.
    let seldom = [("pttl", LEASES), ("pexpire", 3 * LEASES)];
    counted(&server, &[&[("evalsha", 1), ("time", 1), ("zscore", LEASES + 1), ("zadd", LEASES)][..], &seldom].concat());
}

/// More than one script notifies or removes: others follow, and all are done.
#[tokio::test]
async fn a_release_notifies_a_crowd_and_a_crowd_may_end_at_once() {
    const CROWD: usize = 600;
    let server = server();
    let client = Client::of(&server).await;
    let writer = asking(Share::WRITER, attempt(NAME));
    granted(client.permits.acquire(&writer).await.unwrap());
    let mut watches = Vec::new();
    for at in 0..CROWD {
        let presence = Duration::from_secs(60);
        let accepts = if at < 300 { Handing::Direct } else { Handing::Asked };
        let reader = asking(Share::READER, attempt(NAME).with_queue(Queueing::Join { presence, accepts }));
        watches.push(client.permits.watch(&held(&reader)).await.unwrap());
        let place = busy(client.permits.acquire(&reader).await.unwrap()).position;
        assert_eq!(place, Some(at as u32));
    }
    assert_eq!(client.permits.release(&held(&writer)).await.unwrap(), Released::Released);
    for (at, watch) in watches.iter_mut().enumerate() {
        let signal = tokio::time::timeout(crate::common::LONG, watch.next()).await.expect("it is notified");
        assert_eq!(matches!(signal, Signal::Handed(_)), at < 300, "{at}: {signal:?}");
    }
    // All leases and places that were given end after the claim window, and a request finds room again.
    tokio::time::sleep(Duration::from_millis(2_100)).await;
    granted(client.permits.acquire(&writer).await.unwrap());
    let seen = client.permits.inspect(Family::Semaphore, &name(NAME), 5).await.unwrap();
    assert_eq!((seen.used, seen.holders.len(), seen.waiters), (u64::from(Share::WRITER.weight), 1, 0));
}

#[tokio::test]
async fn a_semaphore_a_read_write_lock_and_a_lock_of_one_name_are_three_things() {
    let server = server();
    let client = Client::of(&server).await;
    let semaphore = asking(of(1, 1), attempt(NAME));
    let rw_lock = semaphore.clone().with_family(Family::RwLock);
    for request in [&semaphore, &rw_lock] {
        granted(client.permits.acquire(request).await.unwrap());
    }
    client.grant(&semaphore.lock).await;
    client.locks.release(&hold(&semaphore.lock)).await.unwrap();
    assert_eq!(client.permits.release(&held(&rw_lock)).await.unwrap(), Released::Released);
    let seen = client.permits.inspect(Family::Semaphore, &name(NAME), 9).await.unwrap();
    let label = seen.holders[0].holder.label.as_ref().map(|label| label.as_str());
    assert_eq!((seen.used, label), (1, Some("label;with;signs")));
}

#[tokio::test]
async fn out_of_memory_no_permit_is_granted_and_everything_can_be_undone() {
    let server = server();
    let client = Client::of(&server).await;
    let p = &client.permits;
    let share = of(1, 2);
    let (one, two) = (asking(share, attempt(NAME)), asking(share, attempt(NAME)));
    let next = asking(share, waiter(NAME));
    let last = asking(share, waiter(NAME));
    for request in [&one, &two] {
        granted(p.acquire(request).await.unwrap());
    }
    let mut watch = p.watch(&held(&next)).await.unwrap();
    for request in [&next, &last] {
        busy(p.acquire(request).await.unwrap());
    }
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
    for request in [asking(share, attempt("other")), asking(share, waiter(NAME))] {
        let error = p.acquire(&request).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.message().contains("maxmemory"), "{error}");
    }
    let renewed = p.renew(ttl(60_000), &[held(&one)]).await.remove(0).unwrap();
    assert_eq!(renewed, Renewed::Extended { ttl: Duration::from_secs(60) });
    assert_eq!(p.release(&held(&one)).await.unwrap(), Released::Released);
    assert_eq!(p.release(&held(&one)).await.unwrap(), Released::NotHeld);
    assert!(crate::common::woken(&mut watch).await);
    p.abandon(&held(&next)).await.unwrap();
    p.abandon(&held(&last)).await.unwrap();
    let late = asking(share, attempt("late"));
    p.abandon(&held(&late)).await.unwrap();
    assert_eq!(p.release(&held(&two)).await.unwrap(), Released::Released);
    server.cli(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();
    assert!(!keys(&server).iter().any(|key| [":r", ":h", ":g", ":q", ":w", ":a"].iter().any(|end| key.ends_with(end))));
    for request in [&next, &late] {
        let error = p.acquire(request).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotHeld, "the tombstone was written all the same");
    }
}

#[track_caller]
fn is_named(error: &Error, key: &str) {
    assert_eq!(error.kind(), ErrorKind::Damaged, "{key}: {error}");
    assert!(error.message().contains(&format!("\"{key}\"")), "{key}: {error}");
}

#[tokio::test]
async fn a_damaged_key_is_named_and_other_names_continue() {
    let server = server();
    let client = Client::of(&server).await;
    let p = &client.permits;
    let damages: [(&str, &[&str]); 9] = [
        ("r", &["SET", "KEY", "x"]),
        ("h", &["SET", "KEY", "x"]),
        ("g", &["SET", "KEY", "x"]),
        ("q", &["SET", "KEY", "x"]),
        ("w", &["SET", "KEY", "x"]),
        ("a", &["SET", "KEY", "x"]),
        ("f", &["RPUSH", "KEY", "x"]),
        ("f", &["SET", "KEY", "abc"]),
        ("r", &["HSET", "KEY", "u", "abc"]),
    ];
    for (letter, damage) in damages {
        let key = format!("{{tenure:n}}:s:{letter}");
        let (one, two) = (asking(of(1, 2), attempt(NAME)), asking(of(1, 2), attempt(NAME)));
        for request in [&one, &two] {
            granted(p.acquire(request).await.unwrap());
        }
        busy(p.acquire(&asking(of(1, 2), waiter(NAME))).await.unwrap());
        if damage[0] != "HSET" {
            server.cli(&["DEL", &key]).unwrap();
        }
        let words: Vec<&str> = damage.iter().map(|word| if *word == "KEY" { key.as_str() } else { *word }).collect();
        server.cli(&words).unwrap();
        server.cli(&["PEXPIRE", &key, "60000"]).unwrap();
        let request = asking(of(1, 9), waiter(NAME));
        let mut errors: Vec<Error> = [p.acquire(&request).await.err()].into_iter().flatten().collect();
        errors.extend(p.resize(&PermitChange::new(held(&two), of(2, 9), 1)).await.err());
        errors.extend(p.release(&held(&one)).await.err());
        errors.extend(p.acquire(&asking(of(1, 2), waiter(NAME))).await.err());
        assert!(!errors.is_empty(), "{key}");
        for error in errors {
            is_named(&error, &key);
        }
        granted(p.acquire(&asking(of(1, 1), attempt(&format!("other-{letter}-{}", damage[0])))).await.unwrap());
        server.cli(&["FLUSHALL"]).unwrap();
    }
}

/// A key that a foreign hand deletes ends the holds or the waits that were in it, and no request fails for ever.
#[tokio::test]
async fn a_deleted_key_heals() {
    let server = server();
    let client = Client::of(&server).await;
    let p = &client.permits;
    for letter in ["r", "h", "g", "q", "w", "a"] {
        let (one, next) = (asking(of(1, 1), attempt(NAME)), asking(of(1, 1), waiter(NAME)));
        granted(p.acquire(&one).await.unwrap());
        busy(p.acquire(&next).await.unwrap());
        server.cli(&["DEL", &format!("{{tenure:n}}:s:{letter}")]).unwrap();
        let _ = p.acquire(&next).await.unwrap();
        p.release(&held(&one)).await.unwrap();
        granted(p.acquire(&next).await.unwrap());
        assert_eq!(p.release(&held(&next)).await.unwrap(), Released::Released, "{letter}");
        server.cli(&["FLUSHALL"]).unwrap();
    }
}

#[tokio::test]
async fn every_operation_of_permits_works_with_the_documented_rights() {
    let server = server();
    let client = Client::at(&user(&server, &PLACES, &commands())).await;
    let p = &client.permits;
    let (reader, writer) = (asking(Share::UPGRADABLE, attempt(NAME)), asking(Share::WRITER, waiter(NAME)));
    let second = asking(Share::READER, attempt(NAME));
    granted(p.acquire(&reader).await.unwrap());
    granted(p.acquire(&second).await.unwrap());
    let mut watch = p.watch(&held(&writer)).await.unwrap();
    busy(p.acquire(&writer).await.unwrap());
    let grow = PermitChange::new(held(&reader), Share::WRITER, 1).with_presence(Some(Duration::from_secs(9)));
    busy(p.resize(&grow).await.unwrap());
    p.renew(ttl(60_000), &[held(&reader)]).await.remove(0).unwrap();
    p.release(&held(&second)).await.unwrap();
    let fence = granted(p.resize(&grow).await.unwrap()).fence;
    assert_eq!(p.evict(Family::Semaphore, &name(NAME), fence).await.unwrap(), ForceReleased::Released);
    assert!(crate::common::woken(&mut watch).await);
    p.abandon(&held(&writer)).await.unwrap();
    assert_eq!(p.inspect(Family::Semaphore, &name(NAME), 9).await.unwrap().used, 0);
}
