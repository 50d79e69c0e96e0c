//! The engine at its edges: blocked runtimes, long silences, clean-ups that never succeed, holds that were lost.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::driver::{Backend, DistributedLock};
use tenure_core::{Client, ErrorKind, LostReason, OwnerId};
use tenure_memory::{MemoryDriver, Operation};
use tokio::time::sleep;

use crate::locks::stage::{Stage, Step, TTL, steps};

#[tokio::test]
async fn work_that_outlasts_the_lease_is_lost_though_no_timer_could_run() {
    let (_, client) = Stage::default().client();
    let ttl = Duration::from_millis(80);
    let block = async || std::thread::sleep(ttl); // blocks the runtime's only thread, and every timer with it
    let guard = client.lock("a").fixed_ttl(ttl).acquire().await.unwrap();
    assert_eq!(guard.run(block()).await.unwrap_err().kind(), ErrorKind::Lost);
    let both = client.lock_all(["b", "c"]).fixed_ttl(ttl).acquire().await.unwrap();
    assert_eq!(both.run(block()).await.unwrap_err().kind(), ErrorKind::Lost);
    let guard = client.lock("d").fixed_ttl(ttl).acquire().await.unwrap();
    std::thread::sleep(ttl);
    let mut begun = false;
    assert_eq!(guard.run(async { begun = true }).await.unwrap_err().kind(), ErrorKind::Lost);
    assert!(!begun, "nothing is done after the lease");
}

#[tokio::test(start_paused = true)]
async fn a_wait_survives_a_silence_that_outlasts_the_lease_granted_in_it() {
    let unheard = [Step::Busy, Step::Fail(ErrorKind::Indeterminate)];
    let outage = [Step::Fail(ErrorKind::Unavailable); 100];
    let acquire = steps(unheard.into_iter().chain(outage).chain([Step::GrantEarlier]));
    let (stage, client) = Stage { acquire, ..Stage::default() }.client();
    let guard = client.lock("a").ttl(TTL).acquire().await.unwrap();
    assert!(guard.remaining() > TTL / 2, "the grant of the fresh token counts");
    sleep(Duration::from_secs(1)).await;
    let asked = stage.sent("acquire");
    assert_eq!(stage.sent("abandon"), [asked[0]], "the token of the stale grant is undone");
    assert_ne!(guard.token(), &asked[0]);
}

#[tokio::test(start_paused = true)]
async fn a_fresh_token_in_a_wait_takes_the_place_of_the_old_one() {
    let outage = [Step::Fail(ErrorKind::Unavailable); 100];
    let script = [Step::Busy, Step::Fail(ErrorKind::Indeterminate)].into_iter().chain(outage);
    let stage = Arc::new(Stage { acquire: steps(script.chain([Step::GrantEarlier])), ..Stage::default() });
    let backend = Backend::new(Arc::clone(&stage) as Arc<dyn DistributedLock>);
    let client = Client::builder(backend).max_holds(1).build().unwrap();
    assert!(client.lock("a").ttl(TTL).acquire().await.unwrap().is_held());
}

#[tokio::test(start_paused = true)]
async fn a_proved_loss_does_not_forget_a_request_on_its_way() {
    let acquire = steps([Step::Busy, Step::Fail(ErrorKind::Indeterminate)]);
    let (stage, client) = Stage { acquire, renew: steps([Step::Lost]), ..Stage::default() }.client();
    let guard = client.lock("a").ttl(TTL).acquire().await.unwrap();
    assert_eq!(guard.lost().await, LostReason::Gone);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(stage.sent("abandon"), [*guard.token()], "the lost request could still take the lock");
}

#[tokio::test(start_paused = true)]
async fn a_release_waits_for_a_renewal_on_its_way() {
    let renew = steps([Step::Slow(Duration::from_millis(500)); 2]);
    let (stage, client) = Stage { renew, ..Stage::default() }.client();
    for released in [true, false] {
        stage.frames.lock().unwrap().clear();
        let guard = client.lock("a").ttl(TTL).acquire().await.unwrap();
        while stage.sent("renew").is_empty() {
            sleep(Duration::from_millis(10)).await;
        }
        assert!(stage.sent("renewed").is_empty(), "it is on its way");
        if released {
            guard.release().await.unwrap();
        } else {
            drop(guard);
            sleep(Duration::from_secs(1)).await;
        }
        let order: Vec<_> = stage.frames.lock().unwrap().iter().map(|frame| frame.0).collect();
        assert_eq!(order, ["acquire", "renew", "renewed", "release"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_hold_is_not_entered_again_before_it_is_undone() {
    let silence = Step::Slow(Duration::from_secs(3600));
    let renew = steps([Step::Fail(ErrorKind::Unavailable); 1000]);
    let (stage, client) = Stage { renew, release: steps([silence; 3]), ..Stage::default() }.client();
    let lock = client.reentrant("a", &OwnerId::new()).ttl(TTL);
    let (outer, inner) = (lock.acquire().await.unwrap(), lock.acquire().await.unwrap());
    outer.lost().await;
    drop((outer, inner));
    assert!(lock.try_acquire().await.unwrap().is_none(), "the backend still has the old hold");
    let again = lock.acquire().await.unwrap();
    assert!(stage.sent("release").len() > 3, "both entries were undone first");
    assert!(again.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_lost_guard_that_still_lives_keeps_nobody_out_once_it_is_undone() {
    let renew = steps([Step::Fail(ErrorKind::Unavailable); 1000]);
    let (stage, client) = Stage { renew, ..Stage::default() }.client();
    let lock = client.reentrant("a", &OwnerId::new()).ttl(TTL);
    let mut guard = lock.acquire().await.unwrap();
    guard.lost().await;
    let lost = *guard.token();
    guard = lock.acquire_within(TTL).await.unwrap(); // the owner is in through another client: the fence is the same
    assert!(guard.is_held() && stage.sent("release").contains(&lost));
}

#[tokio::test(start_paused = true)]
async fn clean_ups_that_never_succeed_hold_up_nobody() {
    let (stage, client) = Stage { refused: Some("bad"), ..Stage::default() }.client();
    for i in 0..200 {
        drop(client.lock(format!("bad {i}")).ttl(TTL).acquire().await.unwrap());
    }
    sleep(Duration::from_secs(5)).await;
    let guard = client.lock("good").ttl(TTL).acquire().await.unwrap();
    let token = *guard.token();
    drop(guard);
    sleep(Duration::from_secs(10)).await;
    assert!(stage.sent("release").contains(&token));
    sleep(TTL * 4).await;
    assert_eq!(client.stats().cleanups, 0, "they are given up when they cannot matter any more");
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_does_not_close_holds_up_nobody() {
    let close = steps([Step::Slow(Duration::from_secs(3600))]);
    let (_, client) = Stage { close, ..Stage::default() }.client();
    let closing = client.close(Duration::from_secs(1));
    tokio::time::timeout(Duration::from_secs(10), closing).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_comes_after_max_hold_is_given_back() {
    let acquire = steps([Step::Slow(Duration::from_millis(200))]);
    let (stage, client) = Stage { acquire, ..Stage::default() }.client();
    let lock = client.lock("a").ttl(TTL).max_hold(Duration::from_millis(100));
    assert_eq!(lock.try_acquire().await.unwrap_err().kind(), ErrorKind::Lost);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(stage.sent("abandon").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn several_locks_are_not_asked_for_beyond_the_limit() {
    let acquire = steps([Step::Slow(Duration::from_millis(250)); 10]);
    let (stage, client) = Stage { acquire, ..Stage::default() }.client();
    let names = (0..10).map(|i| format!("lock {i}"));
    let most = Duration::from_millis(500);
    let error = client.lock_all(names).acquire_within(most).await.unwrap_err();
    assert!(error.is_timed_out(), "{error}");
    assert!(stage.sent("acquire").len() <= 2, "{}", stage.sent("acquire").len());
}

#[tokio::test(start_paused = true)]
async fn a_hold_is_renewed_with_the_longest_ttl_asked_for() {
    let (_, client) = Stage::default().client();
    let owner = OwnerId::new();
    let enter = |ttl| client.reentrant("a", &owner).ttl(ttl);
    let _brief = enter(TTL / 10).acquire().await.unwrap();
    let long = enter(TTL).acquire().await.unwrap();
    for _ in 0..30 {
        sleep(TTL / 10).await;
        assert!(long.remaining() > TTL / 2, "{:?}", long.remaining());
    }
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_is_proved_lost_is_not_released() {
    let (stage, client) = Stage { renew: steps([Step::Lost]), ..Stage::default() }.client();
    let guard = client.lock("a").ttl(TTL).acquire().await.unwrap();
    guard.lost().await;
    drop(guard);
    sleep(Duration::from_secs(1)).await;
    assert!(stage.sent("release").is_empty() && stage.sent("abandon").is_empty());
}

#[test]
fn a_clean_up_in_hand_outlives_its_runtime() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let release = steps([Step::Slow(Duration::from_secs(3600))]);
    let (stage, client) = Stage { release, ..Stage::default() }.client();
    runtime().block_on(async {
        drop(client.lock("a").ttl(TTL).acquire().await.unwrap());
        while stage.sent("release").is_empty() {
            sleep(Duration::from_millis(1)).await;
        }
    });
    assert_eq!(client.stats().cleanups, 1);
    runtime().block_on(async { client.close(TTL).await.unwrap() });
    assert_eq!((stage.sent("release").len(), client.stats().cleanups), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn what_is_granted_while_the_client_closes_is_given_back() {
    let acquire = steps([Step::Slow(Duration::from_millis(500))]);
    let (stage, client) = Stage { acquire, ..Stage::default() }.client();
    let lock = client.lock("a").ttl(TTL);
    let asking = tokio::spawn(async move { lock.try_acquire().await });
    sleep(Duration::from_millis(100)).await;
    client.close(TTL).await.unwrap();
    assert_eq!(stage.sent("release").len(), 1);
    let guard = asking.await.unwrap().unwrap().unwrap();
    assert_eq!(guard.state(), tenure_core::HoldState::Lost(LostReason::Closed));
}

#[tokio::test(start_paused = true)]
async fn closing_misses_no_lease_that_is_being_renewed() {
    let renew = steps([Step::Slow(Duration::from_millis(500))]);
    let (stage, client) = Stage { renew, ..Stage::default() }.client();
    let guard = client.lock("a").ttl(TTL).acquire().await.unwrap();
    while stage.sent("renew").is_empty() {
        sleep(Duration::from_millis(10)).await;
    }
    client.close(TTL).await.unwrap();
    assert_eq!(guard.state(), tenure_core::HoldState::Lost(LostReason::Closed));
    assert_eq!((stage.sent("renewed").len(), stage.sent("release").len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn patience_that_ends_before_an_answer_can_come_is_no_outage() {
    let driver = MemoryDriver::new();
    let late = Duration::from_millis(50);
    driver.faults().delay(Operation::Watch, late);
    let client = Client::new(driver);
    let lock = client.lock("a");
    assert_eq!(lock.acquire_within(late / 2).await.unwrap_err().kind(), ErrorKind::TimedOut);
    lock.acquire_within(late * 2).await.unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_was_in_vain_tells_its_place_and_what_failed_last() {
    let second = Duration::from_secs(1);
    let memory = MemoryDriver::new();
    let holder = Client::new(memory.another_client());
    let guard = holder.lock("a").ttl(second).acquire().await.unwrap();
    let lock = Client::new(memory.clone()).lock("a").ttl(second);
    let ahead = Client::new(memory.another_client()).lock("a").ttl(second);
    let in_vain = async |outage: std::ops::Range<u32>| {
        let waiting = tokio::spawn({
            let lock = lock.clone();
            async move { lock.acquire_within(second * 20).await.unwrap_err() }
        });
        sleep(second * outage.start).await;
        if !outage.is_empty() {
            memory.faults().outage();
        }
        sleep(second * (outage.end - outage.start)).await;
        memory.faults().heal();
        let error = waiting.await.unwrap();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        error.message().to_owned()
    };
    assert!(in_vain(0..0).await.ends_with(", with 0 waiters ahead"));
    let before = tokio::spawn(async move { ahead.acquire().await });
    sleep(second).await;
    assert!(in_vain(0..0).await.ends_with(", with 1 waiters ahead"));
    assert!(in_vain(1..30).await.ends_with(", and the last request failed"));
    assert!(in_vain(1..10).await.ends_with(", with 1 waiters ahead"), "it answered again");
    guard.release().await.unwrap();
    drop(before.await.unwrap().unwrap());
}
