//! Locks that are left standing after their release, under a paused clock: what leaves, and when.

use std::time::Duration;

use tenure_core::driver::{ForceReleased, Ttl};
use tenure_core::{Client, ErrorKind, LostReason};
use tenure_memory::MemoryDriver;
use tokio::time::{Instant, sleep};

use crate::locks::stage::{Stage, Step, TTL, steps};

const SECOND: Duration = Duration::from_secs(1);

/// Releases after a second, and returns what was sent: until the release returned, a moment before the span was over, and a
/// moment after it.
async fn sent_around(stage: Stage, span: Duration) -> [(usize, usize); 3] {
    let (stage, client) = stage.client();
    let guard = client.lock("a").at_least(span).acquire().await.unwrap();
    sleep(SECOND).await;
    guard.release().await.unwrap();
    let sent = || (stage.sent("renew").len(), stage.sent("release").len());
    let at_once = sent();
    sleep(span - SECOND - Duration::from_millis(1)).await;
    let before = sent();
    sleep(Duration::from_millis(10)).await;
    assert_eq!((client.stats().holds, client.stats().cleanups, client.stats().standing), (0, 0, 0));
    [at_once, before, sent()]
}

/// Nobody else of the client is given such a lease, so the fences of others would be lost.
#[tokio::test(start_paused = true)]
async fn a_lease_that_may_be_left_standing_is_asked_for_with_one_fence() {
    let (stage, client) = Stage { range: 8, ..Stage::default() }.client();
    let lock = client.lock("a");
    let guard = lock.clone().at_least(SECOND).acquire().await.unwrap();
    drop((guard, lock.acquire().await.unwrap()));
    assert_eq!(*stage.fences.lock().unwrap(), [1, 8]);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_lasts_is_renewed_to_learn_that_it_is_still_there() {
    assert_eq!(sent_around(Stage::default(), 5 * SECOND).await, [(1, 0), (1, 0), (1, 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_release_tells_a_loss_although_the_lease_was_to_outlast_it() {
    let client = Client::new(MemoryDriver::new());
    let lock = client.lock("a").at_least(SECOND);
    let taken = async || assert_eq!(lock.force_release().await.unwrap(), ForceReleased::Released);
    let guard = lock.acquire().await.unwrap();
    taken().await;
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(lock.with(async |_| taken().await).await.unwrap_err().kind(), ErrorKind::Lost);
    sleep(SECOND / 10).await;
    assert_eq!((client.stats().standing, client.stats().cleanups), (0, 0));
    assert!(lock.try_acquire().await.unwrap().is_some(), "nothing is left standing");
}

/// A driver may say so by an error as well.
#[tokio::test(start_paused = true)]
async fn a_lease_that_is_not_held_any_more_cannot_be_left_standing() {
    let (renew, release) = (steps([Step::Fail(ErrorKind::NotHeld)]), steps([Step::Lost]));
    let (stage, client) = Stage { renew, release, ..Stage::default() }.client();
    let guard = client.lock("a").at_least(SECOND).acquire().await.unwrap();
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!((stage.sent("renew").len(), stage.sent("release").len()), (1, 1), "it is given back, to be sure");
}

#[tokio::test(start_paused = true)]
async fn a_dropped_guard_leaves_a_lease_that_lasts_as_it_is() {
    let (stage, client) = Stage::default().client();
    drop(client.lock("a").at_least(SECOND).acquire().await.unwrap());
    sleep(2 * SECOND).await;
    assert_eq!((stage.sent("renew").len(), stage.sent("release").len()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_does_not_last_is_renewed_once_to_the_rest() {
    let span = TTL + 20 * SECOND;
    assert_eq!(sent_around(Stage::default(), span).await, [(1, 0), (1, 0), (1, 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_renewal_is_an_error_and_is_repeated() {
    let (stage, client) = Stage { renew: steps([Step::Fail(ErrorKind::Unavailable)]), ..Stage::default() }.client();
    let guard = client.lock("a").at_least(TTL + SECOND).acquire().await.unwrap();
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Unavailable);
    sleep(SECOND).await;
    assert_eq!((stage.sent("renew").len(), stage.sent("release").len(), client.stats().standing), (2, 0, 1));
    sleep(TTL + SECOND / 10).await;
    assert_eq!((stage.sent("renew").len(), stage.sent("release").len()), (2, 1));
}

/// Nobody has worked under locks of which not all could be taken.
#[tokio::test(start_paused = true)]
async fn locks_that_were_taken_for_nothing_are_given_back_at_once() {
    let client = Client::new(MemoryDriver::new());
    let busy = client.lock("b").acquire().await.unwrap();
    let both = client.lock_all(["a", "b"]).at_least(TTL);
    assert!(both.try_acquire().await.unwrap().is_none());
    let free = async |lock: &str| tokio::time::timeout(SECOND, client.lock(lock).acquire()).await;
    free("a").await.expect("after a lock was busy").unwrap().release().await.unwrap();
    assert_eq!(both.acquire_within(SECOND).await.unwrap_err().kind(), ErrorKind::TimedOut);
    free("a").await.expect("after a timeout").unwrap().release().await.unwrap();
    assert!(tokio::time::timeout(SECOND, both.acquire()).await.is_err());
    free("a").await.expect("after a drop").unwrap().release().await.unwrap();
    busy.release().await.unwrap();
    both.acquire().await.unwrap().release().await.unwrap();
    assert!(free("a").await.is_err(), "a lock that was worked under is left standing");
}

/// The first lock ends by itself then, and not in the hands of whoever waits for the second one.
#[tokio::test(start_paused = true)]
async fn a_lock_that_ends_while_others_are_waited_for_is_given_back_at_once() {
    let (stage, client) = Stage { acquire: steps([Step::Grant, Step::Busy]), ..Stage::default() }.client();
    let both = client.lock_all(["a", "b"]).at_least(TTL);
    let waiting = tokio::spawn(async move { both.acquire().await });
    sleep(SECOND).await;
    assert_eq!((stage.sent("acquire").len(), client.stats().holds), (2, 1));
    client.close(SECOND).await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap_err().kind(), ErrorKind::Closed);
    let first = stage.sent("acquire")[0];
    assert_eq!((stage.sent("release"), stage.sent("renew").len()), (vec![first], 0));
}

#[tokio::test(start_paused = true)]
async fn a_span_that_no_lease_can_have_is_refused() {
    let client = Client::new(MemoryDriver::new());
    for span in [Duration::MAX, Ttl::MAX] {
        let error = client.lock("a").at_least(span).acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "clocks may drift apart in it: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_guard_leaves_the_lease_standing_too() {
    let (stage, client) = Stage::default().client();
    let span = TTL + SECOND;
    drop(client.lock("a").at_least(span).acquire().await.unwrap());
    sleep(span - Duration::from_millis(1)).await;
    assert_eq!((stage.sent("renew").len(), stage.sent("release").len(), client.stats().standing), (1, 0, 1));
    sleep(Duration::from_millis(10)).await;
    assert_eq!((stage.sent("renew").len(), stage.sent("release").len(), client.stats().standing), (1, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_release_after_the_span_is_a_release() {
    let (stage, client) = Stage::default().client();
    let guard = client.lock("a").at_least(SECOND).acquire().await.unwrap();
    sleep(SECOND).await;
    guard.release().await.unwrap();
    assert_eq!((stage.sent("renew").len(), stage.sent("release").len()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn close_keeps_it_whether_its_guard_is_gone_or_not() {
    let (stage, client) = Stage::default().client();
    let lock = |name| client.lock(name).at_least(TTL + SECOND);
    lock("done").acquire().await.unwrap().release().await.unwrap();
    drop(lock("dropped").acquire().await.unwrap());
    let at_work = lock("at work").acquire().await.unwrap();
    client.close(SECOND).await.unwrap();
    assert_eq!(at_work.check().unwrap_err().message(), LostReason::Closed.to_string());
    drop(at_work);
    assert_eq!((stage.sent("renew").len(), stage.sent("release").len()), (3, 0), "the driver was closed afterwards");
    sleep(2 * TTL).await;
    assert_eq!(stage.sent("release").len(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_is_left_standing_counts_as_a_hold_of_the_client() {
    let (_, client) = Stage::default().client_with(|builder| builder.max_holds(2));
    for name in ["a", "b"] {
        client.lock(name).at_least(SECOND).acquire().await.unwrap().release().await.unwrap();
    }
    sleep(SECOND / 2).await;
    let error = client.lock("c").acquire().await.unwrap_err();
    assert_eq!((error.kind(), client.stats().standing), (ErrorKind::LimitReached, 2));
    sleep(SECOND).await;
    client.lock("c").acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn it_is_not_passed_on_to_waiters_of_the_client_before_its_time() {
    let client = Client::new(MemoryDriver::new());
    let lock = client.lock("a").at_least(SECOND);
    let (start, guard) = (Instant::now(), lock.acquire().await.unwrap());
    let waiters: Vec<_> = (0..3)
        .map(|_| {
            let lock = lock.clone();
            tokio::spawn(async move {
                let guard = lock.acquire().await.unwrap();
                let since = start.elapsed();
                guard.release().await.unwrap();
                since
            })
        })
        .collect();
    tokio::task::yield_now().await;
    guard.release().await.unwrap();
    let mut got = Vec::new();
    for waiter in waiters {
        got.push(waiter.await.unwrap());
    }
    got.sort();
    for (at, turn) in got.iter().zip(1..) {
        assert!(*at >= turn * SECOND && *at < turn * SECOND + SECOND / 10, "{got:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_span_that_cannot_be_kept_is_refused() {
    let (stage, client) = Stage::default().client();
    let lock = client.lock("a").at_least(10 * SECOND);
    for (bad, says) in [
        (lock.clone().max_hold(9 * SECOND), "max_hold"),
        (lock.clone().fixed_ttl(9 * SECOND), "fixed ttl"),
        (lock.clone().at_least(2 * TTL), "supports none above"),
    ] {
        let error = bad.try_acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.message().contains(says), "{error}");
    }
    assert!(stage.sent("acquire").is_empty());
    assert!(lock.max_hold(10 * SECOND).fixed_ttl(10 * SECOND).try_acquire().await.unwrap().is_some());
}
