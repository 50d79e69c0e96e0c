//! Counters of fences that hold what no script has written.

use std::sync::Arc;
use std::time::Duration;

use crate::common::queue::{message, push, queue, receive, up_to};
use crate::common::{Client, LONG, Server, attempt, hold, name, server, ttl, waiter, woken};
use tenure_core::driver::{
    AcquireRequest, Ballot, DelayQueueExt as _, Electorate, Exchanged, Handing, Hold, Queueing, QuorumNode, Raised,
    Settle, Settled, Settlement, Signal, Vote,
};
use tenure_core::{Error, ErrorKind, FencingToken, OwnerId};
use tenure_redis::{Fences, RedisConfig, RedisDriver, RedisSettings};

const DAY: u64 = 86_400_000_000;

/// The server's clock, in microseconds.
fn now(server: &Server) -> u64 {
    let time = server.cli(&["TIME"]).unwrap();
    let part = |at: usize| time.items()[at].text().parse::<u64>().unwrap();
    part(0) * 1_000_000 + part(1)
}

/// What no counter can hold.
fn wrong(server: &Server) -> Vec<String> {
    let ahead = now(server) + DAY + 60_000_000;
    let texts = ["", "nonsense", "nan", "inf", "1e300", "9007199254740992", "18446744073709551616"];
    texts.into_iter().map(str::to_owned).chain([ahead.to_string()]).collect()
}

#[track_caller]
fn damaged(error: &Error, key: &str) {
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    assert!(error.message().contains(key), "{key}: {error}");
}

#[tokio::test]
async fn a_counter_that_is_damaged_grants_nothing_and_is_named() {
    let server = server();
    for (settings, key) in [
        (RedisSettings::default(), "tenure:{fence}"),
        (RedisSettings::default().fence_per_name(), "{tenure:a}:f"),
        (RedisSettings::default().fences(Fences::Counter), "tenure:{fence}"),
    ] {
        let client = Client::with(RedisConfig::unix(server.socket()).settings(settings)).await;
        for text in wrong(&server) {
            server.cli(&["SET", key, &text, "PX", "60000"]).unwrap();
            damaged(&client.locks.acquire(&attempt("a")).await.unwrap_err(), key);
            damaged(&client.reentrant.enter(&OwnerId::new(), &attempt("a")).await.unwrap_err(), key);
            assert_eq!(server.cli(&["GET", key]).unwrap().text(), text, "it stays for whoever looks into it");
            assert!(client.locks.inspect(&name("a")).await.unwrap().holder.is_none(), "{text}");
        }
        let behind = now(&server) + DAY - 60_000_000;
        server.cli(&["SET", key, &behind.to_string()]).unwrap();
        let mine = attempt("a");
        assert!(client.grant(&mine).await.fence.get() > behind, "clocks may be a day apart");
        client.locks.release(&hold(&mine)).await.unwrap();
        server.cli(&["DEL", key]).unwrap();
    }
}

#[tokio::test]
async fn a_waiter_that_cannot_be_given_a_fence_is_woken_and_told_why() {
    let server = server();
    let client = Client::of(&server).await;
    let (holder, next) = (attempt("a"), taker("a"));
    client.grant(&holder).await;
    let mut watch = client.watch(&next).await;
    client.busy(&next).await;
    server.cli(&["SET", "tenure:{fence}", "nonsense"]).unwrap();
    client.locks.release(&hold(&holder)).await.unwrap();
    assert!(woken(&mut watch).await);
    damaged(&client.locks.acquire(&next).await.unwrap_err(), "tenure:{fence}");
}

/// A waiter that takes the lock without asking.
fn taker(lock: &str) -> AcquireRequest {
    let queue = Queueing::Join { presence: Duration::from_secs(10), accepts: Handing::Direct };
    waiter(lock).with_queue(queue)
}

async fn node(server: &Server) -> Arc<dyn QuorumNode> {
    RedisDriver::connect_url(&server.unix_url()).await.unwrap().node()
}

fn ballot(request: AcquireRequest, proposal: u64) -> Ballot {
    let electorate = Electorate::of(["a", "b", "c"]);
    Ballot::new(request, electorate).with_proposal(FencingToken::new(proposal))
}

fn won(vote: Vote) -> FencingToken {
    let Vote::Cast(answer) = vote else { panic!("{vote:?}") };
    crate::common::granted(answer).fence
}

#[tokio::test]
async fn a_node_with_a_damaged_counter_does_not_vote_and_is_not_raised() {
    let server = server();
    let node = node(&server).await;
    for text in wrong(&server) {
        let mine = attempt("a");
        won(node.vote(&ballot(mine.clone(), 0)).await.unwrap());
        server.cli(&["SET", "{tenure:a}:f", &text, "PX", "60000"]).unwrap();
        damaged(&node.raise(&hold(&mine), FencingToken::new(now(&server)).unwrap()).await.unwrap_err(), "{tenure:a}:f");
        server.cli(&["DEL", "tenure:a"]).unwrap();
        damaged(&node.vote(&ballot(attempt("a"), 0)).await.unwrap_err(), "{tenure:a}:f");
        assert_eq!(server.cli(&["GET", "{tenure:a}:f"]).unwrap().text(), text);
        server.cli(&["DEL", "{tenure:a}:f"]).unwrap();
    }
}

#[tokio::test]
async fn a_counter_is_not_raised_by_more_than_clocks_are_apart() {
    let server = server();
    let node = node(&server).await;
    let mine = attempt("a");
    let fence = won(node.vote(&ballot(mine.clone(), 0)).await.unwrap());
    let at = |micros| FencingToken::new(micros).unwrap();
    let error = node.raise(&hold(&mine), at(now(&server) + DAY + 60_000_000)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.message().contains("{tenure:a}:f"), "{error}");
    let counter = server.cli(&["GET", "{tenure:a}:f"]).unwrap().text();
    assert_eq!(counter, fence.to_string());
    let credible = at(now(&server) + DAY - 60_000_000);
    assert_eq!(node.raise(&hold(&mine), credible).await.unwrap(), Raised::Acknowledged);
}

/// One server may serve a quorum and clients of its own under one name, though they then share its queue.
#[tokio::test]
async fn a_vote_passes_a_free_lock_to_a_waiter_that_would_take_it_without_asking() {
    let server = server();
    let (client, node) = (Client::of(&server).await, node(&server).await);
    let holder = attempt("a");
    let before = client.grant(&holder).await;
    let next = taker("a");
    let mut watch = client.watch(&next).await;
    client.busy(&next).await;
    server.cli(&["DEL", "tenure:a"]).unwrap(); // as if it had expired
    let queue = Queueing::Join { presence: LONG, accepts: Handing::Asked };
    let vote = node.vote(&ballot(attempt("a").with_queue(queue).with_ttl(ttl(5_000)), 0)).await.unwrap();
    let Vote::Cast(answer) = vote else { panic!("{vote:?}") };
    assert_eq!(crate::common::busy(answer).position, Some(1));
    let reported = tokio::time::timeout(LONG, watch.next()).await.unwrap();
    assert_eq!(reported, Signal::Wake, "the fences of votes are not those of this waiter");
    assert!(client.grant(&next).await.fence > before.fence);
    let hold = Hold::new(name("a"), next.token);
    client.locks.release(&hold).await.unwrap();
}

/// Whatever else is asked of the queue goes on; and a settlement that shares a request with a receive is as it was.
#[tokio::test]
async fn a_fence_of_deliveries_too_far_ahead_delivers_nothing_and_is_named() {
    let server = server();
    for fences in [Fences::ClockSeeded, Fences::Counter] {
        let settings = RedisSettings::default().fences(fences);
        let client = Client::with(RedisConfig::unix(server.socket()).settings(settings)).await;
        let (q, jobs, key) = (&*client.queues, queue("jobs"), "{tenure:dq:jobs}:n");
        push(q, &jobs, message("first", 0)).await;
        let first = receive(q, &jobs, 1).await.deliveries.remove(0);
        let counters = server.cli(&["GET", key]).unwrap().text();
        let with_fence = |fence: u64| {
            let mut parts: Vec<_> = counters.split(';').map(str::to_owned).collect();
            parts[1] = fence.to_string();
            parts.join(";")
        };
        let set = |fence: u64| server.cli(&["SET", key, &with_fence(fence)]).unwrap();
        let ahead = now(&server) + DAY + 60_000_000;
        set(ahead);
        push(q, &jobs, message("second", 0)).await;
        damaged(&q.receive(&up_to(&jobs, 1)).await.unwrap_err(), key);
        let settle = Settle::new(first.receipt, Settlement::Ack);
        let Exchanged { settled, received, .. } =
            q.exchange(std::slice::from_ref(&settle), &up_to(&jobs, 1)).await.unwrap();
        assert_eq!((settled, received.deliveries.len()), (vec![Settled::Done], 0), "what was handled is settled");
        assert!(
            server.cli(&["GET", key]).unwrap().text().contains(&ahead.to_string()),
            "it stays for whoever looks into it"
        );
        assert_eq!(q.settle(&jobs, &[settle]).await.unwrap(), [Settled::Stale]);
        let behind = now(&server) + DAY - 60_000_000;
        set(behind);
        let second = receive(q, &jobs, 2).await.deliveries;
        assert!(second.len() == 1 && second[0].fence.get() > behind, "clocks may be a day apart: {second:?}");
        server.cli(&["FLUSHALL"]).unwrap();
    }
}
