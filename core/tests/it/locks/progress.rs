//! How many waiters are ahead, shown while a lock is waited for.

use std::time::Duration;

use tenure_core::{Client, Lock, LockGuard, Result, WaitProgress};
use tenure_memory::MemoryDriver;
use tokio::task::JoinHandle;
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(60);

/// A waiter that was told of its place, and what shows it.
async fn waiter(lock: Lock) -> (JoinHandle<Result<LockGuard>>, WaitProgress) {
    let mut progress = WaitProgress::new();
    let lock = lock.progress(&progress);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    timeout(SOON, progress.changed()).await.expect("it is reported");
    (waiting, progress)
}

#[tokio::test(start_paused = true)]
async fn waiters_of_several_clients_see_how_many_are_ahead_and_move_up() {
    let driver = MemoryDriver::new();
    let clients: [Client; 4] = std::array::from_fn(|_| Client::new(driver.clone()));
    let guard = clients[0].lock("a").acquire().await.unwrap();
    let (second, first_place) = waiter(clients[1].lock("a")).await;
    let (third, second_place) = waiter(clients[2].lock("a")).await;
    let (_fourth, mut third_place) = waiter(clients[3].lock("a")).await;
    assert_eq!([&first_place, &second_place, &third_place].map(WaitProgress::ahead), [Some(0), Some(1), Some(2)]);
    third.abort();
    assert_eq!(timeout(SOON, third_place.changed()).await, Ok(Some(1)), "one of two left");
    guard.release().await.unwrap();
    let guard = second.await.unwrap().unwrap();
    assert_eq!(timeout(SOON, third_place.changed()).await, Ok(Some(0)), "the other one has the lock");
    assert_eq!(first_place.ahead(), Some(0), "what was known last");
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn tasks_of_one_client_count_those_before_them() {
    let driver = MemoryDriver::new();
    let (other, client) = (Client::new(driver.clone()), Client::new(driver));
    let guard = other.lock("a").acquire().await.unwrap();
    let (first, _) = waiter(client.lock("a")).await;
    let (_second, place) = waiter(client.lock("a")).await;
    let mut places = [place, waiter(client.lock("a")).await.1];
    assert_eq!(places.each_ref().map(WaitProgress::ahead), [Some(1), Some(2)]);
    let (joins, progress) = (client.lock("a"), WaitProgress::new());
    let joins = joins.progress(&progress);
    let last = tokio::spawn(async move { joins.acquire().await.map(drop) });
    tokio::task::yield_now().await;
    assert_eq!(progress.ahead(), Some(3), "known without asking");
    last.abort();
    first.abort();
    for (place, ahead) in places.iter_mut().zip(0..) {
        let moved = async { while place.changed().await != Some(ahead) {} };
        timeout(SOON, moved).await.expect("it moves up");
    }
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn no_event_for_a_lock_that_was_free_or_for_a_single_attempt() {
    let client = Client::new(MemoryDriver::new());
    let mut progress = WaitProgress::new();
    let lock = client.lock("a").progress(&progress);
    let guard = lock.acquire().await.unwrap();
    assert_eq!(progress.ahead(), None);
    assert!(lock.try_acquire().await.unwrap().is_none());
    assert_eq!(progress.ahead(), None, "it joined no line");
    assert!(lock.acquire_within(Duration::from_millis(1)).await.unwrap_err().is_timed_out());
    assert_eq!(progress.changed().await, Some(0), "the last place before the wait ended");
    guard.release().await.unwrap();
    lock.acquire().await.unwrap().release().await.unwrap();
    assert_eq!(progress.changed().await, None, "a new wait begins with nothing");
}
