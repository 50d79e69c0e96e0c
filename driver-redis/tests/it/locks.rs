//! Plain locks: batches, abandoned tokens, foreign keys, counters of fences, prefixes and databases.

use std::time::Duration;

use crate::common::{Client, attempt, hold, keys, name, server, ttl, waiter};
use tenure_core::ErrorKind;
use tenure_core::driver::{ForceReleased, Holder, Released, Renewed};
use tenure_redis::RedisConfig;
use tenure_redis_support::scripts;

#[tokio::test]
async fn the_server_computes_the_same_digests() {
    let server = server();
    for (name, source, digest) in scripts() {
        let loaded = server.cli(&["SCRIPT", "LOAD", source]).unwrap();
        assert_eq!(loaded.text(), digest, "{name}");
    }
}

#[tokio::test]
async fn a_whole_batch_is_renewed_at_once() {
    let server = server();
    let client = Client::of(&server).await;
    let batch = client.locks.capabilities().renew_batch;
    let mut holds = Vec::new();
    for i in 0..batch {
        let request = attempt(&format!("lock-{i}"));
        client.grant(&request).await;
        holds.push(hold(&request));
    }
    let answers = client.locks.renew(ttl(60_000), &holds).await;
    assert_eq!(answers.len(), batch);
    for answer in answers {
        assert_eq!(answer.unwrap(), Renewed::Extended { ttl: Duration::from_secs(60) });
    }
}

#[tokio::test]
async fn an_abandoned_token_is_undone_and_refused_afterwards() {
    let server = server();
    let client = Client::of(&server).await;
    let mine = waiter("a");
    client.grant(&mine).await;
    for _ in 0..2 {
        client.locks.abandon(&hold(&mine)).await.unwrap();
    }
    let error = client.locks.acquire(&mine).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotHeld);
    assert!(error.to_string().contains("abandoned"), "{error}");
    let other = waiter("a");
    client.grant(&other).await;
    let late = waiter("a");
    client.locks.abandon(&hold(&late)).await.unwrap(); // overtakes its own request
    assert_eq!(client.locks.acquire(&late).await.unwrap_err().kind(), ErrorKind::NotHeld);
    assert_eq!(client.locks.inspect(&name("a")).await.unwrap().waiters, 0);
    assert_eq!(client.locks.release(&hold(&other)).await.unwrap(), Released::Released);
}

#[tokio::test]
async fn a_foreign_holder_is_busy_and_has_no_details() {
    let server = server();
    let client = Client::of(&server).await;
    server.cli(&["SET", "tenure:a", "5b0d7c0e9e0b11efb2a10242ac120002"]).unwrap();
    let waiting = client.busy(&waiter("a")).await;
    assert_eq!((waiting.position, waiting.recheck_after), (Some(0), Some(Duration::from_millis(500))));
    let seen = client.locks.inspect(&name("a")).await.unwrap();
    let foreign = Holder::default();
    assert_eq!((seen.holder, seen.waiters), (Some(foreign.clone()), 1));
    server.cli(&["PEXPIRE", "tenure:a", "100000"]).unwrap();
    assert_eq!(client.busy(&attempt("a")).await.recheck_after, Some(Duration::from_millis(500)));
    server.cli(&["HSET", "tenure:c", "x", "y"]).unwrap();
    client.busy(&attempt("c")).await;
    assert_eq!(client.locks.inspect(&name("c")).await.unwrap().holder, Some(foreign));
    let expected = client.grant(&attempt("d")).await.fence;
    server.cli(&["HSET", "tenure:e", "f", &expected.to_string()]).unwrap();
    server.cli(&["PEXPIRE", "tenure:e", "100000"]).unwrap();
    for other in ["a", "c", "e"] {
        assert_eq!(client.locks.force_release(&name(other), Some(expected)).await.unwrap(), ForceReleased::Changed);
    }
    assert_eq!(client.locks.force_release(&name("d"), Some(expected)).await.unwrap(), ForceReleased::Released);
    assert_eq!(client.locks.release(&hold(&attempt("c"))).await.unwrap(), Released::NotHeld);
    assert_eq!(client.locks.force_release(&name("c"), None).await.unwrap(), ForceReleased::Released);
}

#[tokio::test]
async fn fences_grow_when_the_counter_was_lost() {
    let server = server();
    let client = Client::of(&server).await;
    let first = client.grant(&attempt("a")).await;
    server.cli(&["FLUSHALL"]).unwrap();
    assert!(client.grant(&attempt("a")).await.fence > first.fence);
}

#[tokio::test]
async fn a_plain_counter_can_be_asked_for() {
    let server = server();
    let settings = tenure_redis::RedisSettings::default().fences(tenure_redis::Fences::Counter);
    let client = Client::with(RedisConfig::unix(server.socket()).settings(settings)).await;
    assert_eq!(client.grant(&attempt("a")).await.fence.get(), 1);
    assert_eq!(client.grant(&attempt("b")).await.fence.get(), 9, "each grant carries eight");
}

#[tokio::test]
async fn prefixes_are_worlds_apart() {
    let server = server();
    let one = Client::of(&server).await;
    let two = Client::at(&format!("{}?prefix=other", server.unix_url())).await;
    one.grant(&attempt("a")).await;
    two.grant(&attempt("a")).await;
    assert!(keys(&server).contains(&"other:a".to_owned()));
}

#[tokio::test]
async fn databases_are_worlds_apart() {
    let server = server();
    Client::of(&server).await.grant(&attempt("a")).await;
    Client::at(&format!("{}/3", server.url())).await.grant(&attempt("a")).await;
    let mut third = server.connect().unwrap();
    third.call(&["SELECT", "3"]).unwrap();
    assert_eq!(third.call(&["EXISTS", "tenure:a"]).unwrap().int(), Some(1));
}

#[tokio::test]
async fn a_fence_can_be_kept_per_name_for_as_long_as_clocks_may_be_apart() {
    const DAY: i64 = 86_400_000;
    let server = server();
    let named = tenure_redis::RedisSettings::default().fence_per_name();
    let week = named.clone().counter_life(Duration::from_secs(7 * 86_400)).unwrap();
    let mut last = None;
    for (settings, life) in [(named, DAY), (week, 7 * DAY)] {
        let client = Client::with(RedisConfig::unix(server.socket()).settings(settings)).await;
        let mine = attempt("a");
        let fence = client.grant(&mine).await.fence;
        assert!(Some(fence) > last);
        last = Some(fence);
        client.locks.release(&hold(&mine)).await.unwrap();
        assert_eq!(keys(&server), ["{tenure:a}:f"]);
        let left = server.cli(&["PTTL", "{tenure:a}:f"]).unwrap().int().unwrap();
        assert!((life - 60_000..=life).contains(&left), "{left} ms of {life}");
    }
    let settings = tenure_redis::RedisSettings::default();
    for (bad, life) in [(true, 59), (false, 60), (false, 365 * 86_400), (true, 365 * 86_400 + 1)] {
        assert_eq!(settings.clone().counter_life(Duration::from_secs(life)).is_err(), bad, "{life} s");
    }
}

#[tokio::test]
async fn a_closed_driver_says_so() {
    let server = server();
    let client = Client::of(&server).await;
    client.locks.close().await;
    client.locks.close().await;
    assert_eq!(client.locks.acquire(&attempt("a")).await.unwrap_err().kind(), ErrorKind::Closed);
    tenure_testkit::eventually("the connection to end", || {
        let clients = server.cli(&["CLIENT", "LIST"]).unwrap().text();
        (clients.lines().count() == 1).then_some(())
    })
    .unwrap();
}
