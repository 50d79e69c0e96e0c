//! The leases that a limit of messages in flight counts.

use crate::common::queue::{message, queue, up_to};
use crate::common::{Client, server};
use std::time::Duration;
use tenure_core::driver::{Attempts, DeadSelection, DelayQueueExt as _, Extension, Lease};
use tenure_core::queue::QueueLimits;

/// What ended leases leave behind does not stay for ever: nobody comes to remove it from a queue that is not used any more.
#[tokio::test]
async fn what_is_counted_of_leases_ends_by_itself() {
    let server = server();
    let q = Client::of(&server).await.queues;
    let jobs = queue("jobs");
    let counted = || server.cli(&["PTTL", "{tenure:dq:jobs}:l"]).unwrap().int().unwrap();
    let limits = QueueLimits::none().in_flight(9).unwrap();
    q.push(&jobs, &[message("flies before there is a limit", 0)]).await.unwrap();
    q.receive(&up_to(&jobs, 1)).await.unwrap();
    q.limit(&jobs, &limits).await.unwrap();
    let day = Lease::MAX.as_millis() as i64;
    assert!((day / 2..2 * day).contains(&counted()), "{}", counted());
    let dies = message("dies", 0).with_attempts(Attempts::new(1).unwrap());
    q.push(&jobs, &[dies]).await.unwrap();
    let request = up_to(&jobs, 1).with_lease(Lease::new(Lease::MIN).unwrap());
    let delivery = q.receive(&request).await.unwrap().deliveries.remove(0);
    assert!((day / 2..2 * day).contains(&counted()), "{}", counted());
    let extension = Extension::new(delivery.receipt, Lease::new(Duration::from_secs(1)).unwrap());
    server.cli(&["PERSIST", "{tenure:dq:jobs}:l"]).unwrap();
    q.extend(&jobs, &[extension]).await.unwrap();
    assert!((day / 2..2 * day).contains(&counted()), "{}", counted());
    while q.receive(&request).await.unwrap().healed.dead == 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    q.dead_purge(&jobs, &DeadSelection::Oldest(9)).await.unwrap();
    assert!(counted() == -2 || counted() > 0, "{}", counted());
}

/// What flies when a limit is replaced by another one is counted under that as well.
#[tokio::test]
async fn a_limit_in_place_of_another_counts_what_is_in_flight() {
    let server = server();
    let q = Client::of(&server).await.queues;
    let jobs = queue("jobs");
    q.push(&jobs, &vec![message("flies or waits", 0); 5]).await.unwrap();
    for (most, more) in [(2, 2), (3, 1), (1, 0)] {
        q.limit(&jobs, &QueueLimits::none().in_flight(most).unwrap()).await.unwrap();
        let received = q.receive(&up_to(&jobs, 9)).await.unwrap();
        assert_eq!(received.deliveries.len(), more, "at most {most}");
    }
}
