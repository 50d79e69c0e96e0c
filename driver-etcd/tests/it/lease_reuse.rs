//! A lease serves the next lock when nothing is on it, and nothing can come to be on it.

use std::time::Duration;

use crate::common::*;
use tenure_core::driver::{Begun, DistributedLock as _, Released};
use tenure_core::{LockName, OwnerToken};
use tenure_etcd::EtcdDriver;
use tenure_testkit::{EtcdCluster, Link, TcpProxy};

const MOMENT: Duration = Duration::from_millis(300);

/// The lease that the hold of this name is on, if there is one.
async fn lease_of(etcd: &mut etcd_client::Client, name: &str) -> Option<i64> {
    let found = etcd.get(format!("tenure/{name}/hold"), None).await.unwrap();
    found.kvs().first().map(etcd_client::KeyValue::lease)
}

/// A lock is taken and given back: its lease is kept.
async fn leave_one(driver: &EtcdDriver, secs: u64) {
    let (lock, token) = (name("before"), OwnerToken::random());
    granted(driver.acquire(&request(&lock, token, secs)).await);
    assert_eq!(driver.release(&hold(&lock, token)).await.unwrap(), Released::Released);
}

/// Takes a lock; tells its lease.
async fn take(driver: &EtcdDriver, etcd: &mut etcd_client::Client, lock: &LockName, secs: u64) -> (OwnerToken, i64) {
    let token = OwnerToken::random();
    granted(driver.acquire(&request(lock, token, secs)).await);
    let lease = lease_of(etcd, std::str::from_utf8(lock.as_bytes()).unwrap()).await.expect("it is held");
    (token, lease)
}

#[tokio::test]
async fn a_lease_that_serves_again_is_reported_as_what_is_left_of_it() {
    let cluster = server();
    let (driver, mut etcd) = (driver(&cluster), raw(&cluster).await);
    leave_one(&driver, 5).await;
    let kept = etcd.leases().await.unwrap().leases()[0].id();
    tokio::time::sleep(MOMENT).await;
    let (lock, token) = (name("again"), OwnerToken::random());
    let asked = request(&lock, token, 5);
    let grant = granted(driver.acquire(&asked).await);
    assert_eq!(lease_of(&mut etcd, "again").await, Some(kept));
    assert!(grant.ttl <= 5 * SECOND - MOMENT, "{grant:?}");
    let again = granted(driver.acquire(&asked).await);
    assert!(again.begun == Begun::Earlier && again.ttl <= 5 * SECOND - MOMENT, "{again:?}");
}

#[tokio::test]
async fn a_lease_of_another_length_or_age_does_not_serve() {
    let cluster = server();
    let (driver, mut etcd) = (driver(&cluster), raw(&cluster).await);
    leave_one(&driver, 5).await;
    let kept = etcd.leases().await.unwrap().leases()[0].id();
    let (_, other) = take(&driver, &mut etcd, &name("longer"), 60).await;
    assert_ne!(other, kept);
    tokio::time::sleep(2 * MOMENT).await; // a tenth of it has passed
    let (_, other) = take(&driver, &mut etcd, &name("later"), 5).await;
    assert_ne!(other, kept);
}

#[tokio::test]
async fn two_holds_at_a_time_are_on_two_leases() {
    let cluster = server();
    let (driver, mut etcd) = (driver(&cluster), raw(&cluster).await);
    leave_one(&driver, 60).await;
    let (_, one) = take(&driver, &mut etcd, &name("one"), 60).await;
    let (_, other) = take(&driver, &mut etcd, &name("other"), 60).await;
    assert_ne!(one, other);
}

#[tokio::test]
async fn a_release_takes_no_hold_that_somebody_else_has_by_now() {
    let cluster = server();
    let (driver, other, mut etcd) = (driver(&cluster), driver(&cluster), raw(&cluster).await);
    let lock = name("taken");
    let (token, _) = take(&driver, &mut etcd, &lock, 60).await;
    other.force_release(&lock, None).await.unwrap();
    let (theirs, lease) = take(&other, &mut etcd, &lock, 60).await;
    assert_eq!(driver.release(&hold(&lock, token)).await.unwrap(), Released::NotHeld);
    assert_eq!(lease_of(&mut etcd, "taken").await, Some(lease));
    assert_eq!(other.release(&hold(&lock, theirs)).await.unwrap(), Released::Released);
}

/// A token that asked twice may have two.
#[tokio::test]
async fn a_release_gives_back_every_lease_that_its_token_asked_for() {
    let cluster = server();
    let proxy = TcpProxy::start(cluster.ports()[0]).unwrap();
    let driver = EtcdDriver::new(EtcdCluster::url_of(&[proxy.port()]).parse().unwrap());
    let mut etcd = raw(&cluster).await;
    let (lock, token) = (name("twice"), OwnerToken::random());
    leave_one(&driver, 5).await;
    left(&mut etcd, 0, 0).await;
    proxy.set_present(Link::LosesReplies);
    tokio::time::timeout(MOMENT, driver.acquire(&request(&lock, token, 600))).await.unwrap_err();
    assert_eq!(lease_count(&mut etcd).await, 1);
    proxy.cut();
    until("the link is open again", async || driver.ping().await.is_ok()).await;
    granted(driver.acquire(&request(&lock, token, 600)).await);
    assert_eq!(lease_count(&mut etcd).await, 2);
    assert_eq!(driver.release(&hold(&lock, token)).await.unwrap(), Released::Released);
    left(&mut etcd, 0, 0).await;
}

/// Its request may not have arrived: the lock that it is on would last as long as the next one.
#[tokio::test]
async fn the_lease_of_a_release_without_an_answer_does_not_serve_again() {
    let cluster = server();
    let proxy = TcpProxy::start(cluster.ports()[0]).unwrap();
    let driver = EtcdDriver::new(EtcdCluster::url_of(&[proxy.port()]).parse().unwrap());
    let mut etcd = raw(&cluster).await;
    let lock = name("kept");
    let (token, lease) = take(&driver, &mut etcd, &lock, 60).await;
    proxy.set_present(Link::Silent);
    tokio::time::timeout(MOMENT, driver.release(&hold(&lock, token))).await.unwrap_err();
    proxy.cut();
    until("the link is open again", async || driver.ping().await.is_ok()).await;
    take(&driver, &mut etcd, &name("next"), 60).await;
    assert_eq!(lease_of(&mut etcd, "kept").await, Some(lease), "it did not arrive");
    assert_ne!(lease_of(&mut etcd, "next").await, Some(lease));
    assert_eq!(driver.release(&hold(&lock, token)).await.unwrap(), Released::Released);
    assert_eq!(lease_of(&mut etcd, "kept").await, None);
}

/// Whether it was granted or not, and whether nobody waits for the answer or it is an error: a request of the same token that is on its way may put a hold on it.
#[tokio::test]
async fn the_lease_of_a_request_without_an_answer_does_not_serve_again() {
    let cluster = server();
    let proxy = TcpProxy::start(cluster.ports()[0]).unwrap();
    let (driver, mut etcd) =
        (EtcdDriver::new(EtcdCluster::url_of(&[proxy.port()]).parse().unwrap()), raw(&cluster).await);
    let other = crate::common::driver(&cluster);
    for (busy, fails) in [(false, false), (false, true), (true, false), (true, true)] {
        let lock = name("asked");
        leave_one(&driver, 60).await;
        let known: Vec<i64> = etcd.leases().await.unwrap().leases().iter().map(|lease| lease.id()).collect();
        let theirs = match busy {
            true => Some(take(&other, &mut etcd, &lock, 60).await.0),
            false => None,
        };
        let token = OwnerToken::random();
        proxy.set_present(Link::LosesReplies);
        let asked = request(&lock, token, 60);
        if fails {
            let cut = async {
                tokio::time::sleep(MOMENT).await;
                proxy.cut();
            };
            tokio::join!(driver.acquire(&asked), cut).0.unwrap_err();
        } else {
            tokio::time::timeout(MOMENT, driver.acquire(&asked)).await.unwrap_err();
            proxy.cut();
        }
        let mut answer = None;
        until("the link is open again", async || {
            answer = driver.acquire(&request(&lock, token, 60)).await.ok();
            answer.is_some()
        })
        .await;
        if let Some(theirs) = theirs {
            crate::common::busy(Ok(answer.unwrap()));
            other.release(&hold(&lock, theirs)).await.unwrap();
        } else {
            assert_eq!(granted(Ok(answer.unwrap())).begun, Begun::Earlier);
            assert!(known.contains(&lease_of(&mut etcd, "asked").await.unwrap()), "it was a lease that served before");
            assert_eq!(driver.release(&hold(&lock, token)).await.unwrap(), Released::Released);
        }
        let (next, lease) = take(&driver, &mut etcd, &name("next"), 60).await;
        assert!(!known.contains(&lease), "it may still come to be on {lease}");
        driver.abandon(&hold(&lock, token)).await.unwrap();
        assert_eq!(driver.release(&hold(&name("next"), next)).await.unwrap(), Released::Released);
        driver.abandon(&hold(&name("next"), next)).await.unwrap();
        // Nothing is kept for the next round.
        until("what was kept is revoked", async || lease_count(&mut etcd).await == usize::from(busy)).await;
    }
}
