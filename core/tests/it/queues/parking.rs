//! Messages that wait for a lock: when a client stands in line for them, and what becomes of the lock's hold.

use std::time::Duration;

use tenure_core::queue::{Message, Queue, Text};
use tenure_core::{Client, ErrorKind, LockGuard};
use tenure_memory::{MemoryDriver, Operation};
use tokio::time::{sleep, timeout};

use crate::queues::stage::{ms, staged};

const HOUR: Duration = Duration::from_secs(3_600);

/// The lock, in the hands of another client.
async fn taken(memory: &MemoryDriver) -> LockGuard {
    Client::new(memory.another_client()).lock("account").acquire().await.unwrap()
}

/// Parks a message behind the lock, and waits until its client stands in line for it, if it does.
async fn park(queue: &Queue<String>, text: &str) {
    queue.push_many([Message::new(&text.to_owned()).parked("account", HOUR)]).await.unwrap();
    sleep(ms(100)).await;
}

async fn handed_out(queue: &Queue<String>) -> String {
    let delivery = timeout(ms(200), queue.receive()).await.expect("its turn has come").unwrap();
    delivery.value().unwrap().clone()
}

/// No lock is kept for a message that nobody would handle.
#[tokio::test(start_paused = true)]
async fn a_parked_message_has_its_turn_as_soon_as_its_client_has_room() {
    for by_settling in [true, false] {
        let (_, memory, client, queue) = staged();
        queue.push(&"in hand".to_owned()).await.unwrap();
        let in_hand = queue.receive().await.unwrap();
        let guard = taken(&memory).await;
        park(&queue, "x").await;
        guard.release().await.unwrap();
        sleep(ms(100)).await;
        assert_eq!(queue.stats().await.unwrap().ready, 0, "all are busy");
        if by_settling {
            in_hand.ack().await.unwrap();
            sleep(ms(100)).await;
            assert_eq!(queue.stats().await.unwrap().ready, 1);
        } else {
            let delivery = timeout(ms(200), queue.receive()).await.expect("its turn has come").unwrap();
            assert!(client.lock("account").try_acquire_for(&delivery).await.unwrap().is_some());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_nobody_handles_holds_up_none_of_another_queue() {
    for paused in [true, false] {
        let (_, memory, client, jobs) = staged();
        let mails = client.queue_with("mails", Text).unwrap();
        let guard = taken(&memory).await;
        let mut in_hand = None;
        if paused {
            jobs.pause().await.unwrap();
        } else {
            jobs.push(&"in hand".to_owned()).await.unwrap();
            in_hand = Some(jobs.receive().await.unwrap());
        }
        park(&jobs, "first").await;
        park(&jobs, "second").await;
        park(&mails, "third").await;
        guard.release().await.unwrap();
        assert_eq!(handed_out(&mails).await, "third");
        drop(in_hand);
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_continues_in_line_after_a_failure() {
    let (_, memory, _, queue) = staged();
    let guard = taken(&memory).await;
    memory.faults().fail_next(Operation::Acquire, ErrorKind::Denied);
    park(&queue, "x").await;
    guard.release().await.unwrap();
    sleep(ms(1_000)).await;
    assert_eq!(handed_out(&queue).await, "x");
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_surely_went_to_no_message_goes_back_and_one_in_doubt_ends_by_itself() {
    for (kind, goes_back) in [(ErrorKind::Unavailable, true), (ErrorKind::Indeterminate, false)] {
        let (_, memory, _, queue) = staged();
        let other = Client::new(memory.another_client()).lock("account");
        let guard = taken(&memory).await;
        park(&queue, "x").await;
        memory.faults().fail_next(Operation::Operate, kind);
        guard.release().await.unwrap();
        sleep(ms(100)).await;
        assert_eq!(other.try_acquire().await.unwrap().is_some(), goes_back);
        sleep(ms(2_000)).await;
        assert!(other.try_acquire().await.unwrap().is_some());
    }
}
