//! Fences that have to be beyond a floor.

use std::time::Duration;

use crate::common::queue::{message, push, queue, receive, up_to};
use crate::common::{Client, Server, attempt, entry, hold, server, server_with, waiter};
use tenure_core::driver::{AcquireRequest, DelayQueueExt as _, Handing, Queueing, Signal};
use tenure_core::{ErrorKind, FenceFloor, OwnerId};
use tenure_redis::{Fences, RedisConfig, RedisSettings};
use tenure_testkit::RedisOptions;

const HOUR: u64 = 3_600_000_000;

async fn client(server: &Server, settings: RedisSettings) -> Client {
    Client::with(RedisConfig::unix(server.socket()).settings(settings)).await
}

fn all_counts() -> [RedisSettings; 3] {
    let settings = RedisSettings::default;
    [settings(), settings().fences(Fences::Counter), settings().fence_per_name()]
}

/// A waiter that takes the lock without asking.
fn taker(lock: &str) -> AcquireRequest {
    let queue = Queueing::Join { presence: Duration::from_secs(10), accepts: Handing::Direct };
    waiter(lock).with_queue(queue)
}

/// The fences of a grant, of a hand-over, of an entry and of a delivery, in this order.
async fn fences(client: &Client) -> [u64; 4] {
    let (first, next, entered) = (attempt("a"), taker("a"), attempt("a"));
    let granted = client.grant(&first).await;
    let again = client.grant(&first).await;
    assert_eq!((again.fence, again.fences), (granted.fence, granted.fences), "asked again");
    let mut watch = client.watch(&next).await;
    client.busy(&next).await;
    client.locks.release(&hold(&first)).await.unwrap();
    let Ok(Signal::Handed(handed)) = tokio::time::timeout(crate::common::LONG, watch.next()).await else {
        panic!("not handed over");
    };
    client.locks.release(&hold(&next)).await.unwrap();
    let owner = OwnerId::new();
    let enter = client.enter(&owner, &entered).await;
    client.reentrant.exit(&entry(&owner, &entered)).await.unwrap();
    push(&*client.queues, &queue("q"), message("x", 0)).await;
    let delivery = receive(&*client.queues, &queue("q"), 1).await.deliveries.remove(0);
    assert!(granted.fence.get() + u64::from(granted.fences) <= handed.fence.get());
    assert!(handed.fence.get() + u64::from(handed.fences) <= enter.fence.get());
    [granted.fence.get(), handed.fence.get(), enter.fence.get(), delivery.fence.get()]
}

#[tokio::test]
async fn every_fence_is_beyond_the_floor_and_so_is_what_follows_without_it() {
    for settings in all_counts() {
        let server = server();
        let floor = FenceFloor::new(FenceFloor::now().get() + HOUR).unwrap();
        let before = fences(&client(&server, settings.clone()).await).await;
        assert!(before.iter().all(|fence| *fence < floor.get()), "{before:?}");
        let mut last = [floor.get(); 4];
        for settings in [settings.clone().fence_floor(floor), settings.clone(), settings.fence_floor(floor)] {
            let next = fences(&client(&server, settings).await).await;
            assert!(next.iter().zip(&last).all(|(next, last)| next > last), "{next:?} after {last:?}");
            assert!(next.iter().all(|fence| *fence < floor.get() + 1000), "no further than need be: {next:?}");
            last = next;
        }
        server.cli(&["FLUSHALL"]).unwrap(); // counters of names live for a day, with a counter for ever
    }
}

#[tokio::test]
async fn a_floor_behind_the_fences_changes_nothing() {
    let server = server();
    let last = fences(&client(&server, RedisSettings::default()).await).await;
    let floor = FenceFloor::new(54).unwrap();
    let next = fences(&client(&server, RedisSettings::default().fence_floor(floor)).await).await;
    assert!(next.iter().zip(&last).all(|(next, last)| next > last), "{next:?} after {last:?}");
}

/// Whoever sets the floor goes by a clock that is a day ahead of the server's.
#[tokio::test]
async fn a_floor_too_far_ahead_of_the_servers_clock_is_refused_and_leaves_the_counter_alone() {
    for settings in all_counts() {
        let server = server_with(RedisOptions::new().movable_clock());
        server.set_clock_offset(-2 * i64::try_from(HOUR).unwrap()).unwrap();
        let floor = FenceFloor::new(FenceFloor::now().get() + 23 * HOUR).unwrap();
        let asks = client(&server, settings.clone().fence_floor(floor)).await;
        for _ in 0..2 {
            let plain = asks.locks.acquire(&attempt("a")).await.unwrap_err();
            let entry = asks.reentrant.enter(&OwnerId::new(), &attempt("a")).await.unwrap_err();
            for error in [plain, entry] {
                assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
                assert!(error.message().contains(&format!("fence_floor of {floor}")), "{error}");
            }
        }
        let (jobs, q) = (queue("q"), &*asks.queues);
        push(q, &jobs, message("x", 0)).await;
        let settles = [];
        let error = q.receive(&up_to(&jobs, 1)).await.unwrap_err();
        let both = q.exchange(&settles, &up_to(&jobs, 1)).await.unwrap_err();
        for error in [error, both] {
            assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
            assert!(error.message().contains(&format!("fence_floor of {floor}")), "{error}");
        }
        let plain = client(&server, settings).await;
        assert!(plain.grant(&attempt("a")).await.fence.get() < floor.get(), "others go on as before");
        let deliveries = receive(&*plain.queues, &jobs, 1).await.deliveries;
        assert!(deliveries[0].fence.get() < floor.get() && deliveries[0].attempt == 1, "{deliveries:?}");
        server.cli(&["FLUSHALL"]).unwrap();
    }
}
