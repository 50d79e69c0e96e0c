//! Locks of several clients, taken together.

use std::time::Duration;

use tenure_core::{Client, ErrorKind, LockAll};
use tenure_memory::{MemoryDriver, Operation};

const SOON: Duration = Duration::from_millis(100);

fn clients() -> [Client; 2] {
    [MemoryDriver::new(), MemoryDriver::new()].map(Client::new)
}

async fn is_free(client: &Client, name: &str) -> bool {
    client.lock(name).inspect().await.unwrap().holder.is_none()
}

#[tokio::test(start_paused = true)]
async fn locks_of_several_clients_are_taken_in_the_order_of_their_names() {
    let [one, other] = clients();
    let guard = other.lock("a").acquire().await.unwrap();
    let all = LockAll::of([one.lock("b"), other.lock("a")]);
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
async fn no_time_at_all_is_one_attempt_for_each() {
    let [one, other] = clients();
    let all = LockAll::of([one.lock("a"), other.lock("b")]);
    let both = all.acquire_within(Duration::ZERO).await.unwrap();
    let error = all.acquire_within(Duration::ZERO).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    both.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn locks_of_one_name_are_taken_in_the_order_in_which_they_are_given() {
    let [old, new] = clients();
    let lock = |client: &Client| client.lock("a");
    let guard = lock(&new).acquire().await.unwrap();
    for (given, free) in [([&old, &new], false), ([&new, &old], true)] {
        let all = LockAll::of(given.map(lock));
        let waiting = tokio::spawn(async move { all.acquire().await });
        tokio::time::sleep(SOON).await;
        assert_eq!(is_free(&old, "a").await, free);
        waiting.abort();
        tokio::time::sleep(SOON).await;
        assert!(is_free(&old, "a").await, "what was taken is given back");
    }
    guard.release().await.unwrap();
    let both = LockAll::of([&old, &new].map(lock)).acquire().await.unwrap();
    assert_eq!(both.guards().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_given_twice_counts_once() {
    let [one, other] = clients();
    let lock = |client: &Client| client.lock("a");
    let all = LockAll::of([lock(&one), lock(&other), lock(&one.clone()), lock(&other)]);
    let guard = all.acquire_within(SOON).await.unwrap();
    assert_eq!(guard.guards().len(), 2);
    assert_eq!(LockAll::of([]).acquire().await.unwrap_err().kind(), ErrorKind::InvalidArgument);
    let many = |count| LockAll::of((0..count).map(|number| one.lock(number.to_string())));
    assert_eq!(many(LockAll::MAX_NAMES + 1).acquire().await.unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(many(LockAll::MAX_NAMES).acquire().await.unwrap().guards().len(), LockAll::MAX_NAMES);
}

#[tokio::test(start_paused = true)]
async fn what_is_left_of_several_leases_is_what_is_left_of_the_shortest() {
    let [one, other] = clients();
    let (long, short) = (Duration::from_secs(60), Duration::from_secs(10));
    let all = LockAll::of([one.lock("a").fixed_ttl(long), other.lock("b").fixed_ttl(short)]);
    let guard = all.acquire().await.unwrap();
    let left = guard.remaining();
    assert!(left > short * 9 / 10 && left <= short, "{left:?}");
}

/// The last taken is given back first.
#[tokio::test(start_paused = true)]
async fn a_release_of_several_tells_a_loss_before_other_errors_and_those_before_success() {
    let both = async |fails: &[&str], lost: &[&str]| {
        let drivers = [MemoryDriver::new(), MemoryDriver::new()];
        let names = ["a", "b"];
        let locks = drivers.clone().map(Client::new).into_iter().zip(names);
        let all = LockAll::of(locks.map(|(client, name)| client.lock(name)));
        let guard = all.acquire().await.unwrap();
        for (driver, name) in drivers.iter().zip(names) {
            if fails.contains(&name) {
                driver.faults().fail_next(Operation::Release, ErrorKind::Denied);
            }
            if lost.contains(&name) {
                driver.faults().lose(name).unwrap();
            }
        }
        guard.release().await.map_err(|error| (error.kind(), error.name().map(ToString::to_string).unwrap_or_default()))
    };
    assert_eq!(both(&[], &[]).await, Ok(()));
    for (fails, lost, reported) in [
        (["b"].as_slice(), [].as_slice(), (ErrorKind::Denied, "b")),
        (&["a"], &[], (ErrorKind::Denied, "a")),
        (&["b"], &["a"], (ErrorKind::Lost, "a")),
        (&["a"], &["b"], (ErrorKind::Lost, "b")),
        (&[], &["b"], (ErrorKind::Lost, "b")),
        (&[], &["a", "b"], (ErrorKind::Lost, "b")),
    ] {
        let reported = (reported.0, reported.1.to_owned());
        assert_eq!(both(fails, lost).await, Err(reported), "{fails:?} fail, {lost:?} are lost");
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_lock_to_be_free_waits_out_what_passes_once_the_lock_was_seen() {
    let driver = MemoryDriver::new();
    let guard = Client::new(driver.another_client()).lock("a").acquire().await.unwrap();
    let lock = Client::new(driver.clone()).lock("a");
    let faults = driver.faults();
    faults.fail_next(Operation::Inspect, ErrorKind::Unavailable);
    assert_eq!(lock.until_free().await.unwrap_err().kind(), ErrorKind::Unavailable, "nothing was seen yet");
    for (fails, reported) in [(ErrorKind::Unavailable, None), (ErrorKind::Denied, Some(ErrorKind::Denied))] {
        let lock = lock.clone();
        let waiting = tokio::spawn(async move { lock.until_free().await });
        tokio::time::sleep(SOON).await;
        faults.fail_next(Operation::Inspect, fails);
        tokio::time::sleep(Duration::from_secs(5)).await;
        waiting.abort(); // no effect on one that has ended
        let ended = waiting.await.ok().and_then(Result::err);
        assert_eq!(ended.map(|error| error.kind()), reported);
    }
    guard.release().await.unwrap();
    lock.until_free().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn locks_of_which_one_has_ended_meanwhile_are_not_held_together() {
    let memory = MemoryDriver::new();
    let [client, other] = [memory.another_client(), memory].map(Client::new);
    let span = Duration::from_millis(100);
    let guard = other.lock("b").acquire().await.unwrap();
    let both = client.lock_all(["a", "b"]).fixed_ttl(span);
    let waiting = tokio::spawn(async move { both.acquire().await.map(drop) });
    tokio::time::sleep(span * 2).await;
    guard.release().await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap_err().kind(), ErrorKind::Lost);
}
