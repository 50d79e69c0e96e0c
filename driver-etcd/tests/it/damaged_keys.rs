//! Damage by a foreign hand to any key that the driver writes: nothing panics and nothing hangs, what it is about is named, and
//! other names and queues go on.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::*;
use tenure_core::Result;
use tenure_core::driver::{
    DeadSelection, Delay, DelayQueue, DelayQueueExt as _, DistributedLock, Extension, Lease, Listed, NamedId,
    NewMessage, QueueAdmin as _, ReceiveRequest, ReentrantLock as _, Settle, Settlement,
};
use tenure_core::queue::{ConcurrencyKey, MessageId, QueueLimits, QueueName, Rate};
use tenure_core::{Error, ErrorKind, OwnerId, OwnerToken};
use tenure_etcd::{EtcdConfig, EtcdDriver};
use tenure_testkit::EtcdCluster;

static PANICS: AtomicUsize = AtomicUsize::new(0);

/// Those of this thread, which carries the test's tasks too. Other tests of the program have threads of their own.
fn count_panics() {
    let (usual, here) = (std::panic::take_hook(), std::thread::current().id());
    std::panic::set_hook(Box::new(move |info| {
        if std::thread::current().id() == here {
            PANICS.fetch_add(1, Ordering::Relaxed);
        }
        usual(info);
    }));
}

async fn with(cluster: &EtcdCluster, prefix: &str) -> EtcdDriver {
    let config: EtcdConfig = cluster.url().parse().unwrap();
    EtcdDriver::new(config.prefix(prefix).unwrap())
}

fn named(text: &str, id: &str) -> NewMessage {
    let window = Delay::new(Duration::from_millis(1)).unwrap();
    message(text.as_bytes()).with_id(Some(NamedId::new(MessageId::named(id).unwrap(), window)))
}

fn keyed(text: &str) -> NewMessage {
    message(text.as_bytes()).with_key(Some(ConcurrencyKey::new("k").unwrap()))
}

fn ask(max: usize) -> ReceiveRequest {
    ReceiveRequest::new(queue(), max, Lease::new(30 * SECOND).unwrap())
}

/// A bit of everything that the driver keeps.
async fn furnish(driver: &EtcdDriver) -> OwnerId {
    let owner = OwnerId::new();
    granted(driver.acquire(&request(&name("plain"), OwnerToken::random(), 30)).await);
    granted(driver.enter(&owner, &request(&name("entered"), OwnerToken::random(), 30)).await);
    busy(driver.acquire(&joining(&name("plain"), OwnerToken::random(), 30, 30)).await);
    driver.push(&queue(), &[message(b"dies"), named("settled", "settled"), keyed("flies")]).await.unwrap();
    let flying = driver.receive(&ask(3)).await.unwrap().deliveries;
    let ends = [Settlement::Dead { reason: None }, Settlement::Ack];
    let ends = flying.iter().zip(ends).map(|(delivery, how)| Settle::new(delivery.receipt, how));
    driver.settle(&queue(), &ends.collect::<Vec<_>>()).await.unwrap();
    driver.push(&queue(), &[keyed("held")]).await.unwrap();
    driver.receive(&ask(3)).await.unwrap();
    let rate = Rate::new(900, Duration::from_secs(1)).unwrap();
    driver.limit(&queue(), &QueueLimits::none().in_flight(90).unwrap().rate(rate)).await.unwrap();
    driver.push(&queue(), &[message(b"flies")]).await.unwrap();
    driver.receive(&ask(1)).await.unwrap();
    driver.push(&queue(), &[named("known", "known"), message(b"waits")]).await.unwrap();
    owner
}

/// What operations failed with.
type Failed = Vec<(&'static str, Error)>;

async fn use_locks(driver: &EtcdDriver, owner: &OwnerId, failed: &mut Failed) {
    let mut note = |what, result: Result<()>| failed.extend(result.err().map(|error| (what, error)));
    for lock in [name("plain"), name("entered")] {
        let token = OwnerToken::random();
        note("inspect", driver.inspect(&lock).await.map(drop));
        note("acquire", driver.acquire(&joining(&lock, token, 30, 30)).await.map(drop));
        note("again", driver.acquire(&joining(&lock, token, 30, 30)).await.map(drop));
        note("abandon", DistributedLock::abandon(driver, &hold(&lock, token)).await);
        let token = OwnerToken::random();
        note("enter", driver.enter(owner, &request(&lock, token, 30)).await.map(drop));
        note("exit", driver.exit(&entry(&lock, *owner, token)).await.map(drop));
        note("renew", DistributedLock::renew(driver, ttl(30), &[hold(&lock, token)]).await.remove(0).map(drop));
        note("force_release", driver.force_release(&lock, None).await.map(drop));
    }
}

async fn use_queue(driver: &EtcdDriver, failed: &mut Failed) {
    let mut note = |what, result: Result<()>| failed.extend(result.err().map(|error| (what, error)));
    let known = MessageId::named("known").unwrap();
    note("stats", driver.stats(&queue()).await.map(drop));
    note("get", driver.get(&queue(), &known).await.map(drop));
    note("list", driver.list(&queue(), Listed::Waiting, None, 9).await.map(drop));
    note("list flying", driver.list(&queue(), Listed::InFlight, None, 9).await.map(drop));
    note("push", driver.push(&queue(), &[named("anew", "known"), named("anew", "settled")]).await.map(drop));
    let _watch = DelayQueue::watch(driver, &queue()).await;
    match driver.receive(&ask(9)).await {
        Ok(received) => {
            let receipts: Vec<_> = received.deliveries.iter().map(|delivery| delivery.receipt).collect();
            let extension = |receipt: &_| Extension::new(*receipt, Lease::DEFAULT);
            note(
                "extend",
                driver.extend(&queue(), &receipts.iter().map(extension).collect::<Vec<_>>()).await.map(drop),
            );
            let settle = |receipt: &_| Settle::new(*receipt, Settlement::Ack);
            note("settle", driver.settle(&queue(), &receipts.iter().map(settle).collect::<Vec<_>>()).await.map(drop));
        }
        Err(error) => note("receive", Err(error)),
    }
    note("receive nothing", driver.receive(&ask(1)).await.map(drop));
    note("reschedule", driver.reschedule(&queue(), &known, Delay::ZERO).await.map(drop));
    note("cancel", driver.cancel(&queue(), &known).await.map(drop));
    note("pause", driver.pause(&queue()).await);
    note("resume", driver.resume(&queue()).await);
    note("dead_list", driver.dead_list(&queue(), None, 9).await.map(drop));
    note("dead_redrive", driver.dead_redrive(&queue(), &DeadSelection::Oldest(9), Delay::ZERO).await.map(drop));
    note("dead_purge", driver.dead_purge(&queue(), &DeadSelection::Oldest(9)).await.map(drop));
    note("purge", driver.purge(&queue(), 9, None).await.map(drop));
    note("list_queues", driver.list_queues(None, 9).await.map(drop));
}

/// With each number as great as numbers get.
fn swollen(value: &[u8], number: &str) -> Vec<u8> {
    let mut swollen = Vec::new();
    for run in value.chunk_by(|a, b| a.is_ascii_digit() == b.is_ascii_digit()) {
        swollen.extend_from_slice(if run[0].is_ascii_digit() { number.as_bytes() } else { run });
    }
    swollen
}

/// All keys of a prefix, without what makes them this run's.
async fn kinds(etcd: &mut etcd_client::Client, prefix: &str) -> BTreeMap<String, (Vec<u8>, Vec<u8>, i64)> {
    let all = etcd_client::GetOptions::new().with_prefix();
    let found = etcd.get(prefix, Some(all)).await.unwrap();
    let kind = |key: &[u8]| {
        let text = String::from_utf8_lossy(&key[prefix.len()..]).into_owned();
        let plain = text.split('/').map(|part| if part.len() >= 16 { "*" } else { part });
        plain.collect::<Vec<_>>().join("/")
    };
    let one = |found: &etcd_client::KeyValue| {
        (kind(found.key()), (found.key().to_vec(), found.value().to_vec(), found.lease()))
    };
    found.kvs().iter().map(one).collect()
}

#[tokio::test]
async fn no_damage_to_a_key_panics_or_hangs_or_reaches_others() {
    count_panics();
    let cluster = server();
    let mut etcd = raw(&cluster).await;
    let first = with(&cluster, "sample").await;
    furnish(&first).await;
    let sample = kinds(&mut etcd, "sample").await;
    let mut round = 0;
    for kind in sample.keys() {
        for damage in
            [None, Some(""), Some("foreign"), Some("9223372036854775807"), Some("18446744073709551615"), Some("-9")]
        {
            round += 1;
            let prefix = format!("p{round}");
            let writer = with(&cluster, &prefix).await;
            let owner = furnish(&writer).await;
            let Some((key, value, lease)) = kinds(&mut etcd, &prefix).await.remove(kind) else { continue };
            let damaged = match damage {
                None => vec![0xff, b'\n', 0x1b],
                Some(number) if number.bytes().any(|byte| byte.is_ascii_digit()) => swollen(&value, number),
                Some(text) => text.as_bytes().to_vec(),
            };
            let put = etcd_client::PutOptions::new().with_lease(lease);
            etcd.put(key.as_slice(), damaged, Some(put)).await.unwrap();
            let what = format!("{} as {damage:?}", key.escape_ascii());
            for driver in [&with(&cluster, &prefix).await, &writer] {
                let mut failed = Vec::new();
                let using = async {
                    use_locks(driver, &owner, &mut failed).await;
                    use_queue(driver, &mut failed).await;
                    driver.push(&QueueName::new("fine").unwrap(), &[message(b"fine")]).await.map(drop)
                };
                let fine = tokio::time::timeout(PATIENCE, using).await.unwrap_or_else(|_| panic!("{what}: hangs"));
                if !kind.contains("fences") {
                    fine.unwrap_or_else(|error| panic!("{what}: a neighbour: {error}"));
                }
                for (operation, error) in failed {
                    assert_eq!(error.kind(), ErrorKind::Damaged, "{what}: {operation}: {error}");
                    assert!(!error.to_string().contains(char::is_control), "{what}: {error}");
                }
            }
            assert_eq!(PANICS.load(Ordering::Relaxed), 0, "{what}");
        }
    }
}
