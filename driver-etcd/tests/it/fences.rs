//! What is added to revisions, so that fences go on from those of other backends.

use std::sync::{Arc, Mutex};

use crate::common::{ack, driver, granted, hold, left, message, name, queue, raw, receive, request, server};
use tenure_core::driver::{DelayQueue as _, DelayQueueExt as _, DistributedLock as _, Released};
use tenure_core::{ErrorKind, FenceFloor, OwnerToken};
use tenure_etcd::{EtcdConfig, EtcdDriver};
use tenure_testkit::EtcdCluster;

const HOUR: u64 = 3_600_000_000;
/// How far, in microseconds, the base may lag behind the clock of a client that begins.
const LAG: u64 = 100_000;
const KEY: &str = "tenure/%/fences";

async fn of_lock(driver: &EtcdDriver) -> u64 {
    let (lock, token) = (name("fenced"), OwnerToken::random());
    let grant = granted(driver.acquire(&request(&lock, token, 60)).await);
    let seen = driver.inspect(&lock).await.unwrap().holder.unwrap();
    assert_eq!(seen.fence, Some(grant.fence));
    assert_eq!(driver.release(&hold(&lock, token)).await.unwrap(), Released::Released);
    grant.fence.get()
}

async fn of_delivery(driver: &EtcdDriver) -> u64 {
    driver.push(&queue(), &[message(b"x")]).await.unwrap();
    let received = receive(driver, 1, crate::common::SECOND * 60).await;
    ack(driver, &received.deliveries).await;
    received.deliveries[0].fence.get()
}

fn with_floor(cluster: &EtcdCluster, floor: FenceFloor) -> EtcdDriver {
    EtcdDriver::new(cluster.url().parse::<EtcdConfig>().unwrap().fence_floor(floor))
}

/// A client raises the base to its clock, unless another one did so a moment ago; so a prefix that was left for another backend,
/// and is come back to, goes on from that.
#[tokio::test]
async fn each_client_begins_beyond_its_clock() {
    let cluster = server();
    for _ in 0..3 {
        let clock = FenceFloor::now().get();
        let driver = driver(&cluster);
        let (lock, delivery) = (of_lock(&driver).await, of_delivery(&driver).await);
        assert!(lock > clock - LAG && delivery > clock - LAG, "{clock} {lock} {delivery}");
        let second = of_lock(&driver).await;
        assert!(second > lock && second < FenceFloor::now().get(), "no more than eight for a revision");
        assert!(of_delivery(&driver).await > delivery);
    }
}

#[tokio::test]
async fn a_floor_holds_for_all_clients_from_then_on() {
    let cluster = server();
    let floor = FenceFloor::new(FenceFloor::now().get() + HOUR).unwrap();
    let (before, floored, after) = (driver(&cluster), with_floor(&cluster, floor), driver(&cluster));
    assert!(of_lock(&before).await < floor.get() && of_delivery(&before).await < floor.get());
    let mut last = (floor.get(), floor.get());
    for driver in [&floored, &before, &after, &floored, &before] {
        let next = (of_lock(driver).await, of_delivery(driver).await);
        assert!(next.0 > last.0 && next.1 > last.1, "{next:?} after {last:?}");
        last = next;
    }
}

/// Clients that come while others are at work raise the base under them, and operators delete it.
#[tokio::test]
async fn no_fence_falls_whoever_writes_the_base() {
    const CLIENTS: usize = 12;
    let cluster = server();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let mut etcd = raw(&cluster).await;
    let mut all = Vec::new();
    for number in 0..CLIENTS {
        let (client, story) = (crate::common::client(&cluster), Arc::clone(&seen));
        all.push(tokio::spawn(async move {
            for _ in 0..20 {
                let guard = client.lock("contended").acquire().await.unwrap();
                story.lock().unwrap().push(guard.fence().get());
                guard.release().await.unwrap();
            }
        }));
        let reached = || seen.lock().unwrap().len() > number * 10;
        crate::common::until("the clients before are at work", async || reached()).await;
        if number % 4 == 3 {
            etcd.delete(KEY, None).await.unwrap();
        }
    }
    for one in all {
        one.await.unwrap();
    }
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), CLIENTS * 20);
    assert!(seen.is_sorted_by(|before, after| before < after), "{seen:?}");
}

/// Otherwise each of them would make the grants of all others start over.
#[tokio::test]
async fn clients_that_begin_together_raise_the_base_once() {
    let cluster = server();
    let mut etcd = raw(&cluster).await;
    let all: Vec<_> = (0..30).map(|_| driver(&cluster)).collect();
    futures_util::future::join_all(all.iter().map(|driver| driver.ping())).await; // connected
    let began = std::time::Instant::now();
    let take = async |driver: &EtcdDriver| {
        let lock = name(OwnerToken::random().expose().as_str());
        granted(driver.acquire(&request(&lock, OwnerToken::random(), 60)).await)
    };
    futures_util::future::join_all(all.iter().map(take)).await;
    let most = 1 + i64::try_from(began.elapsed().as_micros() / u128::from(LAG)).unwrap();
    let written = etcd.get(KEY, None).await.unwrap().kvs()[0].version();
    assert!(written <= most, "written {written} times, {most} at most");
}

#[tokio::test]
async fn a_lock_that_was_not_taken_for_a_new_base_leaves_nothing_behind() {
    let cluster = server();
    let (one, other) = (driver(&cluster), driver(&cluster));
    let mut etcd = raw(&cluster).await;
    for _ in 0..3 {
        of_lock(&one).await;
        etcd.put(KEY, format!("tenure/1\nlocks={}\ndeliveries=1\n", FenceFloor::now().get()), None).await.unwrap();
        of_lock(&other).await;
    }
    one.close().await;
    other.close().await;
    left(&mut etcd, 0, 0).await;
}

/// What a client knows is older than what another one made of the base since.
#[tokio::test]
async fn a_base_that_was_deleted_is_made_anew_beyond_the_clock() {
    let cluster = server();
    let (older, newer) = (driver(&cluster), driver(&cluster));
    of_lock(&older).await;
    tokio::time::sleep(std::time::Duration::from_micros(3 * LAG)).await; // a base that lags less is not raised
    let last = of_lock(&newer).await;
    raw(&cluster).await.delete(KEY, None).await.unwrap();
    let next = of_lock(&older).await;
    assert!(next > last, "{next} after {last}");
}

#[tokio::test]
async fn a_base_that_is_damaged_grants_nothing_and_is_named() {
    let cluster = server();
    let mut etcd = raw(&cluster).await;
    let (fresh, used) = (driver(&cluster), driver(&cluster));
    of_lock(&used).await;
    let beyond = format!("tenure/1\nlocks={}\ndeliveries=1\n", 1_u64 << 53);
    let texts = ["", "nonsense", "tenure/1\nlocks=1\n", "tenure/1\nlocks=-1\ndeliveries=1\n", beyond.as_str()];
    for text in texts {
        etcd.put(KEY, text, None).await.unwrap();
        for driver in [&fresh, &used] {
            driver.push(&queue(), &[message(b"x")]).await.unwrap();
            let lock = driver.acquire(&request(&name("a"), OwnerToken::random(), 60)).await.unwrap_err();
            let asked = tenure_core::driver::ReceiveRequest::new(queue(), 1, tenure_core::driver::Lease::DEFAULT);
            let delivery = driver.receive(&asked).await.unwrap_err();
            for error in [lock, delivery] {
                assert_eq!(error.kind(), ErrorKind::Damaged, "{text:?}: {error}");
                assert!(error.message().contains(KEY), "{text:?}: {error}");
            }
            assert!(driver.inspect(&name("a")).await.unwrap().holder.is_none());
        }
    }
    etcd.delete(KEY, None).await.unwrap();
    let last = of_lock(&used).await;
    assert!(of_lock(&fresh).await > last);
}
