//! Many waiters that died in front of one that lives.

use std::time::Duration;

use crate::common::wire::Wire;
use crate::common::{Client, LONG, Server, attempt, calls, entry, hold, name, server, waiter};
use tenure_core::OwnerId;
use tenure_core::driver::{
    AcquireRequest, Acquisition, DistributedLock as _, Exited, Handing, Queueing, Released, Signal, Watch,
};
use tenure_redis::RedisSettings;
use tenure_redis_support::Driver;

const CROWD: usize = 1_000;
/// How many dead waiters one request gets past.
const PASSED: usize = 256;

fn taker() -> AcquireRequest {
    let queue = Queueing::Join { presence: Duration::from_secs(60), accepts: Handing::Direct };
    waiter("a").with_queue(queue)
}

/// A client that hears nothing, as one that died.
async fn deaf(server: &Server) -> Driver<Wire> {
    Wire::to(server).driver(RedisSettings::default()).await
}

/// Fills the queue with waiters of so many clients that hear nothing.
async fn crowd(server: &Server, clients: usize) {
    for _ in 0..clients {
        let client = deaf(server).await;
        for _ in 0..CROWD / clients {
            client.acquire(&taker()).await.unwrap();
        }
    }
}

/// The one that lives, behind all of them.
async fn living(client: &Client) -> (AcquireRequest, Watch) {
    let request = taker();
    let watch = client.watch(&request).await;
    assert_eq!(client.busy(&request).await.position, Some(CROWD as u32));
    (request, watch)
}

/// Scripts from now on get past all of them, in as many requests as the README says.
fn counted(server: &Server) {
    server.cli(&["CONFIG", "RESETSTAT"]).unwrap();
}

fn soon(server: &Server) {
    let requests = calls(server, "evalsha");
    assert!((1..=1 + CROWD.div_ceil(PASSED) as u64).contains(&requests), "{requests}");
}

async fn given(server: &Server, watch: &mut Watch) {
    let signal = tokio::time::timeout(LONG, watch.next()).await.expect("a signal");
    assert!(matches!(signal, Signal::Handed(_)), "{signal:?}");
    soon(server);
}

#[tokio::test]
async fn a_release_gets_past_a_thousand_dead_waiters_at_once() {
    let server = server();
    let client = Client::of(&server).await;
    for clients in [1, 20, CROWD] {
        let holder = attempt("a");
        client.grant(&holder).await;
        crowd(&server, clients).await;
        let (next, mut watch) = living(&client).await;
        counted(&server);
        assert_eq!(client.locks.release(&hold(&holder)).await.unwrap(), Released::Released);
        given(&server, &mut watch).await;
        assert_eq!(client.locks.inspect(&name("a")).await.unwrap().waiters, 0);
        assert_eq!(client.locks.release(&hold(&next)).await.unwrap(), Released::Released);
    }
}

#[tokio::test]
async fn whatever_frees_a_lock_gets_past_them() {
    let server = server();
    let client = Client::of(&server).await;
    for way in ["exit", "force", "abandon", "abandon an entry"] {
        let (holder, owner) = (attempt("a"), OwnerId::new());
        match way {
            "exit" | "abandon an entry" => client.enter(&owner, &holder).await,
            _ => client.grant(&holder).await,
        };
        crowd(&server, 1).await;
        let (next, mut watch) = living(&client).await;
        counted(&server);
        match way {
            "exit" => assert_eq!(client.reentrant.exit(&entry(&owner, &holder)).await.unwrap(), Exited::Released),
            "abandon an entry" => client.reentrant.abandon(&entry(&owner, &holder)).await.unwrap(),
            "force" => drop(client.locks.force_release(&name("a"), None).await.unwrap()),
            _ => client.locks.abandon(&hold(&holder)).await.unwrap(),
        }
        given(&server, &mut watch).await;
        client.locks.release(&hold(&next)).await.unwrap();
    }
}

/// Nobody frees it, so that whoever asks has to get past them.
#[tokio::test]
async fn a_lease_that_ran_out_is_asked_for_past_them() {
    let server = server();
    let client = Client::of(&server).await;
    for clients in [1, CROWD] {
        client.grant(&attempt("a")).await;
        crowd(&server, clients).await;
        let (next, _watch) = living(&client).await;
        server.cli(&["DEL", "tenure:a"]).unwrap(); // as if it had expired
        counted(&server);
        while let Acquisition::Busy(busy) = client.locks.acquire(&next).await.unwrap() {
            assert_eq!(busy.recheck_after, Some(Duration::from_millis(1)));
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        soon(&server);
        client.locks.release(&hold(&next)).await.unwrap();
    }
}
