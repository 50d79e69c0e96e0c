//! Leases of many messages are extended together.

use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use tenure_core::queue::{Delivery, Job, Queue};
use tenure_core::{Error, ErrorKind};
use tenure_memory::Operation;
use tokio::time::{Instant, sleep, timeout};

use crate::queues::stage::{Mishap, QueueStage, ms, plan, staged};

const LEASE: Duration = ms(3_000);
const LONG: Duration = Duration::from_secs(60);

async fn push(queue: &Queue<String>, count: usize) {
    for _ in 0..count {
        queue.push(&"x".to_owned()).await.unwrap();
    }
}

async fn in_flight(queue: &Queue<String>, count: u64) {
    let waiting = async {
        while queue.stats().await.unwrap().in_flight != count {
            sleep(ms(10)).await;
        }
    };
    timeout(LONG, waiting).await.expect("all are in flight");
}

fn extended(stage: &QueueStage) -> Vec<usize> {
    std::mem::take(&mut *stage.extended.lock().unwrap())
}

/// Workers whose handlers never end, over messages that come in waves.
async fn busy(queue: &Queue<String>, waves: usize, each: usize, apart: Duration) -> tenure_core::queue::Worker {
    let queue = queue.clone().lease(LEASE);
    let worker =
        queue.worker().concurrency(waves * each).start(async |_: Job<String>| std::future::pending::<()>().await);
    for wave in 1..=waves {
        push(&queue, each).await;
        in_flight(&queue, (wave * each) as u64).await;
        sleep(apart).await;
    }
    worker.unwrap()
}

#[tokio::test(start_paused = true)]
async fn messages_that_came_at_different_times_are_extended_together() {
    let (stage, _, _, queue) = staged();
    let worker = busy(&queue, 10, 40, ms(30)).await;
    sleep(LEASE).await; // they fall into step
    extended(&stage);
    sleep(LEASE * 10).await;
    let (calls, batch) = (extended(&stage), queue.capabilities().batch);
    assert_eq!(calls.iter().max(), Some(&400.min(batch)), "{calls:?}");
    let rounds = 30 * 400_usize.div_ceil(batch);
    assert!((rounds / 2..=rounds + 2).contains(&calls.len()), "{} requests", calls.len());
    let stats = worker.abort().await;
    assert_eq!((stats.lost, stats.returned), (0, 400));
}

#[tokio::test(start_paused = true)]
async fn a_request_carries_a_batch_at_most() {
    let (stage, _, _, queue) = staged();
    let batch = queue.capabilities().batch;
    let worker = busy(&queue, 1, batch + 1, Duration::ZERO).await;
    extended(&stage);
    sleep(LEASE).await;
    assert!(extended(&stage).iter().all(|count| *count == batch || *count == 1));
    assert_eq!(worker.abort().await.lost, 0);
}

#[tokio::test(start_paused = true)]
async fn extensions_by_hand_leave_at_once_and_take_along_those_that_are_wanted_soon() {
    let (stage, _, _, queue) = staged();
    let worker = busy(&queue, 1, 5, Duration::ZERO).await;
    push(&queue, 3).await; // the worker has no room for them
    let by_hand = queue.clone().lease(LEASE).try_receive_many(3).await.unwrap();
    sleep(LEASE / 4).await; // more than half of a third
    let start = Instant::now();
    let all = join_all(by_hand.iter().map(|delivery: &Delivery<String>| delivery.extend(LEASE))).await;
    assert!(all.iter().all(Result::is_ok) && start.elapsed() < ms(10), "{all:?}");
    assert_eq!(extended(&stage), [8]);
    worker.abort().await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_receive_delays_no_extension_and_a_failed_one_is_tried_again() {
    let (stage, memory, _, queue) = staged();
    let worker = busy(&queue, 1, 20, Duration::ZERO).await;
    memory.faults().delay(Operation::Receive, LONG);
    let other = queue.clone();
    let receiving = tokio::spawn(async move { other.receive_within(LONG).await.map(drop) });
    plan(&stage.extends, [Mishap::Fail(ErrorKind::Unavailable), Mishap::Panic]);
    sleep(LEASE * 3).await;
    assert_eq!(worker.stats().lost, 0);
    assert!(extended(&stage).len() >= 9);
    worker.abort().await;
    receiving.abort();
}

#[tokio::test(start_paused = true)]
async fn extend_reports_the_end_and_failures() {
    let (stage, _, _, queue) = staged();
    push(&queue, 2).await;
    let queue = queue.clone().lease(LEASE);
    let both = queue.try_receive_many(2).await.unwrap();
    plan(&stage.extends, [Mishap::Fail(ErrorKind::Unavailable)]);
    let kind = |reported: Result<(), Error>| reported.map_err(|error| error.kind());
    assert_eq!(kind(both[0].extend(LEASE).await), Err(ErrorKind::Unavailable));
    assert_eq!(kind(both[0].extend(LEASE).await), Ok(()));
    assert_eq!(extended(&stage), [1, 1]);
    sleep(LEASE).await;
    assert_eq!(kind(both[0].extend(LEASE).await), Err(ErrorKind::Lost));
}

#[tokio::test(start_paused = true)]
async fn an_extension_that_is_given_up_before_it_leaves_extends_nothing() {
    let (stage, _, _, queue) = staged();
    push(&queue, 2).await;
    let queue = queue.clone().lease(LEASE);
    let both = queue.try_receive_many(2).await.unwrap();
    sleep(LEASE / 2).await;
    let given_up = both[0].extend(LEASE).now_or_never(); // polled once
    assert!(given_up.is_none());
    both[1].extend(LEASE).await.unwrap();
    assert_eq!(extended(&stage), [1]);
    sleep(LEASE * 3 / 4).await;
    assert!(both[0].is_lost() && !both[1].is_lost());
}

#[tokio::test(start_paused = true)]
async fn an_extension_that_is_answered_behind_the_end_of_its_lease_comes_too_late() {
    let (_, memory, _, queue) = staged();
    push(&queue, 1).await;
    let delivery = queue.clone().lease(LEASE).receive().await.unwrap();
    sleep(LEASE - ms(500)).await;
    memory.faults().delay_reply(Operation::Extend, ms(1_000));
    assert_eq!(delivery.extend(LEASE).await.unwrap_err().kind(), ErrorKind::Lost);
    assert!(delivery.is_lost(), "what was lost once does not come to life again");
}

#[tokio::test(start_paused = true)]
async fn a_delivery_that_the_backend_knows_no_more_is_lost_at_once() {
    let (_, memory, _, queue) = staged();
    push(&queue, 2).await;
    let queue = queue.clone().lease(LEASE);
    let both = queue.try_receive_many(2).await.unwrap();
    memory.faults().restart_empty();
    assert_eq!(both[0].extend(LEASE).await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!((both[0].is_lost(), both[1].is_lost()), (true, false), "nobody has asked for the other one");
}
