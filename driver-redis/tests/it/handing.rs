//! The lock that reaches a waiter without being asked for.

use std::time::Duration;

use crate::common::{Client, LONG, attempt, begun, entry, hold, keys, name, server, ttl, waiter};
use tenure_core::driver::{AcquireRequest, Begun, Exited, Handed, Handing, Queueing, Released, Signal, Watch};
use tenure_core::{OwnerId, OwnerToken};
use tenure_testkit::{RedisServer, eventually};

/// A waiter that takes the lock without asking.
fn taker(lock: &str) -> AcquireRequest {
    let queue = Queueing::Join { presence: Duration::from_secs(10), accepts: Handing::Direct };
    waiter(lock).with_queue(queue)
}

async fn handed(watch: &mut Watch) -> Handed {
    match tokio::time::timeout(LONG, watch.next()).await.expect("a signal") {
        Signal::Handed(handed) => handed,
        other => panic!("{other:?}"),
    }
}

/// A waiter in the queue, listening.
async fn waiting(client: &Client, lock: &str) -> (AcquireRequest, Watch, Duration) {
    let request = taker(lock);
    let watch = client.watch(&request).await;
    let answered_at = client.busy(&request).await.answered_at.expect("the server's time");
    (request, watch, answered_at)
}

async fn holder_fence(client: &Client) -> Option<u64> {
    client.locks.inspect(&name("a")).await.unwrap().holder.and_then(|holder| holder.fence).map(|fence| fence.get())
}

/// Up to a millisecond more than was told, since leases end with whole ones.
fn left_ms(server: &RedisServer) -> i64 {
    server.cli(&["PTTL", "tenure:a"]).unwrap().int().unwrap()
}

#[tokio::test]
async fn a_release_gives_the_lock_to_the_first_waiter() {
    let server = server();
    let (client, other) = (Client::of(&server).await, Client::of(&server).await);
    let holder = attempt("a");
    let before = client.grant(&holder).await;
    let (first, mut first_watch, answered_at) = waiting(&client, "a").await;
    let (second, mut second_watch, _) = waiting(&other, "a").await;

    assert_eq!(client.locks.release(&hold(&holder)).await.unwrap(), Released::Released);
    let news = handed(&mut first_watch).await;
    assert!(news.fence > before.fence);
    assert!(news.began_at >= answered_at && news.began_at < answered_at + LONG, "{news:?} after {answered_at:?}");
    assert_eq!(news.ttl, Duration::from_secs(2), "as long as a dead waiter may hold up others");
    assert_eq!(holder_fence(&client).await, Some(news.fence.get()));
    let seen = client.locks.inspect(&name("a")).await.unwrap();
    assert_eq!(seen.holder.unwrap().label, first.label, "as if it had asked");
    assert_eq!(seen.waiters, 1);

    assert_eq!(client.locks.release(&hold(&first)).await.unwrap(), Released::Released);
    assert!(handed(&mut second_watch).await.fence > news.fence);
    assert_eq!(client.locks.release(&hold(&first)).await.unwrap(), Released::NotHeld);
    assert_eq!(other.locks.release(&hold(&second)).await.unwrap(), Released::Released);
    assert_eq!(keys(&server), ["tenure:{fence}"]);
}

#[tokio::test]
async fn a_handed_lease_is_as_short_as_what_was_asked_for() {
    let server = server();
    let client = Client::of(&server).await;
    let holder = attempt("a");
    client.grant(&holder).await;
    let brief = taker("a").with_ttl(ttl(700));
    let mut watch = client.watch(&brief).await;
    client.busy(&brief).await;
    client.locks.release(&hold(&holder)).await.unwrap();
    assert_eq!(handed(&mut watch).await.ttl, Duration::from_millis(700));
    assert!(left_ms(&server) <= 701);
}

/// By the reading of the clock that it is told, whenever in the script the server counts spans from: that depends on its
/// version.
#[tokio::test]
async fn a_handed_lease_lasts_for_the_reported_time() {
    let server = server();
    let client = Client::of(&server).await;
    for _ in 0..10 {
        let holder = attempt("a");
        client.grant(&holder).await;
        let (next, mut watch, _) = waiting(&client, "a").await;
        client.locks.release(&hold(&holder)).await.unwrap();
        let news = handed(&mut watch).await;
        let ends = server.cli(&["PEXPIRETIME", "tenure:a"]).unwrap().int().unwrap();
        let (reported, ends) = (news.began_at + news.ttl, Duration::from_millis(ends.unsigned_abs()));
        assert!(
            reported <= ends && ends <= reported + Duration::from_millis(1),
            "reported {reported:?}, ends {ends:?}"
        );
        client.locks.release(&hold(&next)).await.unwrap();
    }
}

#[tokio::test]
async fn every_key_of_a_queue_has_an_end_whoever_makes_it() {
    let server = server();
    let client = Client::of(&server).await;
    client.grant(&attempt("a")).await;
    let queue = Queueing::Join { presence: Duration::from_secs(30), accepts: Handing::Asked };
    client.busy(&waiter("a").with_queue(queue)).await; // makes the queue, and makes it last for longer
    waiting(&client, "a").await;
    for key in ["{tenure:a}:q", "{tenure:a}:w", "{tenure:a}:a"] {
        let left = server.cli(&["PTTL", key]).unwrap().int().unwrap();
        assert!(left > 0, "{key}: {left}");
    }
}

#[tokio::test]
async fn asking_makes_a_handed_lease_last_and_only_once() {
    let server = server();
    let client = Client::of(&server).await;
    let holder = attempt("a");
    client.grant(&holder).await;
    let (first, mut watch, _) = waiting(&client, "a").await;
    let (second, mut second_watch, _) = waiting(&client, "a").await;
    client.locks.release(&hold(&holder)).await.unwrap();
    let news = handed(&mut watch).await;
    assert!(left_ms(&server) <= 2_001);
    let grant = client.grant(&first).await;
    assert_eq!((grant.fence, grant.begun), (news.fence, Begun::Now));
    assert!(left_ms(&server) > 2_001);
    begun(client.grant(&first).await, Begun::Earlier);
    client.locks.release(&hold(&first)).await.unwrap();
    handed(&mut second_watch).await;
    client.locks.release(&hold(&second)).await.unwrap();
    assert_eq!(keys(&server), ["tenure:{fence}"]);
}

#[tokio::test]
async fn waiters_whose_client_is_gone_are_passed_over_at_once() {
    let server = server();
    let (client, gone) = (Client::of(&server).await, Client::of(&server).await);
    let holder = attempt("a");
    client.grant(&holder).await;
    let mut dead = Vec::new();
    for _ in 0..100 {
        dead.push(waiting(&gone, "a").await);
    }
    gone.locks.close().await;
    eventually("its subscription to end", || {
        let channels = server.cli(&["PUBSUB", "CHANNELS", "tenure:wake:*"]).unwrap();
        (channels.items().len() == 1).then_some(())
    })
    .unwrap();
    let (next, mut watch, _) = waiting(&client, "a").await;
    client.locks.release(&hold(&holder)).await.unwrap();
    handed(&mut watch).await;
    assert_eq!(client.locks.release(&hold(&next)).await.unwrap(), Released::Released);
    assert_eq!(keys(&server), ["tenure:{fence}"]);
}

#[tokio::test]
async fn a_handed_lease_that_nobody_makes_last_ends_soon() {
    let server = server();
    let client = Client::of(&server).await;
    let holder = attempt("a");
    client.grant(&holder).await;
    let (lost, mut watch, _) = waiting(&client, "a").await;
    client.locks.release(&hold(&holder)).await.unwrap();
    let news = handed(&mut watch).await;
    eventually("it to end", || (left_ms(&server) < 0).then_some(())).unwrap();
    let next = waiter("a");
    let grant = client.grant(&next).await;
    assert!(grant.fence > news.fence);
    assert_eq!(client.locks.release(&hold(&lost)).await.unwrap(), Released::NotHeld);
}

#[tokio::test]
async fn abandoning_passes_a_handed_lock_on() {
    let server = server();
    let client = Client::of(&server).await;
    let holder = attempt("a");
    client.grant(&holder).await;
    let (first, mut first_watch, _) = waiting(&client, "a").await;
    let (second, mut second_watch, _) = waiting(&client, "a").await;
    client.locks.release(&hold(&holder)).await.unwrap();
    handed(&mut first_watch).await;
    client.locks.abandon(&hold(&first)).await.unwrap();
    handed(&mut second_watch).await;
    client.locks.release(&hold(&second)).await.unwrap();
    assert_eq!(holder_fence(&client).await, None);
}

#[tokio::test]
async fn whatever_frees_a_lock_hands_it_over() {
    let server = server();
    let client = Client::of(&server).await;
    let (owner, entered) = (OwnerId::new(), attempt("a"));
    client.enter(&owner, &entered).await;
    let (first, mut first_watch, _) = waiting(&client, "a").await;
    let (_second, mut second_watch, _) = waiting(&client, "a").await;
    let (third, mut third_watch, _) = waiting(&client, "a").await;
    let fences = [
        {
            assert_eq!(client.reentrant.exit(&entry(&owner, &entered)).await.unwrap(), Exited::Released);
            handed(&mut first_watch).await.fence
        },
        {
            client.locks.force_release(&name("a"), None).await.unwrap();
            handed(&mut second_watch).await.fence
        },
        {
            // It ran out, and whoever asks next finds the lock free and somebody before it.
            server.cli(&["DEL", "tenure:a"]).unwrap();
            client.busy(&waiter("a")).await;
            handed(&mut third_watch).await.fence
        },
    ];
    assert!(fences.is_sorted_by(|one, next| one < next), "{fences:?}");
    assert_eq!(client.locks.release(&hold(&first)).await.unwrap(), Released::NotHeld);
    assert_eq!(client.locks.release(&hold(&third)).await.unwrap(), Released::Released);
}

#[tokio::test]
async fn those_that_ask_and_those_that_do_not_stand_in_one_queue() {
    let server = server();
    let client = Client::of(&server).await;
    let holder = attempt("a");
    client.grant(&holder).await;
    let asking = waiter("a");
    let mut asking_watch = client.watch(&asking).await;
    client.busy(&asking).await;
    let (_, mut watch, _) = waiting(&client, "a").await;
    client.locks.release(&hold(&holder)).await.unwrap();
    let signal = tokio::time::timeout(LONG, asking_watch.next()).await.expect("a signal");
    assert_eq!(signal, Signal::Wake);
    client.grant(&asking).await;
    client.locks.release(&hold(&asking)).await.unwrap();
    handed(&mut watch).await;
    let stranger = attempt("a").with_token(OwnerToken::random());
    client.busy(&stranger).await;
}

/// Sets the counter so far ahead of the server's clock, in microseconds; returns the last fence that counts as given.
fn run_ahead(server: &RedisServer, micros: u64) -> u64 {
    let time = server.cli(&["TIME"]).unwrap();
    let part = |at: usize| time.items()[at].text().parse::<u64>().unwrap();
    let ahead = part(0) * 1_000_000 + part(1) + micros;
    server.cli(&["SET", "tenure:{fence}", &ahead.to_string()]).unwrap();
    ahead + 7
}

#[tokio::test]
async fn a_counter_that_is_ahead_of_the_clock_does_not_run_away() {
    let server = server();
    let client = Client::of(&server).await;
    let mut last = run_ahead(&server, 60_000_000);
    let requests = ["a", "b", "c"].map(attempt);
    for request in &requests {
        let grant = client.grant(request).await;
        assert_eq!((grant.fence.get(), grant.fences), (last + 1, 1), "one at a time until the clock is there");
        let again = client.grant(request).await;
        assert_eq!((again.fence, again.fences, again.begun), (grant.fence, 1, Begun::Earlier));
        last += 1;
    }
    let held_for = client.locks.inspect(&name("a")).await.unwrap().holder.unwrap().held_for.unwrap();
    assert!(held_for < LONG, "{held_for:?}");
    let (_, mut watch, _) = waiting(&client, "a").await;
    client.locks.release(&hold(&requests[0])).await.unwrap();
    let news = handed(&mut watch).await;
    assert_eq!((news.fence.get(), news.fences), (last + 1, 1));

    run_ahead(&server, 0);
    let mut fences = 0;
    for lock in ["d", "e", "f"] {
        fences = fences.max(client.grant(&attempt(lock)).await.fences);
    }
    assert_eq!(fences, 8, "the clock is there again");
}
