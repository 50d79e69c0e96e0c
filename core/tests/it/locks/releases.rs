//! What a release says of a hold that was lost, of every kind of guard.

use std::time::Duration;

use tenure_core::{Error, ErrorKind, LostReason, OwnerId};
use tokio::time::sleep;

use crate::locks::stage::{Stage, Step, TTL, steps};

#[track_caller]
fn assert_lost(error: &Error, reason: LostReason) {
    assert_eq!((error.kind(), error.message()), (ErrorKind::Lost, &*reason.to_string()), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_release_that_finds_nothing_held_is_a_loss() {
    let (_, client) = Stage { release: steps([Step::Lost; 2]), ..Stage::default() }.client();
    let plain = client.lock("a").acquire().await.unwrap();
    assert!(plain.is_held());
    let error = plain.release().await.unwrap_err();
    assert_lost(&error, LostReason::Gone);
    assert_eq!(error.to_string(), "lease lost: the backend no longer knows it (release of \"a\" through stage)");
    let entry = client.reentrant("a", &OwnerId::new()).acquire().await.unwrap();
    assert_lost(&entry.release().await.unwrap_err(), LostReason::Gone);
}

#[tokio::test(start_paused = true)]
async fn a_release_of_a_hold_that_is_known_to_be_lost_says_why() {
    let (_, client) = Stage::default().client();
    let lock = client.lock("a");
    let capped = lock.clone().max_hold(Duration::from_secs(5)).acquire().await.unwrap();
    let fixed = lock.fixed_ttl(Duration::from_secs(5)).acquire().await.unwrap();
    let entry = client.reentrant("a", &OwnerId::new()).fixed_ttl(Duration::from_secs(5));
    let entry = entry.acquire().await.unwrap();
    sleep(Duration::from_secs(6)).await;
    assert_lost(&capped.release().await.unwrap_err(), LostReason::MaxHold);
    assert_lost(&fixed.release().await.unwrap_err(), LostReason::Expired);
    assert_lost(&entry.release().await.unwrap_err(), LostReason::Expired);
}

#[tokio::test(start_paused = true)]
async fn a_loss_is_reported_although_the_release_fails() {
    let (stage, client) = Stage { release: steps([Step::Fail(ErrorKind::Unavailable)]), ..Stage::default() }.client();
    let guard = client.lock("a").fixed_ttl(Duration::from_secs(5)).acquire().await.unwrap();
    // No task runs in between, so that the release is the first to notice.
    tokio::time::advance(Duration::from_secs(6)).await;
    assert_lost(&guard.release().await.unwrap_err(), LostReason::Expired);
    client.close(TTL).await.unwrap();
    assert!(!stage.sent("release").is_empty());
}

#[tokio::test(start_paused = true)]
async fn of_several_locks_the_lost_one_is_reported_before_one_that_fails() {
    let release = steps([Step::Fail(ErrorKind::Unavailable), Step::Lost]);
    let (stage, client) = Stage { release, ..Stage::default() }.client();
    let guards = client.lock_all(["a", "b", "c"]).acquire().await.unwrap();
    let error = guards.release().await.unwrap_err();
    assert_lost(&error, LostReason::Gone);
    assert_eq!(error.name().unwrap().as_bytes(), b"b");
    client.close(TTL).await.unwrap();
    assert_eq!(stage.sent("release").len(), 4, "the failed one is carried on");
}

#[tokio::test(start_paused = true)]
async fn an_exit_tells_how_many_entries_are_left() {
    let client = tenure_core::Client::new(tenure_memory::MemoryDriver::new());
    let entries = client.reentrant("a", &OwnerId::new());
    let (outer, inner) = (entries.acquire().await.unwrap(), entries.acquire().await.unwrap());
    assert_eq!(inner.release().await.unwrap(), 1);
    assert_eq!(outer.release().await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn closing_waits_for_a_release_under_way_and_carries_it_on() {
    let (stage, client) = Stage { release: steps([Step::Slow(TTL * 2)]), ..Stage::default() }.client();
    let guard = client.lock("a").acquire().await.unwrap();
    let releasing = tokio::spawn(guard.release());
    tokio::task::yield_now().await;
    assert_eq!(stage.sent("release").len(), 1, "it is on its way");
    client.close(TTL).await.unwrap();
    assert_eq!(releasing.await.unwrap().unwrap_err().kind(), ErrorKind::Indeterminate);
    assert_eq!(stage.sent("release").len(), 2, "what was not acknowledged is sent again");
}
