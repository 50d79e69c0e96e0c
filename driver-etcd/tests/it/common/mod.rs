//! What the tests share.
#![allow(dead_code, unreachable_pub, missing_docs, reason = "each test binary uses a part of it")]

use std::time::Duration;

use tenure_core::driver::{
    AcquireRequest, Acquisition, Busy, DelayQueueExt as _, Grant, Handing, Hold, Lease, NewMessage, Payload, Queueing,
    RawDelivery, ReceiveRequest, Received, ReentrantEntry, Settle, Settled, Settlement, Ttl,
};
use tenure_core::queue::QueueName;
use tenure_core::{Client, LockName, OwnerId, OwnerToken};
use tenure_etcd::EtcdDriver;
use tenure_testkit::{EtcdCluster, EtcdOptions};

/// Long enough for a machine that is busy with something else.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub const SECOND: Duration = Duration::from_secs(1);

/// A server of this test's own.
pub fn server() -> EtcdCluster {
    EtcdCluster::single(EtcdOptions::new()).unwrap()
}

pub fn driver(cluster: &EtcdCluster) -> EtcdDriver {
    EtcdDriver::new(cluster.url().parse().unwrap())
}

pub fn client(cluster: &EtcdCluster) -> Client {
    Client::builder(driver(cluster)).op_timeout(Duration::from_secs(3)).build().unwrap()
}

/// The client library itself, for a look past the driver.
pub async fn raw(cluster: &EtcdCluster) -> etcd_client::Client {
    let urls: Vec<_> = cluster.ports().iter().map(|port| format!("127.0.0.1:{port}")).collect();
    etcd_client::Client::connect(urls, None).await.unwrap()
}

/// How many keys there are, but for the bases of fences, which stay.
pub async fn key_count(etcd: &mut etcd_client::Client) -> i64 {
    let all = etcd_client::GetOptions::new().with_all_keys().with_keys_only();
    let found = etcd.get("", Some(all)).await.unwrap();
    found.kvs().iter().filter(|key| !key.key().ends_with(b"/%/fences")).count() as i64
}

pub async fn lease_count(etcd: &mut etcd_client::Client) -> usize {
    etcd.leases().await.unwrap().leases().len()
}

/// Waits until so many keys and leases are left: a lease that is kept for the next lock is revoked within about two
/// seconds. Leases in tests that ask this last longer than it waits.
pub async fn left(etcd: &mut etcd_client::Client, keys: i64, leases: usize) {
    let start = std::time::Instant::now();
    loop {
        let found = (key_count(etcd).await, lease_count(etcd).await);
        if found == (keys, leases) {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "keys and leases left: {found:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

pub fn name(text: &str) -> LockName {
    LockName::new(text).unwrap()
}

pub fn request(name: &LockName, token: OwnerToken, secs: u64) -> AcquireRequest {
    let ttl = Ttl::new(Duration::from_secs(secs)).unwrap();
    AcquireRequest::new(name.clone(), token, ttl)
}

pub fn joining(name: &LockName, token: OwnerToken, secs: u64, presence: u64) -> AcquireRequest {
    let queue = Queueing::Join { presence: Duration::from_secs(presence), accepts: Handing::Asked };
    request(name, token, secs).with_queue(queue)
}

pub fn hold(name: &LockName, token: OwnerToken) -> Hold {
    Hold::new(name.clone(), token)
}

pub fn entry(name: &LockName, owner: OwnerId, token: OwnerToken) -> ReentrantEntry {
    ReentrantEntry::new(name.clone(), owner, token)
}

pub fn ttl(secs: u64) -> Ttl {
    Ttl::new(Duration::from_secs(secs)).unwrap()
}

pub fn queue() -> QueueName {
    QueueName::new("jobs").unwrap()
}

pub fn message(payload: &[u8]) -> NewMessage {
    NewMessage::new(Payload::new(payload).unwrap())
}

pub async fn ack(driver: &EtcdDriver, deliveries: &[RawDelivery]) -> Vec<Settled> {
    let settle = |delivery: &RawDelivery| Settle::new(delivery.receipt, Settlement::Ack);
    driver.settle(&queue(), &deliveries.iter().map(settle).collect::<Vec<_>>()).await.unwrap()
}

pub async fn receive(driver: &EtcdDriver, max: usize, lease: Duration) -> Received {
    driver.receive(&ReceiveRequest::new(queue(), max, Lease::new(lease).unwrap())).await.unwrap()
}

#[track_caller]
pub fn granted(answer: tenure_core::Result<Acquisition>) -> Grant {
    match answer {
        Ok(Acquisition::Granted(grant)) => grant,
        other => panic!("not granted: {other:?}"),
    }
}

#[track_caller]
pub fn busy(answer: tenure_core::Result<Acquisition>) -> Busy {
    match answer {
        Ok(Acquisition::Busy(busy)) => busy,
        other => panic!("not busy: {other:?}"),
    }
}

/// Asks until it is so.
pub async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let start = std::time::Instant::now();
    while !condition().await {
        assert!(start.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
