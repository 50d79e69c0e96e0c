//! Locks of several clients, taken together.

use std::time::Duration;

use tenure_core::{Client, ErrorKind, LockAll};
use tenure_memory::MemoryDriver;

const SOON: Duration = Duration::from_millis(100);

fn clients() -> [Client; 2] {
    [MemoryDriver::new(), MemoryDriver::new()].map(Client::new)
}

async fn is_free(client: &Client, name: &str) -> bool {
    client.lock(name).unwrap().inspect().await.unwrap().holder.is_none()
}

#[tokio::test(start_paused = true)]
async fn locks_of_several_clients_are_taken_in_the_order_of_their_names() {
    let [one, other] = clients();
    let guard = other.lock("a").unwrap().acquire().await.unwrap();
    let all = LockAll::of([one.lock("b").unwrap(), other.lock("a").unwrap()]).unwrap();
    assert!(all.try_acquire().await.unwrap().is_none());
    let error = all.acquire_within(SOON).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let waiting = tokio::spawn(async move { all.acquire().await });
    tokio::time::sleep(SOON).await;
    assert!(is_free(&one, "b").await, "the lock of the greater name is taken last");
    guard.release().await.unwrap();
    let both = waiting.await.unwrap().unwrap();
    assert!(!is_free(&one, "b").await && !is_free(&other, "a").await);
    both.release().await.unwrap();
    assert!(is_free(&one, "b").await && is_free(&other, "a").await);
}

#[tokio::test(start_paused = true)]
async fn locks_of_one_name_are_taken_in_the_order_in_which_they_are_given() {
    let [old, new] = clients();
    let lock = |client: &Client| client.lock("a").unwrap();
    let guard = lock(&new).acquire().await.unwrap();
    for (given, free) in [([&old, &new], false), ([&new, &old], true)] {
        let all = LockAll::of(given.map(lock)).unwrap();
        let waiting = tokio::spawn(async move { all.acquire().await });
        tokio::time::sleep(SOON).await;
        assert_eq!(is_free(&old, "a").await, free);
        waiting.abort();
        tokio::time::sleep(SOON).await;
        assert!(is_free(&old, "a").await, "what was taken is given back");
    }
    guard.release().await.unwrap();
    let both = LockAll::of([&old, &new].map(lock)).unwrap().acquire().await.unwrap();
    assert_eq!(both.guards().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_given_twice_counts_once() {
    let [one, other] = clients();
    let lock = |client: &Client| client.lock("a").unwrap();
    let all = LockAll::of([lock(&one), lock(&other), lock(&one.clone()), lock(&other)]).unwrap();
    let guard = all.acquire_within(SOON).await.unwrap();
    assert_eq!(guard.guards().len(), 2);
    assert_eq!(LockAll::of([]).unwrap_err().kind(), ErrorKind::InvalidArgument);
    let many = (0..=LockAll::MAX_NAMES).map(|number| one.lock(number.to_string()).unwrap());
    assert_eq!(LockAll::of(many).unwrap_err().kind(), ErrorKind::InvalidArgument);
}
