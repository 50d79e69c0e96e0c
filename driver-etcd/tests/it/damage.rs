//! Damage by a foreign hand to what is no message: it is told by the key, and nothing is handed out past it.

use std::time::Duration;

use crate::common::*;
use tenure_core::driver::{
    DelayQueue as _, DelayQueueExt as _, DistributedLock as _, Lease, QueueAdmin as _, ReceiveRequest, Released,
};
use tenure_core::queue::{QueueLimits, QueueName, Rate};
use tenure_core::{ErrorKind, OwnerToken};

#[tokio::test]
async fn limits_that_cannot_be_read_are_named_and_are_not_none() {
    let cluster = server();
    let (driver, mut etcd) = (driver(&cluster), raw(&cluster).await);
    let fine = QueueName::new("fine").unwrap();
    let limits = QueueLimits::none().rate(Rate::new(9, Duration::from_secs(9)).unwrap());
    driver.limit(&queue(), &limits).await.unwrap();
    driver.push(&queue(), &[message(b"a"), message(b"b")]).await.unwrap();
    let first = receive(&driver, 1, 30 * SECOND).await.deliveries;
    assert_eq!(first.len(), 1);
    let all = etcd.get("", Some(etcd_client::GetOptions::new().with_all_keys())).await.unwrap();
    let holding = |sign: fn(&str) -> bool| {
        let text = |found: &&etcd_client::KeyValue| std::str::from_utf8(found.value()).is_ok_and(sign);
        all.kvs().iter().find(text).map(|found| (found.key().to_vec(), found.value().to_vec())).unwrap()
    };
    let set = holding(|text| text.starts_with("rate="));
    let bucket = holding(|text| text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_digit()));
    let request = |queue| ReceiveRequest::new(queue, 9, Lease::DEFAULT);
    for (key, good, damages) in [
        (&set.0, &set.1, [&b""[..], b"foreign", b"rate=0/0\n", b"in_flight=99999999999999999999\n", b"\xff\n"]),
        (&bucket.0, &bucket.1, [&b""[..], b"foreign", b"-1", b"18446744073709551616", b"\xff\n"]),
    ] {
        for damage in damages {
            etcd.put(key.as_slice(), damage, None).await.unwrap();
            let refused = tokio::time::timeout(PATIENCE, driver.receive(&request(queue()))).await.unwrap();
            let error = refused.expect_err(&damage.escape_ascii().to_string());
            assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
            assert!(error.message().contains(&key.escape_ascii().to_string()), "{error}");
            assert!(!error.to_string().contains(char::is_control), "{error}");
            driver.push(&fine, &[message(b"fine")]).await.unwrap();
            assert_eq!(driver.receive(&request(fine.clone())).await.unwrap().deliveries.len(), 1);
        }
        etcd.put(key.as_slice(), good.as_slice(), None).await.unwrap();
    }
    etcd.put(set.0.as_slice(), "foreign", None).await.unwrap();
    assert_eq!(driver.stats(&queue()).await.unwrap_err().kind(), ErrorKind::Damaged);
    driver.limit(&queue(), &QueueLimits::none()).await.unwrap();
    let rest = receive(&driver, 9, 30 * SECOND).await.deliveries;
    assert_eq!((rest.len(), rest[0].attempt), (1, 1), "it did not age");
}

#[tokio::test]
async fn a_hold_that_somebody_overwrote_is_not_deleted_by_its_former_holder() {
    let cluster = server();
    let (driver, mut etcd) = (driver(&cluster), raw(&cluster).await);
    let all = etcd_client::GetOptions::new().with_all_keys();
    // A hold is ended in one way soon after its grant, and in another one later; the first one is too slow for the first.
    for round in 0..5 {
        let (lock, token) = (name(&format!("lock {round}")), OwnerToken::random());
        granted(driver.acquire(&request(&lock, token, 30)).await);
        let found = etcd.get("", Some(all.clone())).await.unwrap();
        let ours = found.kvs().iter().find(|found| found.key().ends_with(b"/hold")).unwrap();
        etcd.put(ours.key(), "foreign", None).await.unwrap();
        let released = driver.release(&hold(&lock, token)).await.unwrap();
        assert_eq!(released, Released::NotHeld);
        let left = etcd.get(ours.key(), None).await.unwrap();
        assert_eq!(left.kvs().first().map(etcd_client::KeyValue::value), Some(&b"foreign"[..]));
        assert!(driver.inspect(&lock).await.unwrap().holder.is_some());
        driver.force_release(&lock, None).await.unwrap();
        let next = OwnerToken::random();
        granted(driver.acquire(&request(&lock, next, 30)).await);
        driver.release(&hold(&lock, next)).await.unwrap();
    }
}
