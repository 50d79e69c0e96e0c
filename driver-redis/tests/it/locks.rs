//! Plain locks, request by request, each also repeated.

use std::time::Duration;

use crate::common::{Client, attempt, begun, hold, keys, name, server, ttl, waiter};
use tenure_core::driver::{Begun, ForceReleased, Holder, Inspection, Released, Renewed};
use tenure_core::{ErrorKind, Label};
use tenure_redis::RedisConfig;
use tenure_redis_support::SCRIPTS;

#[tokio::test]
async fn the_server_computes_the_same_digests() {
    let server = server();
    for script in SCRIPTS.iter() {
        let loaded = server.cli(&["SCRIPT", "LOAD", script.source()]).unwrap();
        assert_eq!(loaded.text(), script.sha1(), "{}", script.name());
    }
}

#[tokio::test]
async fn a_lock_is_taken_once_and_released_once() {
    let server = server();
    let client = Client::of(&server).await;
    let (mine, other) = (attempt("a"), attempt("a"));
    let grant = client.grant(&mine).await;
    assert_eq!((grant.ttl, grant.depth), (Duration::from_secs(10), 1));
    begun(grant, Begun::Now);
    let busy = client.busy(&other).await;
    assert_eq!(busy.position, None);
    assert_eq!(keys(&server), ["tenure:a", "tenure:{fence}"], "an attempt leaves no trace");
    assert_eq!(client.locks.release(&hold(&other)).await.unwrap(), Released::NotHeld);
    assert_eq!(client.locks.release(&hold(&mine)).await.unwrap(), Released::Released);
    assert_eq!(client.locks.release(&hold(&mine)).await.unwrap(), Released::NotHeld);
    let next = client.grant(&other).await;
    assert!(next.fence > grant.fence);
    assert_eq!(client.locks.release(&hold(&mine)).await.unwrap(), Released::NotHeld, "a stale token does nothing");
    client.busy(&attempt("a")).await;
}

#[tokio::test]
async fn a_repeated_request_changes_nothing() {
    let server = server();
    let client = Client::of(&server).await;
    let mine = attempt("a");
    let first = client.grant(&mine).await;
    server.cli(&["PEXPIRE", "tenure:a", "5000"]).unwrap();
    let again = client.grant(&mine).await;
    begun(again, Begun::Earlier);
    assert_eq!(again.fence, first.fence);
    assert!(server.cli(&["PTTL", "tenure:a"]).unwrap().int().unwrap() <= 5000, "the lease is not touched");
}

#[tokio::test]
async fn a_renewal_lengthens_and_never_shortens_or_revives() {
    let server = server();
    let client = Client::of(&server).await;
    let (long, short, gone) = (attempt("long"), attempt("short"), attempt("gone"));
    for request in [&long, &short, &gone] {
        client.grant(request).await;
    }
    server.cli(&["DEL", "tenure:gone"]).unwrap();
    let mut answers = client.locks.renew(ttl(60_000), &[hold(&long), hold(&gone)]).await;
    answers.extend(client.locks.renew(ttl(1_000), &[hold(&short)]).await);
    let answers: Vec<Renewed> = answers.into_iter().map(Result::unwrap).collect();
    assert_eq!(answers[0], Renewed::Extended { ttl: Duration::from_secs(60) });
    assert_eq!(answers[1], Renewed::Lost);
    assert!(matches!(answers[2], Renewed::Extended { ttl } if ttl > Duration::from_secs(1)), "{:?}", answers[2]);
    assert!(server.cli(&["PTTL", "tenure:long"]).unwrap().int().unwrap() > 50_000);
    assert!(server.cli(&["PTTL", "tenure:short"]).unwrap().int().unwrap() > 1_000);
    assert_eq!(server.cli(&["EXISTS", "tenure:gone"]).unwrap().int(), Some(0));
    assert!(client.locks.renew(ttl(1_000), &[]).await.is_empty());
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
async fn an_expired_lease_is_over() {
    let server = server();
    let client = Client::of(&server).await;
    let mine = attempt("a").with_ttl(ttl(10));
    let first = client.grant(&mine).await;
    tenure_testkit::eventually("the lease to end", || {
        (server.cli(&["EXISTS", "tenure:a"]).unwrap().int() == Some(0)).then_some(())
    })
    .unwrap();
    assert_eq!(client.locks.release(&hold(&mine)).await.unwrap(), Released::NotHeld);
    assert_eq!(client.locks.renew(ttl(10_000), &[hold(&mine)]).await.remove(0).unwrap(), Renewed::Lost);
    assert!(client.grant(&attempt("a")).await.fence > first.fence);
}

#[tokio::test]
async fn an_operator_sees_the_holder_and_can_free_the_lock() {
    let server = server();
    let client = Client::of(&server).await;
    assert_eq!(client.locks.inspect(&name("a")).await.unwrap(), Inspection::default());
    assert_eq!(client.locks.force_release(&name("a"), None).await.unwrap(), ForceReleased::NotHeld);
    let mine = attempt("a");
    let grant = client.grant(&mine).await;
    client.busy(&waiter("a")).await;
    let seen = client.locks.inspect(&name("a")).await.unwrap();
    assert_eq!(seen.waiters, 1);
    let Holder { label, fence, held_for, remaining, depth, owner, .. } = seen.holder.unwrap();
    assert_eq!((label, fence, depth), (Some(Label::new("label;with;signs").unwrap()), Some(grant.fence), 1));
    assert_eq!(owner, None);
    assert!(held_for.unwrap() < Duration::from_secs(60));
    assert!(remaining.unwrap() <= Duration::from_secs(10));
    assert_eq!(client.locks.force_release(&name("a"), None).await.unwrap(), ForceReleased::Released);
    assert_eq!(client.locks.renew(ttl(10_000), &[hold(&mine)]).await.remove(0).unwrap(), Renewed::Lost);
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
async fn names_cannot_meet() {
    let server = server();
    let client = Client::of(&server).await;
    for odd in ["{fence}", "a}:q{", "%7Bfence%7D", "a b", "a\0b\r\n", "\u{1f512}", "wake:x"] {
        client.grant(&attempt(odd)).await;
    }
    let expected = [
        "tenure:%257Bfence%257D",
        "tenure:%7Bfence%7D",
        "tenure:%F0%9F%94%92",
        "tenure:a%00b%0D%0A",
        "tenure:a%20b",
        "tenure:a%7D:q%7B",
        "tenure:wake:x",
        "tenure:{fence}",
    ];
    assert_eq!(keys(&server), expected);
    let long = name([b'\n'; 512]);
    client.grant(&attempt("x").with_name(long)).await;
}

#[tokio::test]
async fn side_keys_hash_with_their_lock() {
    let server = server();
    let client = Client::of(&server).await;
    client.grant(&attempt("a{b}c")).await;
    let waiting = waiter("a{b}c");
    client.busy(&waiting).await;
    client.locks.abandon(&hold(&waiter("a{b}c"))).await.unwrap();
    let tag = "tenure:a%7Bb%7Dc";
    let all = keys(&server);
    assert_eq!(all.len(), 6, "{all:?}");
    for key in all.iter().filter(|key| *key != tag && *key != "tenure:{fence}") {
        assert!(key.starts_with(&format!("{{{tag}}}:")), "{key}");
    }
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
    let named = tenure_redis::RedisSettings::default().fence_scope(tenure_redis_support::FenceScope::Name);
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
