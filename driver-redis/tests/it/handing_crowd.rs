//! Many waiters that died in front of one that lives.

use std::time::{Duration, Instant};

use crate::common::wire::Wire;
use crate::common::{Client, LONG, Server, attempt, entry, hold, name, server, waiter};
use tenure_core::OwnerId;
use tenure_core::driver::{
    AcquireRequest, Acquisition, DistributedLock as _, Exited, Handing, Queueing, Released, Signal, Watch,
};
use tenure_redis::RedisSettings;
use tenure_redis_support::{ClientId, Keyspace, RedisLocks, WakeLink};

const CROWD: usize = 1_000;
/// Within which the living one has the lock, though all before it are dead.
const SOON: Duration = Duration::from_millis(100);

fn taker() -> AcquireRequest {
    let queue = Queueing::Join { presence: Duration::from_secs(60), accepts: Handing::Direct };
    waiter("a").with_queue(queue)
}

/// A client that hears nothing, as one that died.
async fn deaf(server: &Server) -> RedisLocks<Wire> {
    let settings = RedisSettings::default();
    let keys = Keyspace::of(&settings, ClientId::random());
    RedisLocks::checked(Wire::to(server), keys, settings, WakeLink::default()).await.unwrap()
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

/// Remembers scripts that take long. On a machine that is busy some do for no fault of their own: where nothing else runs,
/// none of these takes two milliseconds.
fn listen_for_long_scripts(server: &Server) {
    server.cli(&["CONFIG", "SET", "slowlog-log-slower-than", "20000"]).unwrap();
    server.cli(&["SLOWLOG", "RESET"]).unwrap();
}

fn soon(server: &Server, since: Instant) {
    let took = since.elapsed();
    assert!(took <= SOON, "{took:?}");
    assert_eq!(server.cli(&["SLOWLOG", "GET"]).unwrap().items(), []);
}

async fn given(server: &Server, watch: &mut Watch, since: Instant) {
    let signal = tokio::time::timeout(LONG, watch.next()).await.expect("a signal");
    assert!(matches!(signal, Signal::Handed(_)), "{signal:?}");
    soon(server, since);
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
        listen_for_long_scripts(&server);
        let since = Instant::now();
        assert_eq!(client.locks.release(&hold(&holder)).await.unwrap(), Released::Released);
        given(&server, &mut watch, since).await;
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
        listen_for_long_scripts(&server);
        let since = Instant::now();
        match way {
            "exit" => assert_eq!(client.reentrant.exit(&entry(&owner, &holder)).await.unwrap(), Exited::Released),
            "abandon an entry" => client.reentrant.abandon(&entry(&owner, &holder)).await.unwrap(),
            "force" => drop(client.locks.force_release(&name("a"), None).await.unwrap()),
            _ => client.locks.abandon(&hold(&holder)).await.unwrap(),
        }
        given(&server, &mut watch, since).await;
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
        listen_for_long_scripts(&server);
        let since = Instant::now();
        while let Acquisition::Busy(busy) = client.locks.acquire(&next).await.unwrap() {
            assert_eq!(busy.recheck_after, Some(Duration::from_millis(1)));
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        soon(&server, since);
        client.locks.release(&hold(&next)).await.unwrap();
    }
}
